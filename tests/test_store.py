"""The store: whole results or none, also when two make one or a build is killed."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors, process, store
from edge.store import File, Store

INGREDIENTS: dict[str, Any] = {
    "step": "double", "version": 1, "parameters": {"n": 1}, "inputs": {}, "tools": {},
}  # fmt: skip


@pytest.fixture
def small(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def write_one(out: Path) -> dict[str, Any]:
    (out / "sub").mkdir()
    (out / "sub" / "a.bin").write_bytes(b"abc")
    return {"answer": 42}


def test_a_result_has_files_with_hashes_and_facts(small: Store) -> None:
    result = small.make(INGREDIENTS, write_one)
    file = result.files["sub/a.bin"]
    assert file.path.read_bytes() == b"abc"
    assert file.sha256 == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file.size == 3
    assert result.facts == {"answer": 42}


def test_a_stored_result_is_not_made_again(small: Store) -> None:
    small.make(INGREDIENTS, write_one)
    again = small.make(INGREDIENTS, lambda _out: pytest.fail("made again"))
    assert again.facts == {"answer": 42}


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("version", 2),
        ("parameters", {"n": 2}),
        ("inputs", {"model": {"sha256": "0" * 64}}),
        ("tools", {"onnx": "1.23.2"}),
    ],
)
def test_every_ingredient_changes_the_key(part: str, value: object) -> None:
    assert store.key_of({**INGREDIENTS, part: value}) != store.key_of(INGREDIENTS)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.text(), JSON, max_size=5))
def test_the_key_does_not_depend_on_the_order_of_keys(value: dict[str, Any]) -> None:
    reordered = dict(reversed(list(value.items())))
    assert store.key_of(reordered) == store.key_of(value)


def test_the_name_of_an_input_is_not_in_its_identity() -> None:
    assert File(Path("a"), "f" * 64, 3).identity() == File(Path("b"), "f" * 64, 3).identity()


def test_external_data_is_in_the_identity() -> None:
    plain = File(Path("a"), "f" * 64, 3)
    with_data = File(Path("a"), "f" * 64, 3, (("a.data", "e" * 64),))
    assert plain.identity() != with_data.identity()


def test_an_index_stands_for_all_that_it_lists(small: Store) -> None:
    def write(value: bytes) -> File:
        def maker(out: Path) -> None:
            (out / "index").write_bytes(b"the same")
            (out / "tensor.bin").write_bytes(value)

        changed = {**INGREDIENTS, "parameters": {"value": value.hex()}}
        return small.make(changed, maker).tree("index")

    assert write(b"a").sha256 == write(b"b").sha256
    assert write(b"a").identity() != write(b"b").identity()


def test_a_failing_maker_leaves_nothing(small: Store) -> None:
    def fail(out: Path) -> None:
        (out / "half").write_bytes(b"x")
        raise errors.StepFailed("no")

    with pytest.raises(errors.StepFailed):
        small.make(INGREDIENTS, fail)
    assert small.find(INGREDIENTS) is None
    assert list((small.root / "tmp").iterdir()) == []


def test_a_damaged_result_is_said_and_not_used(small: Store) -> None:
    result = small.make(INGREDIENTS, write_one)
    result.files["sub/a.bin"].path.write_bytes(b"longer than before")
    with pytest.raises(errors.StoreDamaged, match=r"sub/a\.bin"):
        small.find(INGREDIENTS)


@pytest.mark.parametrize("record", ["{}", "[]", "null", '{"files": {"a": {}}, "facts": {}}', "x"])
def test_a_record_that_is_none_is_damage_and_is_made_again(small: Store, record: str) -> None:
    made = small.make(INGREDIENTS, write_one)
    (made.folder / "result.json").write_text(record)
    with pytest.raises(errors.StoreDamaged):
        small.find(INGREDIENTS)
    assert small.make(INGREDIENTS, write_one).facts == {"answer": 42}


# -------------------------------------------------------------------- results by their step
def made(small: Store, **changes: Any) -> str:
    return small.make({**INGREDIENTS, **changes}, write_one).key


def test_a_result_says_what_it_was_made_of(small: Store) -> None:
    made(small, parameters={"n": (1, 2)})
    (found,) = small.made_by("double")
    assert found.ingredients == {**INGREDIENTS, "parameters": {"n": [1, 2]}}
    assert found.facts == {"answer": 42}
    assert found.files["sub/a.bin"].size == 3


def test_results_of_a_step_come_by_their_keys(small: Store) -> None:
    keys = [made(small, parameters={"n": n}) for n in range(8)]
    made(small, step="another")
    assert [result.key for result in small.made_by("double")] == sorted(keys)
    assert len(list(small.made_by("another"))) == 1
    assert list(small.made_by("none")) == []


def record_of(small: Store) -> Path:
    (record,) = (small.root / "objects").glob("*/*/result.json")
    return record


def test_results_of_older_stores_are_left_out_and_still_found(small: Store) -> None:
    made(small)
    record = record_of(small)
    content = json.loads(record.read_text())
    del content["ingredients"]
    record.write_text(json.dumps(content))
    assert list(small.made_by("double")) == []
    assert small.find(INGREDIENTS) is not None


@pytest.mark.parametrize(
    "text",
    ["", "x", "[]", "null", '{"ingredients": []}', '{"ingredients": {"step": "double"}}',
     "[" * 100_000, '{"ingredients": {"step": ["double"]}}'],
)  # fmt: skip
def test_damaged_records_are_left_out(small: Store, text: str) -> None:
    made(small)
    record_of(small).write_text(text)
    assert list(small.made_by("double")) == []


def test_results_whose_files_are_damaged_are_left_out(small: Store) -> None:
    made(small)
    (record_of(small).parent / "files" / "sub" / "a.bin").write_bytes(b"longer than before")
    assert list(small.made_by("double")) == []


def test_a_result_that_says_it_was_made_of_something_else_is_left_out(small: Store) -> None:
    made(small)
    other = record_of(small)
    made(small, parameters={"n": 2})
    (record,) = set((small.root / "objects").glob("*/*/result.json")) - {other}
    record.write_text(other.read_text())
    assert [result.folder for result in small.made_by("double")] == [other.parent]


def test_a_link_in_a_result_is_refused(small: Store) -> None:
    def link(out: Path) -> None:
        (out / "passwd").symlink_to("/etc/passwd")

    with pytest.raises(errors.StepFailed, match="link"):
        small.make(INGREDIENTS, link)


def test_two_threads_make_a_result_once(small: Store) -> None:
    made = []

    def slow(out: Path) -> None:
        made.append(threading.get_ident())
        time.sleep(0.05)
        (out / "x").write_bytes(b"x")

    threads = [threading.Thread(target=small.make, args=(INGREDIENTS, slow)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1


KILLED = """
import sys, time
from pathlib import Path
from edge.store import Store
def slow(out):
    (out / "half").write_bytes(b"x")
    print("started", flush=True)
    time.sleep(60)
