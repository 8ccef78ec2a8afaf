"""Choices of precision: which records are read, what the table says, what is on a plot."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

from edge import report_variants
from edge.choice import Limits, Variant
from edge.choice_record import ChoiceRecord
from edge.report_variants import COLUMNS, groups, read_all
from tests.reports import ANDROID, ENDLESS, INT8, NOTHING, SOURCE, VARIANTS, X64, decided, untimed


def only(*records: ChoiceRecord) -> report_variants.Choices:
    (choices,) = groups(records)
    return choices


# --------------------------------------------------------------------------------- files
def test_all_records_beside_bundles_are_read(tmp_path: Path) -> None:
    place = tmp_path / "digits" / "1.0"
    for record in (X64, ANDROID, NOTHING):
        record.write(place / f"{record.target}.choice.json")
    (place / ".hidden.choice.json").write_text("{")
    (place / "linux-x64").mkdir()
    assert read_all(tmp_path) == [ANDROID, NOTHING, X64]
    assert read_all(tmp_path / "gone") == []


def test_a_damaged_record_and_that_of_another_target_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others are reported all the same."""
    ANDROID.write(tmp_path / "digits" / "1.0" / "android.choice.json")
    X64.write(tmp_path / "digits" / "1.0" / "pi.choice.json")
    assert read_all(tmp_path) == [ANDROID]
    assert "another target, linux-x64" in capsys.readouterr().err.replace("\n", " ")
    (tmp_path / "digits" / "1.0" / "pi.choice.json").write_text("{")
    assert read_all(tmp_path) == [ANDROID]
    assert "cannot be read" in capsys.readouterr().err.replace("\n", " ")


# --------------------------------------------------------------------------------- table
def test_other_models_and_samples_are_other_tables() -> None:
    other = replace(X64, samples_sha256="00" * 32)
    third = replace(X64, model=replace(X64.model, name="a"))
    found = groups([X64, other, third, ANDROID])
    assert [(c.model.name, c.samples_sha256[:2], len(c.records)) for c in found] == [
        ("a", "22", 1), ("digits", "00", 1), ("digits", "22", 2),
    ]  # fmt: skip
    assert found == groups([ANDROID, third, other, X64])
    assert found[2].title == "Precision of digits 1.0 (model 555555555555, samples 222222222222)"


def test_the_rows_of_a_table() -> None:
    first, source, int8, weights, failed = report_variants.rows(only(X64))
    assert first == ("-", "source framework", "-", "-", "-", "0.9731", "-", "-", "top-1")
    assert source == (
        "linux-x64", "source", "3.17 MB (1.20 MB)", "131.2 dB", "2.8e-07", "0.9722 (0)",
        "1.7 ms (1.65 to 1.75 ms)", "60.00 MB", "larger than int8: 3.17 MB against 0.83 MB",
    )  # fmt: skip
    assert int8[1:4] == ("int8", "830.00 kB (500.00 kB)", "24.3 dB")
    assert (int8[5], int8[-1]) == ("0.9694 (0.0028)", "chosen")
    assert weights[-1] == "larger than int8: 1.02 MB against 0.83 MB"
    assert failed == (
        "linux-x64", "int4-weights", "-", "-", "-", "-", "-", "-",
        "could not be made: no MatMul with constant weights",
    )  # fmt: skip


def test_the_framework_is_told_once_and_not_without_a_figure() -> None:
    assert [row[1] for row in report_variants.rows(only(X64, ANDROID))].count(
        "source framework"
    ) == 1
    silent = replace(X64, source_accuracy=None, metric=None)
    assert report_variants.rows(only(silent))[0][1] == "source"
    bare = Variant("source", "made", artifact_raw=5)
    row = report_variants.cells(decided("pi", [bare], Limits()), bare)
    assert row == ("pi", "source", "5 B", "-", "-", "-", "-", "-", "chosen")


