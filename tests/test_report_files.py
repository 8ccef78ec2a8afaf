"""The report as files: what each holds, and that names in it do no harm."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from edge import cli_field, errors, report, report_files, report_variants
from edge.choice import Limits
from edge.choice_record import ChoiceRecord
from edge.registry import product_root
from edge.report import Comparison, compare
from tests.reports import (
    ANDROID,
    BUILT,
    ENDLESS,
    INT8,
    NOTHING,
    OUTPUT,
    PLANNED,
    RECORD,
    X64,
    decided,
)


def lines(
    comparisons: tuple[Comparison, ...], choices: Sequence[ChoiceRecord] = ()
) -> list[dict[str, str]]:
    text = report_files.to_csv(comparisons, choices)
    return list(csv.DictReader(io.StringIO(text, newline="")))


# -------------------------------------------------------------------------- comparisons
def test_json_is_standard_and_holds_plain_figures() -> None:
    endless = replace(RECORD, outputs=(replace(OUTPUT, sqnr_db=-math.inf),))
    text = report_files.to_json(compare([endless], [PLANNED]))
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
    assert report_files.to_csv(()).startswith(
        "model,version,model_sha256,samples_sha256,target,state,"
    )
    assert report_files.to_csv(()).count("\r\n") == 1


def test_markdown_is_one_table_a_comparison() -> None:
    hostile = replace(RECORD, device="a|b\n<b>`*", samples_sha256="99" * 32)
    text = report_files.to_markdown(compare([RECORD, hostile], []))
    tables = [line for line in text.splitlines() if line.startswith("| ---")]
    assert len(tables) == text.count("## ") == 2
    row = text.splitlines()[-1]
    assert "a\\|b\ufffd\\<b\\>\\`\\*" in row
    assert row.count(" | ") == len(report.COLUMNS) - 1


@pytest.mark.parametrize("name", ["r.json", "r.csv", "r.md", "r.html"])
def test_files_are_the_same_every_time(tmp_path: Path, name: str) -> None:
    path = tmp_path / "deep" / name
    report_files.write(path, compare([RECORD], [BUILT]), [X64, NOTHING])
    first = path.read_bytes()
    report_files.write(path, compare([RECORD], [BUILT]), [X64, NOTHING])
    assert path.read_bytes() == first
    assert [item.name for item in path.parent.iterdir()] == [name]


@pytest.mark.parametrize(("name", "words"), [("r.xlsx", "'.xlsx'"), ("r", "'r'")])
def test_another_suffix_is_refused(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(errors.UsageError, match=words):
        report_files.write(tmp_path / name, ())


def test_a_place_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.UsageError, match="cannot write"):
        report_files.write(tmp_path / "file" / "r.json", ())


def test_writers_cover_what_the_issues_ask_for() -> None:
    assert set(report_files.WRITERS) == {".json", ".csv", ".md", ".html"}


# ------------------------------------------------------------------- choices of precision
def test_json_holds_choices_beside_comparisons() -> None:
    text = report_files.to_json(
        compare([RECORD], []), [X64, NOTHING, decided("a", [ENDLESS], Limits())]
    )
    data = json.loads(text, parse_constant=pytest.fail)
    assert data["schema"] == 3
    assert [choice["target"] for choice in data["choices"]] == ["a", "ios", "linux-x64"]
    assert [choice["chosen"] for choice in data["choices"]] == ["source", None, "int8"]
    assert data["choices"][0]["variants"][0]["sqnr_db"] == "inf"
    assert ChoiceRecord.from_json(data["choices"][2]) == X64


def test_csv_says_which_kind_a_row_is_of() -> None:
    rows = lines(compare([RECORD], []), [X64])
    assert [row["kind"] for row in rows] == ["bundle", "framework"] + ["variant"] * 4
    assert (rows[0]["precision"], rows[0]["reason"]) == ("", "")
    assert (rows[1]["accuracy"], rows[1]["metric"], rows[1]["target"]) == ("0.9731", "top-1", "")
    source, int8, _, failed = rows[2:]
    assert {key: value for key, value in source.items() if value} == {
        "model": "digits", "version": "1.0", "model_sha256": "55" * 32,
        "samples_sha256": "22" * 32, "target": "linux-x64", "state": "made", "device": "local",
        "p50_ns": "1700000.0", "p50_low_ns": "1650000.0", "p50_high_ns": "1750000.0",
        "peak_bytes": "60000000", "max_abs": "2.8e-07", "sqnr_db": "131.2", "verdict": "lost",
        "artifact_raw_bytes": "3170000", "artifact_compressed_bytes": "1200000",
        "kind": "variant", "precision": "source", "accuracy": "0.9722", "drop": "0.0",
        "metric": "top-1", "artifact_sha256": "aa" * 32,
        "reason": "larger than int8: 3.17 MB against 0.83 MB",
    }  # fmt: skip
    assert (int8["verdict"], int8["reason"]) == ("chosen", "")
    assert (failed["state"], failed["artifact_raw_bytes"]) == ("failed", "")
    (line,) = lines((), [decided("=1+1", [INT8], Limits())])[1:]
    assert line["target"] == "'=1+1"


def test_markdown_has_a_table_of_precisions_and_notes() -> None:
    hostile = decided("a|b\n<b>", [INT8], Limits())
    text = report_files.to_markdown(compare([RECORD], []), [X64, hostile])
    assert text.count("## ") == 2
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert rows[-1].startswith("| linux-x64 | int4-weights |")
    assert "| a\\|b\ufffd\\<b\\> | int8 |" in text
    assert "- linux-x64: warning: int8 is slower than source" in text
    assert text.endswith("\n")


# ---------------------------------------------------------------------------------- HTML
SVG = "{http://www.w3.org/2000/svg}"
PAGE = "{http://www.w3.org/1999/xhtml}"
HOSTILE = "</title><script>alert(1)</script>&\"'\x00\ud800\x1b{{ 7 * 7 }}"


def page(*choices: ChoiceRecord, bundles: bool = True) -> ET.Element:
    text = report_files.to_html(compare([RECORD], [BUILT, PLANNED]) if bundles else (), choices)
    assert text.isascii()
    assert text.startswith("<!DOCTYPE html>")
    return ET.fromstring(text)


def texts(element: ET.Element) -> list[str]:
    return ["".join(each.itertext()).strip() for each in element]


def test_a_page_is_well_formed_and_holds_both_tables() -> None:
    root = page(X64, ANDROID, NOTHING)
    comparison, variants = root.iter(f"{PAGE}table")
    rows = [texts(row) for row in variants.iter(f"{PAGE}tr")]
    assert rows[0][:3] == ["target", "precision", "size\n(compressed)"]
    assert rows[1][1:6] == ["source framework", "-", "-", "-", "0.9731"]
    chosen = [texts(row)[:2] for row in variants.iter(f"{PAGE}tr") if row.get("class") == "chosen"]
    assert chosen == [["android", "int8-weights"], ["linux-x64", "int8"]]
    assert len(list(comparison.iter(f"{PAGE}tr"))) == 4
    notes = [text for item in root.iter(f"{PAGE}li") if (text := item.text)]
    assert "linux-x64 on pi: it had the CPU for 40% of the time only" in notes
    assert "ios: nothing was within the limits" in notes


def test_a_plot_shows_every_variant_with_its_reason() -> None:
    drawing, of_others = page(X64, ANDROID).iter(f"{SVG}svg")
    marks = [g for g in drawing.iter(f"{SVG}g") if "mark" in g.get("class", "").split()]
    tips = [mark.findtext(f"{SVG}title") or "" for mark in marks]
    assert len(marks) == 3
    assert any(tip.endswith("larger than int8: 3.17 MB against 0.83 MB") for tip in tips)
    (chosen,) = [mark for mark in marks if "chosen" in mark.get("class", "").split()]
    assert chosen.findtext(f"{SVG}text") == "linux-x64/int8"
    assert len([p for p in drawing.iter(f"{SVG}path") if "front" in p.get("class", "")]) == 1
    ids = [title.get("id") for title in (drawing[0], of_others[0])]
    assert ids == ["plot-1-1", "plot-1-2"]
    assert [drawing.get("aria-labelledby"), of_others.get("aria-labelledby")] == ids


def test_a_page_loads_and_runs_nothing() -> None:
    text = report_files.to_html(compare([RECORD], []), [X64, ANDROID])
    root = ET.fromstring(text)
    assert not {f"{PAGE}script", f"{PAGE}img", f"{PAGE}link", f"{PAGE}iframe"} & {
        each.tag for each in root.iter()
    }
    assert not [
        name for each in root.iter() for name in each.attrib if name in ("src", "href", "style")
        or name.startswith("on")
    ]  # fmt: skip
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'; style-src 'unsafe-inline'" in text
    assert set(re.findall(r"https?://[^\"' ]+", text)) == {
        "http://www.w3.org/1999/xhtml", "http://www.w3.org/2000/svg",
    }  # fmt: skip


class Tags(HTMLParser):
    """What a browser's parser sees, which is no XML parser."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append(tag)


