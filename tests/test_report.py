"""Comparison tables: what is grouped, what is never mixed, and what the files hold."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge import errors, report
from edge.parity import OutputParity
from edge.report import Built, Comparison, Row, built, compare
from edge.results import ModelId, Record, Size, Sizes
from edge.stats import Summary, Verdict

MODEL = ModelId("magika", "3.3", "11" * 32)
SIZES = Sizes(Size(2_950_000, 1_210_000), Size(34_800_000, 9_000_000), Size(37_800_000, 10_300_000))
SUMMARY = Summary(
    runs=900, repeats=3, median_ns=1.24e6, low_ns=1.2e6, high_ns=1.28e6, p90_ns=1.5e6,
    p99_ns=None, mean_ns=1.3e6, min_ns=1.1e6, iqr_ns=4e4, throughput=806.47, drift=1.0,
    cpu_share=0.99, involuntary_switches=0, medians_ns=(1.24e6,) * 3, spread=0.0,
)  # fmt: skip
OUTPUT = OutputParity(
    "y", "float32", "float32", (1, 2), (1, 2), 2, 1e-3, max_abs=3e-7, sqnr_db=120.0
)
RECORD = Record(
    id="a1", created="2026-01-01T00:00:00+00:00", model=MODEL, samples_sha256="22" * 32,
    target="linux-x64", manifest_sha256="33" * 32, device="pi", runner="c",
    runtime="onnxruntime 1.32.0", facts={}, before={}, after={}, options={"threads": 4},
    sizes=SIZES, load_ns=(40_000_000, 42_000_000), first_ns=(3_000_000,), peak_bytes=61_500_000,
    summary=SUMMARY, outputs=(OUTPUT, replace(OUTPUT, max_abs=2e-6, sqnr_db=math.inf)),
    verdict=Verdict("noisy", ("it had the CPU for 40% of the time only",)),
)  # fmt: skip
BUILT = Built("built", "android", MODEL, "22" * 32, "44" * 32, SIZES)
PLANNED = replace(BUILT, state="planned", target="ios")
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


def lines(comparisons: tuple[Comparison, ...]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(report.to_csv(comparisons), newline="")))


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


# --------------------------------------------------------------------------------- files
def test_json_is_standard_and_holds_plain_figures() -> None:
    endless = replace(RECORD, outputs=(replace(OUTPUT, sqnr_db=-math.inf),))
    text = report.to_json(compare([endless], [PLANNED]))
    data = json.loads(text, parse_constant=pytest.fail)
    planned, measured = data["comparisons"][0]["rows"]
    assert (planned["state"], planned["sizes"]) == ("planned, not built", None)
    assert (measured["sqnr_db"], measured["p99_ns"], measured["p50_ns"]) == ("-inf", None, 1.24e6)
    assert measured["sizes"]["total"] == {"raw": 37_800_000, "compressed": 10_300_000}


def test_csv_has_a_column_for_every_figure() -> None:
    unmeasured, measured = lines(compare([RECORD], [BUILT]))
    assert measured["model_sha256"] == "11" * 32
    assert (measured["p50_ns"], measured["p99_ns"]) == ("1240000.0", "")
    assert (measured["total_raw_bytes"], measured["peak_bytes"]) == ("37800000", "61500000")
    assert measured["evidence"] == "it had the CPU for 40% of the time only"
    assert (unmeasured["state"], unmeasured["device"]) == ("not measured", "")


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@x", "\t=1", " =1", "|x", "%x"])
def test_csv_has_no_formulas(name: str) -> None:
    (line,) = lines(compare([replace(RECORD, device=name)], []))
    assert line["device"][0] in "'\ufffd"
    assert line["max_abs"] == "2e-06"


def test_csv_quotes_what_needs_it() -> None:
    name = 'a "b", c'
    (line,) = lines(compare([replace(RECORD, device=name)], []))
    assert line["device"] == name


def test_csv_without_rows_is_its_header() -> None:
    assert report.to_csv(()).startswith("model,version,model_sha256,samples_sha256,target,state,")
    assert report.to_csv(()).count("\r\n") == 1


def test_markdown_is_one_table_a_comparison() -> None:
    hostile = replace(RECORD, device="a|b\n<b>`*", samples_sha256="99" * 32)
    text = report.to_markdown(compare([RECORD, hostile], []))
    tables = [line for line in text.splitlines() if line.startswith("| ---")]
    assert len(tables) == text.count("## ") == 2
    row = text.splitlines()[-1]
    assert "a\\|b\ufffd\\<b\\>\\`\\*" in row
    assert row.count(" | ") == len(report.COLUMNS) - 1


@pytest.mark.parametrize("name", ["r.json", "r.csv", "r.md"])
def test_files_are_the_same_every_time(tmp_path: Path, name: str) -> None:
    path = tmp_path / "deep" / name
    report.write(compare([RECORD], [BUILT]), path)
    first = path.read_bytes()
    report.write(compare([RECORD], [BUILT]), path)
    assert path.read_bytes() == first
    assert [item.name for item in path.parent.iterdir()] == [name]


@pytest.mark.parametrize(("name", "words"), [("r.xlsx", "'.xlsx'"), ("r", "'r'")])
def test_another_suffix_is_refused(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(errors.UsageError, match=words):
        report.write((), tmp_path / name)


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.UsageError, match="cannot write"):
        report.write((), tmp_path / "file" / "r.json")


def test_no_rows_are_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    report.show(compare([], []))
    assert capsys.readouterr() == ("", "")


def test_writers_cover_what_the_issue_asks_for() -> None:
    writers: dict[str, Any] = dict(report.WRITERS)
    assert set(writers) == {".json", ".csv", ".md"}
