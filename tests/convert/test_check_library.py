"""A built library as an ELF file: what is refused, and what it is said to require."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edge import errors
from edge.convert.check_library import MACHINES, check_library
from edge.step import Facts
from edge.tools.ort_cmake import LINUX
from tests.elf_files import Spec, Symbol, library

GOOD = Spec(
    versions={"libc.so.6": ("GLIBC_2.17", "GLIBC_2.4"), "libstdc++.so.6": ("GLIBCXX_3.4.22",)}
)


def checked(folder: Path, spec: Spec, platform: str = "linux-x64", glibc: str = "") -> Facts:
    path = folder / "libonnxruntime.so.1.21.0"
    path.write_bytes(library(spec))
    facts = check_library.function(folder, library=path, platform=platform, glibc=glibc)
    assert facts is not None
    return facts


def test_what_a_library_needs_of_a_device(tmp_path: Path) -> None:
    assert checked(tmp_path, GOOD) == {"requires": {"glibc": "2.17", "glibcxx": "3.4.22"}}
    assert checked(tmp_path, GOOD, glibc="2.17")["requires"]["glibc"] == "2.17"
    assert checked(tmp_path, replace(GOOD, versions={})) == {"requires": {}}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"stack": 7}, "executable stack"),
        ({"machine": 183}, "it is for aarch64, not for x86_64"),
        ({"page": 1024}, "the target has pages of 4096"),
        ({"symbols": (Symbol("OrtGetApiBase"), Symbol("_ZN3foo"))},
         "it exports more than its C API, _ZN3foo"),
        ({"symbols": ()}, "it exports no function of its C API"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_platform_is_refused(
    tmp_path: Path, change: dict[str, object], said: str
) -> None:
    with pytest.raises(errors.StepFailed, match=r"built libonnxruntime\.so\.1\.21\.0: ") as caught:
        checked(tmp_path, replace(GOOD, **change))  # type: ignore[arg-type]
    assert said in caught.value.message
    assert caught.value.exit_code == 4


def test_all_objections_are_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(
        errors.StepFailed, match=r"executable stack.*; it needs glibc 2\.17, the target has 2\.5"
    ):
        checked(tmp_path, replace(GOOD, stack=7), glibc="2.5")


def test_what_is_no_library_is_the_builds_fault(tmp_path: Path) -> None:
    (tmp_path / "lib.so").write_bytes(b"\x7fELF no library")
    with pytest.raises(errors.StepFailed, match=r"the built lib\.so"):
        check_library.function(
            tmp_path, library=tmp_path / "lib.so", platform="linux-x64", glibc=""
        )


def test_a_promise_that_is_no_version_is_the_targets_fault(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="no version of glibc"):
        checked(tmp_path, GOOD, glibc="new")


def test_every_platform_has_its_machine(tmp_path: Path) -> None:
    assert set(MACHINES) == set(LINUX)
    specs = {
        "linux-x64": GOOD,
        "linux-arm64": replace(GOOD, machine=183),
        "linux-armhf": replace(GOOD, machine=40, bits=32),
    }
    for platform, spec in specs.items():
        assert checked(tmp_path, spec, platform)["requires"]