Store(Path(sys.argv[1])).make({"step": "double", "version": 1, "parameters": {"n": 1},
                               "inputs": {}, "tools": {}}, slow)
"""


@pytest.mark.process
def test_a_killed_build_leaves_a_store_that_works(small: Store) -> None:
    import subprocess  # noqa: TID251 - the process must be killed, not waited for

    words = [sys.executable, "-c", KILLED, str(small.root)]
    environment = {**os.environ, "PYTHONPATH": str(process.PACKAGE_PARENT)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.send_signal(signal.SIGKILL)
    assert small.find(INGREDIENTS) is None
    assert len(list((small.root / "tmp").iterdir())) == 1
    again = Store(small.root)
    assert list((small.root / "tmp").iterdir()) == []
    again.make(INGREDIENTS, write_one)


def test_opening_the_store_leaves_work_under_way_alone(small: Store) -> None:
    def maker(out: Path) -> None:
        Store(small.root)
        assert out.is_dir()
        (out / "x").write_bytes(b"x")

    assert small.make(INGREDIENTS, maker).files["x"].size == 1


def test_a_blob_is_fetched_once_and_checked(small: Store) -> None:
    sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"

    def bring(folder: Path) -> Path:
        (folder / "download").write_bytes(b"abc")
        return folder / "download"

    assert small.add_blob(sha256, bring).path.read_bytes() == b"abc"
    assert small.add_blob(sha256, lambda _f: pytest.fail("fetched again")).size == 3


def test_a_blob_with_another_content_is_refused(small: Store) -> None:
    def bring(folder: Path) -> Path:
        (folder / "download").write_bytes(b"evil")
        return folder / "download"

    with pytest.raises(errors.FetchFailed, match="the pin says"):
        small.add_blob("0" * 64, bring)
    assert small.blob("0" * 64) is None


def test_a_store_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(errors.UsageError, match="store"):
        Store(tmp_path / "file" / "store")
