"""Whether a runtime that was built for one configuration runs what another closure needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge import errors
from edge.closure import Closure, Entry, Types, to_json, union
from edge.closure.text import render
from edge.convert.closure_within import closure_within

FLOAT = Types(((0, ("float",)),))
BOTH = Types(((0, ("float", "int32_t")),))
SMALL = Closure((Entry("", "Abs", 13, FLOAT, "here"), Entry("com.microsoft", "FusedConv", 1)))
LARGE = union(SMALL, Closure((Entry("", "Abs", 13, BOTH), Entry("", "Erf", 13, node="there"))))


def missing(folder: Path, needed: Closure, offered: Closure, *, types: bool = True) -> list[str]:
    (folder / "closure.json").write_text(to_json(needed))
    (folder / "config").write_text(render(offered, types=types))
    facts = closure_within.function(
        folder, closure=folder / "closure.json", config=folder / "config"
    )
    assert facts is not None
    found: list[str] = facts["missing"]
    return found


def test_what_holds_all_lacks_nothing(tmp_path: Path) -> None:
    assert missing(tmp_path, SMALL, SMALL) == []
    assert missing(tmp_path, SMALL, LARGE) == []
    assert missing(tmp_path, SMALL, LARGE, types=False) == []
    assert missing(tmp_path, SMALL, Closure(every_operator=True)) == []


def test_what_is_lacking_is_named_with_its_node(tmp_path: Path) -> None:
    first, second = missing(tmp_path, LARGE, SMALL)
    assert "Abs" in first
    assert "int32_t" in first
    assert "Erf" in second
    assert "there" in second


def test_every_type_is_not_within_some(tmp_path: Path) -> None:
    assert missing(tmp_path, SMALL.without_types(), SMALL) != []


def test_operators_of_other_domains_are_known_by_the_closure(tmp_path: Path) -> None:
    own = Closure((Entry("my.domain", "Own", 3),))
    assert missing(tmp_path, own, own) == []
    assert len(missing(tmp_path, own, SMALL)) == 1


@pytest.mark.parametrize(
    ("closure", "config"), [("{}", "ai.onnx;13;Abs\n"), (to_json(SMALL), "ai.onnx;13;Abss\n")]
)
def test_damage_is_said(tmp_path: Path, closure: str, config: str) -> None:
    (tmp_path / "closure.json").write_text(closure)
    (tmp_path / "config").write_text(config)
    with pytest.raises(errors.ConfigError):
        closure_within.function(
            tmp_path, closure=tmp_path / "closure.json", config=tmp_path / "config"
        )