def test_hostile_names_are_text() -> None:
    record = replace(
        X64, target=HOSTILE, device=HOSTILE, metric=HOSTILE, warnings=(HOSTILE,),
        model=replace(X64.model, name=HOSTILE, version=HOSTILE, sha256=HOSTILE),
        reasons=dict.fromkeys(X64.reasons, HOSTILE), samples_sha256=HOSTILE,
    )  # fmt: skip
    bench = replace(RECORD, device=HOSTILE, target=HOSTILE, runner=HOSTILE)
    text = report_files.to_html(compare([bench], []), [record, X64])
    root = ET.fromstring(text)
    parser = Tags()
    parser.feed(text)
    assert "script" not in parser.seen
    assert parser.seen.count("title") == 1 + len(list(root.iter(f"{SVG}title")))
    shown = "".join(root.itertext())
    assert "<script>alert(1)</script>" in shown
    assert "{{ 7 * 7 }}" in shown
    assert "\x1b" not in shown


def test_every_value_of_the_template_is_escaped() -> None:
    folder = product_root() / "templates" / "report"
    text = (folder / "report.html.j2").read_text()
    values = re.findall(r"\{\{(.*?)\}\}", text)
    assert len(values) > 20
    assert [v for v in values if not v.endswith("| xml ") and "drawing(" not in v] == []