def test_notes_say_what_was_wanted_and_what_to_be_aware_of() -> None:
    assert ANDROID.warnings[0].startswith("the speed of int8-weights was not measured")
    fast = decided("pi", VARIANTS, Limits(prefer="p50", max_p50=2e6, min_sqnr=20.0), "pi\x1b")
    assert report_variants.notes(only(X64, ANDROID, NOTHING, fast)) == [
        "android: the smallest with SQNR at least 30 dB; not timed",
        f"android: warning: {ANDROID.warnings[0]}",
        "ios: the smallest with size at most 500 kB; not timed",
        "ios: nothing was within the limits",
        "linux-x64: the smallest with accuracy drop at most 0.01; timed on local",
        "linux-x64: warning: int8 is slower than source (p50 2.6 ms against 1.7 ms)",
        "pi: the fastest with p50 at most 2 ms, SQNR at least 20 dB; timed on pi\ufffd",
    ]


def test_show_prints_all_and_nothing_steers_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hostile = replace(
        X64, target="[red]\x1b[31m", metric="\x1b]0;", reasons={**X64.reasons, "source": "\x1b[2J!"}
    )
    report_variants.show([hostile, ANDROID])
    out, err = capsys.readouterr()
    assert out == ""
    assert "\x1b" not in err
    for whole in ("[red]", "source framework", "chosen", "(1.65 to 1.75 ms)", "warning: int8 is"):
        assert whole in err
    assert max(map(len, err.splitlines())) <= 160
    report_variants.show([])
    assert capsys.readouterr() == ("", "")


# --------------------------------------------------------------------------------- plots
def test_times_and_what_has_none_are_two_plots() -> None:
    silent = replace(ANDROID, target="browser", variants=tuple(
        replace(v, accuracy=None, drop=None) for v in ANDROID.variants
    ))  # fmt: skip
    times, accuracies, ratios = report_variants.plots(only(X64, ANDROID, silent))
    assert [p.y.title for p in (times, accuracies, ratios)] == [
        "p50, with its 95 % interval", "accuracy", "SQNR against the golden outputs"
    ]  # fmt: skip
    assert times.legend == ((0, "linux-x64 on local"),)
    assert [(mark.label, mark.chosen) for mark in times.marks] == [
        ("linux-x64/source", False), ("linux-x64/int8-weights", False), ("linux-x64/int8", True),
    ]  # fmt: skip
    assert all(mark.low is not None for mark in times.marks)
    assert all(mark.low is None for mark in (*accuracies.marks, *ratios.marks))


def test_tips_say_the_figures_and_why_it_lost() -> None:
    (times,) = report_variants.plots(only(X64))
    source = times.marks[0]
    assert source.tip == (
        "linux-x64/source: size 3.17 MB (1.20 MB), SQNR 131.2 dB, accuracy (drop) 0.9722 (0), "
        "p50 (95 % interval) 1.7 ms (1.65 to 1.75 ms), peak memory 60.00 MB; "
        "larger than int8: 3.17 MB against 0.83 MB"
    )
    assert times.marks[-1].tip.endswith("; chosen")


def test_what_is_on_no_plot_is_named() -> None:
    (late,) = untimed([replace(INT8, precision="int8-weights")])
    record = decided("pi", [SOURCE, INT8, late, VARIANTS[-1]], Limits(), "pi")
    assert report_variants.absent(only(record)) == ["pi/int8-weights"]
    bare = decided("pi", [Variant("source", "made", artifact_raw=5)], Limits())
    assert report_variants.plots(only(bare)) == []
    assert report_variants.absent(only(bare)) == ["pi/source"]


def test_figures_of_any_size_are_drawn_or_left_out() -> None:
    silent = [replace(v, accuracy=None, drop=None) for v in untimed([ENDLESS, INT8])]
    (drawn,) = report_variants.plots(only(decided("pi", silent, Limits())))
    assert drawn.y_ticks[-1].text == "equal"
    huge = replace(SOURCE, artifact_raw=10**300)
    tiny = replace(INT8, p50_ns=5e-324, p50_low_ns=None, p50_high_ns=None)
    below = replace(INT8, precision="fp16", sqnr_db=-math.inf)
    choices = only(decided("pi", [huge, tiny, below], Limits()))
    assert [mark.label for mark in report_variants.plots(choices)[0].marks] == ["pi/fp16"]
    assert report_variants.absent(choices) == ["pi/source", "pi/int8"]


def test_columns_are_those_that_the_cells_fill() -> None:
    columns, rows = report_variants.stacked(only(X64))
    assert {len(row) for row in rows} == {len(columns)} == {len(COLUMNS)}
    assert columns[2] == "size\n(compressed)"
    assert rows[1][2] == "3.17 MB\n(1.20 MB)"
