"""The record of a choice: what it says comes back, and what is damaged is told."""

from __future__ import annotations

import json
import math
import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.choice import Limits, Variant, choose, excluded
from edge.choice_record import (
    MAX_RECORD_BYTES,
    ChoiceRecord,
    ModelRef,
    path_beside,
)

SOURCE = Variant(
    "source", "made", artifact_raw=3_170_000, artifact_compressed=1_200_000, sqnr_db=math.inf,
    max_abs=0.0, accuracy=0.97, drop=0.0, p50_ns=1.7e6, p50_low_ns=1.6e6, p50_high_ns=1.8e6,
    peak_bytes=60_000_000, sha256="aa" * 32,
)  # fmt: skip
INT8 = replace(SOURCE, precision="int8", artifact_raw=830_000, sqnr_db=24.0, sha256="bb" * 32)
FAILED = Variant("int4-weights", "failed", "could not be made: no MatMul \ud800 \x1b[31m")
VARIANTS = (SOURCE, INT8, FAILED)
LIMITS = Limits(max_size=4_000_000, min_sqnr=20.0, max_drop=0.02)
DECISION = choose(VARIANTS, LIMITS, target="linux-x64")
RECORD = ChoiceRecord(
    target="linux-x64", platform="linux-x64", model=ModelRef("digits", "1.0", "11" * 32),
    samples_sha256="22" * 32, limits=LIMITS, variants=VARIANTS, reasons=DECISION.reasons,
    chosen=DECISION.chosen.precision, warnings=("slow",), device="pi", source_accuracy=0.972,
    metric="top-1",
)  # fmt: skip
NONE = replace(
    RECORD, limits=(tight := Limits(max_size=1)), chosen=None, warnings=(), device=None,
    reasons=excluded(VARIANTS, tight), source_accuracy=None, metric=None,
)  # fmt: skip


def damaged(path: Path) -> str:
    with pytest.raises(errors.StoreDamaged) as caught:
        ChoiceRecord.read(path)
    assert str(path) in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.remedy == "remove it and build the target again"
    return caught.value.message


@pytest.mark.parametrize("record", [RECORD, NONE], ids=["chosen", "none"])
def test_a_record_comes_back_with_the_same_bytes(record: ChoiceRecord, tmp_path: Path) -> None:
    path = path_beside(tmp_path / "digits" / "1.0" / "linux-x64")
    assert path == tmp_path / "digits" / "1.0" / "linux-x64.choice.json"
    record.write(path)
    first = path.read_bytes()
    again = ChoiceRecord.read(path)
    assert again == record
    again.write(path)
    assert path.read_bytes() == first
    assert [item.name for item in path.parent.iterdir()] == [path.name]
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_what_the_json_says() -> None:
    data = json.loads(json.dumps(RECORD.to_json(), allow_nan=False))
    variants = data.pop("variants")
    assert data == {
        "schema": 1, "target": "linux-x64", "platform": "linux-x64",
        "model": {"name": "digits", "version": "1.0", "sha256": "11" * 32},
        "samples_sha256": "22" * 32, "prefer": "size", "device": "pi", "source_accuracy": 0.972,
        "limits": {"max_size": 4_000_000, "max_p50": None, "max_peak_memory": None,
                   "min_sqnr": 20.0, "max_drop": 0.02},
        "metric": "top-1", "chosen": "int8", "warnings": ["slow"],
    }  # fmt: skip
    assert [(row["precision"], row["reason"]) for row in variants] == [
        ("source", "larger than int8: 3.17 MB against 0.83 MB"),
        ("int8", ""),
        ("int4-weights", "could not be made: no MatMul \ud800 \x1b[31m"),
    ]
    assert variants[0]["sqnr_db"] == "inf"


@pytest.mark.parametrize(
    "wrong",
    [{"chosen": "fp16"}, {"chosen": "int4-weights"}, {"chosen": "source"}, {"chosen": None},
     {"reasons": {}}, {"variants": (*VARIANTS, SOURCE)}, {"source_accuracy": math.nan}],
)  # fmt: skip
def test_a_record_that_contradicts_itself_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.RunFailed):
        replace(RECORD, **wrong)


