"""The size report of a reduced runtime library against the full one."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge import errors
from edge.convert.runtime_sizes import REPORT, runtime_sizes
from edge.job import Steps
from edge.store import File, Store, hash_file
from tests.elf_files import Spec, library

REDUCED = Spec(versions={"libc.so.6": ("GLIBC_2.17",), "libstdc++.so.6": ("GLIBCXX_3.4.22",)})
# What repeats only after 8 MB is found by a window that xz -6 does not have.
NOISE = random.Random(1).randbytes(20_000)
FAR = NOISE + bytes(9_000_000) + NOISE
FULL = replace(REDUCED, sections={**REDUCED.sections, ".rodata": (1, 2, FAR)})


def write(folder: Path, **specs: Spec) -> dict[str, Path]:
    folder.mkdir(exist_ok=True)
    for name, spec in specs.items():
        (folder / f"{name}.so").write_bytes(library(spec))
    return {name: folder / f"{name}.so" for name in specs}


def report(tmp_path: Path, **specs: Spec) -> dict[str, Any]:
    (tmp_path / "out").mkdir(exist_ok=True)
    facts = runtime_sizes.function(tmp_path / "out", **write(tmp_path / "in", **specs))
    assert facts is not None
    return facts


def packed(data: bytes) -> tuple[int, int]:
    sink = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, sink, mtime=0) as packer:
        packer.write(data)
    return len(sink.getvalue()), len(lzma.compress(data, preset=9))


def test_every_size_is_that_of_the_file(tmp_path: Path) -> None:
    specs = {"library": replace(REDUCED, symtab=True), "stripped": REDUCED, "full": FULL}
    facts = report(tmp_path, **specs)
    raw, small, large = (library(spec) for spec in specs.values())
    reduced, full = facts["reduced"], facts["full"]
    assert (reduced["raw"], reduced["stripped"]) == (len(raw), len(small))
    assert len(raw) > len(small)
    assert (reduced["gzip"], reduced["xz"]) == packed(small)
    assert full["stripped"] == len(large)
    assert (full["gzip"], full["xz"]) == packed(large)
    assert sum(reduced["sections"].values()) == len(small)
    assert full["sections"]["rodata"] == len(FAR)
    assert facts["ratio"] == {
        name: round(full[name] / reduced[name], 2) for name in ("stripped", "gzip", "xz")
    }


def test_what_users_must_know_of_the_library(tmp_path: Path) -> None:
    assert report(tmp_path, library=REDUCED, stripped=REDUCED)["library"] == {
        "machine": "x86_64",
        "needed": ["libstdc++.so.6", "libc.so.6"],
        "alignment": 4096,
        "executable_stack": False,
        "exported": 1,
        "glibc": "2.17",
        "glibcxx": "3.4.22",
        "cxxabi": "",
        "gcc": "",
    }


@pytest.mark.parametrize("name", ["one", "a much longer place"])
def test_the_report_is_the_facts_and_nothing_of_this_machine(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    facts = report(tmp_path / name, library=REDUCED, stripped=REDUCED, full=FULL)
    (written,) = (tmp_path / name / "out").iterdir()
    text = written.read_bytes()
    assert written.name == REPORT == "size-report.json"
    assert text == (json.dumps(facts, indent=2, sort_keys=True) + "\n").encode()
    assert name.encode() not in text
    assert str(tmp_path).encode() not in text


def test_without_a_full_library_nothing_is_compared(tmp_path: Path) -> None:
    assert sorted(report(tmp_path, library=REDUCED, stripped=REDUCED)) == ["library", "reduced"]


OTHER = replace(REDUCED, build_id=b"another build")
ARM = replace(REDUCED, machine=40, bits=32)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"stripped": replace(REDUCED, symtab=True)}, "the stripped library still has its symbols"),
        ({"stripped": OTHER}, "none of the library: build_id differs"),
        ({"stripped": ARM}, "none of the library: machine differs"),
        ({"full": ARM}, "the full library is for arm, the reduced one for x86_64"),
        ({"full": replace(FULL, symtab=True)}, "the full library still has its symbols"),
    ],
)
def test_files_that_do_not_belong_together_are_refused(
    tmp_path: Path, changed: dict[str, Spec], message: str
) -> None:
    specs = {"library": REDUCED, "stripped": REDUCED, "full": FULL, **changed}
    with pytest.raises(errors.UsageError, match=message) as caught:
        report(tmp_path, **specs)
    assert caught.value.remedy
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("name", ["library", "stripped", "full"])
def test_a_file_that_is_no_library_is_named(tmp_path: Path, name: str) -> None:
    paths = write(tmp_path, library=REDUCED, stripped=REDUCED, full=FULL)
    paths[name].write_text("hello")
    with pytest.raises(errors.UsageError, match=rf"^the ({name} )?library is no ELF file"):
        runtime_sizes.function(tmp_path, **paths)


def test_python_without_lzma(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lzma", None)
    with pytest.raises(errors.ToolMissing, match="built without lzma"):
        report(tmp_path, library=REDUCED, stripped=REDUCED)


def test_through_the_store_with_and_without_the_full_one(tmp_path: Path, store: Store) -> None:
    steps = Steps(store, lambda _: None)
    files = {
        name: File(path, *hash_file(path))
        for name, path in write(tmp_path, library=REDUCED, stripped=REDUCED, full=FULL).items()
    }
    whole = steps.run(runtime_sizes, files)
    alone = steps.run(runtime_sizes, {**files, "full": None})
    assert whole.key != alone.key
    assert steps.run(runtime_sizes, files).key == whole.key
    assert len(steps.made) == 2
    assert ("ratio" in whole.facts, "ratio" in alone.facts) == (True, False)
    assert list(whole.files) == [REPORT]
    assert set(whole.ingredients["tools"]) == {"zlib", "pyelftools"}
