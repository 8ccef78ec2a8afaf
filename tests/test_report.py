"""Comparison tables: what is grouped, what is never mixed, and what a person sees."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge import errors, report
from edge.report import Built, Comparison, Row, built, compare
from edge.results import Record
from tests.reports import BUILT, MODEL, PLANNED, RECORD, SIZES

MANIFEST = {
    "state": "built",
    "target": {"name": "android"},
    "model": {"name": "magika", "version": "3.3", "sha256": "11" * 32},
    "samples": {"sha256": "22" * 32},
    "sizes": {
        "artifact": {"raw": 2_950_000, "compressed": 1_210_000},
        "runtime": {"raw": 34_800_000, "compressed": 9_000_000},
        "total": {"raw": 37_800_000, "compressed": 10_300_000},
    },
}


def only(*records: Record, bundles: tuple[Built, ...] = ()) -> Comparison:
    (comparison,) = compare(records, bundles)
    return comparison


def cell(row: Row, column: str) -> str:
    return report.cells(row)[report.COLUMNS.index(column)]


# ------------------------------------------------------------------------------- manifest
def test_sizes_come_from_the_manifest() -> None:
    assert built(MANIFEST, "44" * 32) == BUILT


@pytest.mark.parametrize("gone", ["state", "target", "model", "samples", "sizes"])
def test_a_manifest_that_does_not_say_is_refused(gone: str) -> None:
    with pytest.raises(errors.UsageError, match=gone):
        built({key: value for key, value in MANIFEST.items() if key != gone}, "")


# ------------------------------------------------------------------------------- grouping
def test_other_samples_and_other_models_are_other_tables() -> None:
    records = [
        RECORD,
        replace(RECORD, samples_sha256="99" * 32),
        replace(RECORD, model=replace(MODEL, sha256="00" * 32)),
    ]
    found = compare(records, [BUILT])
    assert [len(comparison.rows) for comparison in found] == [1, 2, 1]
    assert [(c.model.sha256[:2], c.samples_sha256[:2]) for c in found] == [
        ("00", "22"), ("11", "22"), ("11", "99"),
    ]  # fmt: skip


def test_rows_are_sorted_whatever_order_they_come_in() -> None:
    records = [
        replace(RECORD, id=f"{target}{device}{runner}", target=target, device=device, runner=runner)
        for target in ("a", "b") for device in ("p", "q") for runner in ("c", "python")
    ]  # fmt: skip
    there, back = compare(records, [BUILT]), compare(records[::-1], [BUILT])
    assert there == back
    assert [row.record for row in there[0].rows[:3]] == ["apc", "appython", "aqc"]


def test_precision_and_provider_of_what_was_measured_are_said() -> None:
    said = {"provider": "CUDAExecutionProvider", "precision": "fp16", "threads": 2}
    row = only(replace(RECORD, options=said)).rows[0]
    assert cell(row, "target") == f"{RECORD.target}, fp16"
    assert cell(row, "runner") == f"{RECORD.runner}, 2 threads, CUDAExecutionProvider"
    plain = {"provider": "CPUExecutionProvider", "precision": "source"}
    row = only(replace(RECORD, options=plain)).rows[0]
    assert (cell(row, "target"), cell(row, "runner")) == (RECORD.target, RECORD.runner)


def test_what_is_built_and_not_measured_has_sizes_only() -> None:
    row = only(RECORD, bundles=(BUILT,)).rows[0]
    assert row == Row("android", report.NOT_MEASURED, sizes=SIZES)
    assert cell(row, "verdict") == "not measured"
    assert cell(row, "artifact") == "2.95 MB (1.21 MB)"
    assert cell(row, "p50 (95 % interval)") == "-"


def test_what_is_measured_is_not_listed_again() -> None:
    same = replace(BUILT, target="linux-x64", manifest_sha256=RECORD.manifest_sha256)
    (row,) = only(RECORD, bundles=(same,)).rows
    assert (row.device, row.note) == ("pi", "")


def test_what_is_planned_is_never_shown_as_built() -> None:
    row = only(bundles=(PLANNED,)).rows[0]
    assert row == Row("ios", report.PLANNED)
    shown = report.cells(row)
    assert (shown[0], shown[-1]) == ("ios", "planned, not built")
    assert set(shown[1:-1]) == {"-"}


def test_a_figure_of_an_older_build_says_so() -> None:
    newer = replace(BUILT, target="linux-x64")
    (row,) = only(RECORD, bundles=(newer,)).rows
    assert cell(row, "verdict") == "noisy (of an older build)"


def test_worst_parity_of_all_outputs_counts() -> None:
    (row,) = only(RECORD).rows
    assert (row.max_abs, row.sqnr_db) == (2e-6, 120.0)
    assert report.worst([]) == (None, None)


# ---------------------------------------------------------------------------------- text
def test_the_cells_of_a_measured_row() -> None:
    (row,) = only(RECORD).rows
    assert report.cells(row) == (
        "linux-x64", "pi", "c, 4 threads", "2.95 MB (1.21 MB)", "34.80 MB (9.00 MB)",
        "37.80 MB (10.30 MB)", "41 ms", "3 ms", "1.24 ms (1.2 to 1.28 ms)", "1.5 ms", "-",
        "61.50 MB", "806.5", "2e-06", "120.0 dB", "noisy",
    )  # fmt: skip


def test_show_prints_names_as_they_are_and_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = replace(RECORD, device="[red]pi\x1b[31m", options={})
    report.show(compare([hostile], [BUILT, PLANNED]))
    out, err = capsys.readouterr()
    assert out == ""
    words = err.replace("\n", " ")
    assert "[red]pi\ufffd[31m: it had the CPU for 40% of the time only" in words
    assert "magika 3.3 (model 111111111111, samples 222222222222)" in words
    assert "\x1b" not in err
    assert err.count("[red]pi") == 2  # in the table and with the evidence


def test_a_table_of_names_as_they_are_fits_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    long = replace(RECORD, target="linux-arm64-portable", device="raspberry-pi-5")
    report.show(compare([RECORD, long], [BUILT, PLANNED]))
    err = capsys.readouterr().err
    for whole in ("linux-arm64-portable", "raspberry-pi-5", "(1.2 to 1.28 ms)", "not measured"):
        assert whole in err
    assert max(map(len, err.splitlines())) <= 160


def test_no_rows_are_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    report.show(compare([], []))
    assert capsys.readouterr() == ("", "")