CHANGES: list[tuple[tuple[str | int, ...], Any]] = [
    (("schema",), 2), (("schema",), None), (("target",), 5), (("target",), None),
    (("model",), None), (("model", "sha256"), 1), (("model", "more"), "x"),
    (("limits",), []), (("limits", "max_size"), -1), (("limits", "max_size"), "1"),
    (("limits", "min_sqnr"), "nan"), (("limits", "more"), 1), (("prefer",), "best"),
    (("source_accuracy",), "nan"), (("source_accuracy",), True), (("warnings",), [1]),
    (("warnings",), "slow"), (("chosen",), "int4-weights"), (("chosen",), "fp16"),
    (("chosen",), []), (("more",), 1), (("variants",), {}), (("variants",), [5]),
    (("variants", 0), SOURCE.precision), (("variants", 0, "precision"), "int3"),
    (("variants", 0, "precision"), []), (("variants", 0, "precision"), "int8"),
    (("variants", 0, "state"), "done"), (("variants", 0, "artifact_raw"), -1),
    (("variants", 0, "artifact_raw"), 1.5), (("variants", 0, "artifact_raw"), 10**400),
    (("variants", 0, "p50_ns"), 10**400), (("variants", 0, "p50_ns"), "inf"),
    (("variants", 0, "sqnr_db"), "nan"), (("variants", 0, "reason"), ""),
    (("variants", 0, "reason"), 5), (("variants", 1, "reason"), "it won"),
    (("variants", 0, "more"), 1),
]  # fmt: skip


@pytest.mark.parametrize(("place", "value"), CHANGES, ids=str)
def test_a_changed_value_is_told(place: tuple[str | int, ...], value: Any, tmp_path: Path) -> None:
    data: Any = RECORD.to_json()
    part = data
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    (tmp_path / "a.json").write_text(json.dumps(data))
    assert "Traceback" not in damaged(tmp_path / "a.json")


def _gone(data: Any, place: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    keys = list(data) if isinstance(data, dict) else []
    keys += range(len(data)) if isinstance(data, list) else []
    found = []
    for key in keys:
        found += [(*place, key)] if isinstance(data, dict) else []
        found += _gone(data[key], (*place, key))
    return found


@pytest.mark.parametrize("place", _gone(RECORD.to_json()), ids=str)
def test_a_missing_value_is_told(place: tuple[str | int, ...], tmp_path: Path) -> None:
    data: Any = RECORD.to_json()
    part = data
    for key in place[:-1]:
        part = part[key]
    del part[place[-1]]
    (tmp_path / "a.json").write_text(json.dumps(data))
    damaged(tmp_path / "a.json")


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"[]", b"null", b"5", b"{", b'{"schema": NaN}', b"[" * 100_000,
     b'{"schema": ' + b"1" * 5000 + b"}"],
    ids=["empty", "utf-8", "list", "null", "number", "cut", "nan", "deep", "long number"],
)  # fmt: skip
def test_what_is_no_record_is_told(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    damaged(tmp_path / "a.json")


def test_a_file_of_any_size_and_kind_is_told(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as stream:
        stream.truncate(MAX_RECORD_BYTES + 1)
    assert "larger than" in damaged(tmp_path / "large")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("large")
    for name in ("pipe", "link", "."):
        assert "no regular file" in damaged(tmp_path / name)
    assert "No such file" in damaged(tmp_path / "gone")


@given(st.data())
def test_cut_or_flipped_bytes_are_a_record_or_told(data: st.DataObject) -> None:
    content = bytearray(json.dumps(RECORD.to_json()).encode())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] = data.draw(st.integers(0, 255))
    try:
        text: Any = json.loads(bytes(content))
    except ValueError:
        return
    try:
        read = ChoiceRecord.from_json(text)
    except errors.StoreDamaged:
        return
    assert ChoiceRecord.from_json(read.to_json()) == read


def test_what_cannot_be_written_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(errors.StepFailed, match="cannot write"):
        RECORD.write(tmp_path / "file" / "a.choice.json")
    (tmp_path / "a.choice.json").mkdir()
    with pytest.raises(errors.StepFailed, match="cannot write"):
        RECORD.write(tmp_path / "a.choice.json")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.choice.json", "file"]
