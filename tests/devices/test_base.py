"""What all devices share."""

from __future__ import annotations

import pytest

from edge import errors
from edge.devices import base
from edge.process import Completed


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("edgewright", "./edgewright"),
        ("~/edge/", "./edge"),
        ("./a/b", "./a/b"),
        ("/srv/edge/", "/srv/edge"),
        ("/", "/"),
        ("-rf", "./-rf"),
        ("a b", "./a b"),
        ("D:/edge", "D:/edge"),
        ("D:\\edge\\", "D:\\edge\\"),
        ("D:edge", "./D:edge"),
    ],
)
def test_paths_never_look_like_options(given: str, expected: str) -> None:
    assert base.device_path(given) == expected


@pytest.mark.parametrize("given", ["", "a\nb", "a\0b", "a\x7fb"])
def test_paths_that_are_none(given: str) -> None:
    with pytest.raises(errors.ConfigError, match="no folder of a device"):
        base.device_path(given)


def test_a_failed_command_names_device_and_last_words() -> None:
    done = Completed(("tool", "x"), -11, "", "line\nlast words\n", 0.1)
    with pytest.raises(errors.RunFailed, match=r"(?s)tool on pi ended with signal 11 .*last words"):
        base.checked(done, "pi", check=True)
    assert base.checked(done, "pi", check=False) is done