def test_a_page_without_choices_or_without_comparisons() -> None:
    assert len(list(page().iter(f"{PAGE}table"))) == 1
    assert not list(page().iter(f"{SVG}svg"))
    assert len(list(page(X64, bundles=False).iter(f"{PAGE}table"))) == 1


def test_pages_do_not_depend_on_the_order_of_records() -> None:
    one, other = [X64, ANDROID, NOTHING], [NOTHING, X64, ANDROID]
    for writer in report_files.WRITERS.values():
        assert writer((), one) == writer((), other)


def test_what_is_on_no_plot_is_told_on_the_page() -> None:
    bare = replace(INT8, accuracy=None, sqnr_db=None, p50_ns=None)
    root = page(decided("pi", [bare], Limits()))
    told = [item.text for item in root.iter(f"{PAGE}li")]
    assert "On no plot, because what it would be drawn by was not measured: pi/int8" in told
    assert report_variants.plots(*report_variants.groups([decided("pi", [bare], Limits())])) == []


# --------------------------------------------------------------------------- the command
def test_the_command_shows_and_writes_choices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, folder = tmp_path / "edge.toml", tmp_path / "out"
    config.write_text('[model]\nsource = "digits.onnx"\n')
    with pytest.raises(errors.UsageError, match="nothing to compare"):
        cli_field.compare(config=config, output=str(folder))
    X64.write(folder / "digits" / "1.0" / "linux-x64.choice.json")
    files = [tmp_path / "r.html", tmp_path / "r.md"]
    capsys.readouterr()
    cli_field.compare(config=config, output=str(folder), write=files, as_json=True)
    out, err = capsys.readouterr()
    assert [choice["target"] for choice in json.loads(out)["choices"]] == ["linux-x64"]
    assert "warning: int8 is slower than source" in err
    assert f"wrote {files[0]}" in err.replace("\n", "")
    assert files[0].read_text() == report_files.to_html((), [X64])
    assert "| linux-x64 | int8 |" in files[1].read_text()
