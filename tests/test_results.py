"""The database of records: round trips, what is latest, immutability, and files that are none."""

from __future__ import annotations

import math
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import pytest

from edge import errors, parity, process, results, stats
from edge.results import ModelId, Record, Results, Size, Sizes
from edge.stats import Loop, Verdict

LOOPS = (
    Loop((3, 1, 2), wall_ns=10, cpu_ns=9, involuntary_switches=0),
    Loop((5, 4), wall_ns=11, batch=2),
)
EXACT = parity.compare(np.array([1.0, 2.0]), np.array([1.0, 2.0]), name="y")
RECORD = Record(
    id="a" * 32,
    created="2026-01-01T00:00:00.000000+00:00",
    model=ModelId("magika", "3.3", "11" * 32),
    samples_sha256="22" * 32,
    target="linux-x64",
    manifest_sha256="33" * 32,
    device="pi",
    runner="c",
    runtime="onnxruntime 1.32.0",
    facts={"cpu": "Cortex-A76", "cores": [0, 1]},
    before={"temperature": 41.5},
    after={"temperature": None},
    options={"threads": 1},
    sizes=Sizes(Size(10, 5), Size(30, 9), Size(41, 15)),
    load_ns=(100, 110),
    first_ns=(20, 21),
    peak_bytes=None,
    summary=stats.summarize(LOOPS),
    outputs=(EXACT,),
    verdict=Verdict("too few", ("5 runs",)),
)


def fill(path: Path | str, start: int) -> None:
    for number in range(start, start + 10):
        Results(Path(path)).add(another(number), LOOPS)


