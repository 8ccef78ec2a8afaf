"""Figures for people, and plain lines where there is no terminal."""

from __future__ import annotations

import pytest

from edge import log


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"), (999, "999 ns"), (1000, "1 us"), (999_499, "999 us"), (999_999, "1 ms"),
        (1_240_000, "1.24 ms"), (999_999_999, "1 s"), (12e9, "12 s"), (1_234e9, "1234 s"),
    ],
)  # fmt: skip
def test_times(ns: float, text: str) -> None:
    assert log.human_ns(ns) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (3_165_331, "3.17 MB"), (2e9, "2.00 GB")],
)
def test_sizes(size: int, text: str) -> None:
    assert log.human_bytes(int(size)) == text


def test_a_step_is_one_plain_line(capsys: pytest.CaptureFixture[str]) -> None:
    with log.step("convert") as step:
        step.note = "3 kB"
    err = capsys.readouterr().err
    assert err.startswith("  ✓ convert 0.0 s  3 kB")
    assert "\x1b" not in err


def test_a_failing_step_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyError), log.step("convert"):
        raise KeyError
    assert "✗ convert" in capsys.readouterr().err


def test_names_are_shown_and_not_obeyed(capsys: pytest.CaptureFixture[str]) -> None:
    log.table("t [red]x[/]", ("a",), [("[bold]name[/bold]",)])
    err = capsys.readouterr().err
    assert "[bold]name[/bold]" in err
    assert "t [red]x[/]" in err