def at_once(jobs: list[Callable[[], Any]]) -> None:
    threads = [Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def another(number: int, **changes: Any) -> Record:
    created = f"2026-01-01T00:00:{number:02d}.000000+00:00"
    return replace(RECORD, id=f"{number:032x}", created=created, **changes)


@pytest.fixture
def database(tmp_path: Path) -> Results:
    return Results(tmp_path / ".edge" / "results.db")


# --------------------------------------------------------------------------- round trips
def test_a_record_comes_back_as_it_went_in(database: Results) -> None:
    database.add(RECORD, LOOPS)
    assert database.get(RECORD.id) == RECORD
    assert EXACT.sqnr_db == math.inf  # which JSON cannot hold as a number


def test_raw_samples_come_back_in_order(database: Results) -> None:
    database.add(RECORD, LOOPS)
    assert database.loops(RECORD.id) == LOOPS


def test_many_samples_are_small_on_disk(database: Results) -> None:
    samples = tuple(range(100_000, 150_000))
    database.add(RECORD, [Loop(samples, 1)])
    assert database.loops(RECORD.id)[0].samples_ns == samples
    assert database.path.stat().st_size < 4 * len(samples)


def test_facts_that_json_has_no_word_for_are_texts(database: Results) -> None:
    database.add(replace(RECORD, facts={"load": math.nan, "root": Path("/x"), "t": (1,)}), LOOPS)
    assert database.get(RECORD.id).facts == {"load": "nan", "root": "/x", "t": [1]}


def test_ids_and_times_are_new_and_sort() -> None:
    assert results.new_id() != results.new_id()
    assert results.now() <= results.now()
    assert results.now().endswith("+00:00")


# ------------------------------------------------------------------------------- queries
def test_nothing_is_found_and_nothing_made_before_the_first_record(database: Results) -> None:
    assert database.find() == database.latest() == ()
    assert not database.path.exists()
    with pytest.raises(errors.UsageError, match="no record x"):
        database.get("x")
    with pytest.raises(errors.UsageError, match="no record x"):
        database.loops("x")


def test_records_are_found_by_model_target_and_device(database: Results) -> None:
    tablet, phone = another(1, device="tablet"), another(2, target="android")
    model = another(3, model=ModelId("silero", "5", "44" * 32))
    for record in (RECORD, tablet, phone, model):
        database.add(record, LOOPS)
    assert database.find() == (model, phone, tablet, RECORD)
    assert database.find(device="tablet") == (tablet,)
    assert database.find(model="magika", target="linux-x64", device="pi") == (RECORD,)
    assert database.find(limit=1) == (model,)
    assert database.find(model="'; DROP TABLE records; --") == ()


def test_latest_is_one_for_each_thing_that_may_be_compared(database: Results) -> None:
    newer = another(9)
    others = (
        another(1, samples_sha256="55" * 32),
        another(2, model=replace(RECORD.model, sha256="66" * 32)),
        another(3, runner="python"),
        another(4, device="tablet"),
        another(6, options={"threads": 1, "provider": "coreml:ALL"}),
        another(7, options={"threads": 1, "precision": "fp16"}),
    )
    for record in (newer, *others, RECORD):
        database.add(record, LOOPS)
    assert database.latest() == (newer, *reversed(others))
    assert database.latest(device="pi", target="linux-x64", model="silero") == ()


# -------------------------------------------------------------------------- never changed
def test_a_record_is_never_overwritten(database: Results) -> None:
    database.add(RECORD, LOOPS)
    with pytest.raises(errors.UsageError, match="already"):
        database.add(replace(RECORD, device="other"), LOOPS)
    with closing(sqlite3.connect(database.path)) as raw, pytest.raises(sqlite3.IntegrityError):
        raw.execute("UPDATE records SET device = 'other'")
    assert database.get(RECORD.id) == RECORD


def test_two_writers_at_once_both_get_in(tmp_path: Path) -> None:
    path = tmp_path / "results.db"

    at_once([partial(fill, path, start) for start in (0, 20, 40)])
    assert len(Results(path).find()) == 30
    assert [item.name for item in tmp_path.iterdir() if item.name.endswith(".part")] == []


@pytest.mark.process
def test_two_processes_at_once_both_get_in(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    root = Path(__file__).parent.parent
    code = "import sys; from tests import test_results as t; t.fill(sys.argv[1], int(sys.argv[2]))"
    words = [sys.executable, "-c", code, str(path)]
    at_once([partial(process.run, [*words, n], timeout=120, cwd=root) for n in ("0", "20")])
    assert len(Results(path).find()) == 20


def test_the_one_who_comes_second_does_not_replace_the_file(database: Results) -> None:
    database.add(RECORD, LOOPS)
    database._create()
    assert database.find() == (RECORD,)


# ------------------------------------------------------------------------------ damage
@pytest.mark.parametrize("content", [b"no database at all, just text" * 100, b"SQLite format 3\0"])
def test_a_file_that_is_no_database_is_told(database: Results, content: bytes) -> None:
    database.path.parent.mkdir()
    database.path.write_bytes(content)
    for use in (database.find, lambda: database.add(RECORD, LOOPS)):
        with pytest.raises(errors.StoreDamaged) as caught:
            use()
        assert f"move {database.path} away" in caught.value.remedy
    assert database.path.read_bytes() == content


def test_another_programs_database_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    with closing(sqlite3.connect(path)) as foreign:
        foreign.execute("CREATE TABLE records (id)")
    before = path.read_bytes()
    with pytest.raises(errors.StoreDamaged, match="another program"):
        Results(path).add(RECORD, LOOPS)
    assert path.read_bytes() == before


def changed(database: Results, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(database.path)) as raw, raw:
        raw.execute("DROP TRIGGER IF EXISTS never_changed")
        raw.execute(statement, values)


def test_a_newer_schema_is_told(database: Results) -> None:
    database.add(RECORD, LOOPS)
    changed(database, "PRAGMA user_version = 2")
    with pytest.raises(errors.UsageError, match="schema 2, this release reads 1"):
        database.find()


@pytest.mark.parametrize("body", ["{", "[]", "{}", "null", '{"verdict": 1}'])
def test_a_damaged_body_is_told(database: Results, body: str) -> None:
    database.add(RECORD, LOOPS)
    changed(database, "UPDATE records SET body = ?", body)
    with pytest.raises(errors.StoreDamaged, match=RECORD.id):
        database.find()


@pytest.mark.parametrize("packed", [b"", b"rubbish", b"x\x9c\x03\x00\x00\x00\x00\x01"])
def test_damaged_samples_are_told(database: Results, packed: bytes) -> None:
    database.add(RECORD, LOOPS)
    changed(database, "UPDATE records SET samples = ?", packed)
    with pytest.raises(errors.StoreDamaged, match=RECORD.id):
        database.loops(RECORD.id)


def test_samples_that_unpack_without_end_are_refused(database: Results) -> None:
    database.add(RECORD, LOOPS)
    changed(database, "UPDATE records SET loops = ?", '[{"samples_ns": 1000000000000}]')
    with pytest.raises(errors.StoreDamaged, match="wrong number"):
        database.loops(RECORD.id)


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / ".edge").write_text("a file")
    with pytest.raises(errors.RunFailed, match="cannot use") as caught:
        Results(tmp_path / ".edge" / "results.db").add(RECORD, LOOPS)
    assert caught.value.remedy


def test_a_lock_that_stays_is_told(database: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    database.add(RECORD, LOOPS)
    monkeypatch.setattr(results, "BUSY_SECONDS", 0.05)
    with closing(sqlite3.connect(database.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert database.find() == (RECORD,)  # readers do not wait
        with pytest.raises(errors.RunFailed, match="locked"):
            database.add(another(1), LOOPS)
