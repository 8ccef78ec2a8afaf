"""What a device says of itself against what a bundle requires: all that is missing, at once."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors, misfit
from edge.probe import DeviceFacts, Gpu, software
from edge.process import PACKAGE_PARENT
from edge.tools.environment import exact


def manifest(*python: str, **requires: Any) -> dict[str, Any]:
    return {
        "model": {"name": "m", "version": "1"},
        "target": {"name": "t"},
        "runtime": {"requires": requires, "python": list(python)},
    }


def said(what: dict[str, Any], facts: DeviceFacts, python: str = "python3") -> list[str]:
    lacks = [
        *misfit.hardware(what, facts),
        *misfit.packages(what, facts, python),
        *misfit.libraries(what, facts, by_python=bool(python)),
    ]
    assert all(lack.remedy for lack in lacks)
    return [lack.what for lack in lacks]


PI_5 = DeviceFacts(
    os="Linux", arch="aarch64", libc="glibc 2.36", cpu_flags=("asimd", "asimdhp", "fphp")
)
PI_4 = replace(PI_5, cpu_flags=("asimd", "fp"))
NEEDS = {"os": "linux", "arch": "aarch64", "glibc": "2.34", "cpu_flags": "asimd asimdhp"}

H100 = Gpu("NVIDIA H100 80GB HBM3", "580.95.05", "9.0", 85_520_809_984)
GPU_BOX = DeviceFacts(
    os="Linux",
    arch="x86_64",
    libc="glibc 2.35",
    python="3.12.3",
    packages={"onnxruntime-gpu": "1.31.1", "numpy": "2.4.6"},
    python_libraries=("libcudnn.so.9",),
    libraries=("libcublasLt.so.13", "libcuda.so.1"),
    gpus=(H100,),
)
GPU_NEEDS = {
    "os": "linux", "gpu": "nvidia", "driver": "580", "compute_capability": "7.5",
    "libraries": "libcublasLt.so.13 libcudnn.so.9",
}  # fmt: skip
ORT_GPU = "onnxruntime-gpu[cuda,cudnn]==1.31.1"


def test_a_device_that_has_all_of_it() -> None:
    assert said(manifest(**NEEDS), PI_5) == []
    assert said(manifest(), DeviceFacts()) == []
    assert said(manifest(ORT_GPU, **GPU_NEEDS), GPU_BOX) == []


@pytest.mark.parametrize(
    ("facts", "needs", "why"),
    [
        (PI_4, NEEDS, "its CPU lacks asimdhp"),
        (PI_5, {**NEEDS, "arch": "x86_64"}, "its CPU is aarch64, not x86_64"),
        (PI_5, {**NEEDS, "glibc": "2.38"}, "it has glibc 2.36, not glibc 2.38"),
        (replace(PI_5, libc="musl 1.2.3"), NEEDS, "it has musl 1.2.3, not glibc 2.34"),
        (PI_5, {**NEEDS, "os": "windows"}, "it runs Linux, not windows"),
        (replace(PI_5, os="Windows 11 Pro"), NEEDS, "it runs Windows 11 Pro, not linux"),
    ],
)
def test_what_a_device_lacks_is_named(facts: DeviceFacts, needs: dict[str, str], why: str) -> None:
    assert said(manifest(**needs), facts) == [why]


def test_names_of_one_cpu_are_one() -> None:
    windows = DeviceFacts(os="Windows", arch="AMD64")
    assert said(manifest(os="windows", arch="x86_64"), windows) == []
    assert said(manifest(os="android"), PI_5) == []  # apps say so themselves


def test_what_a_device_does_not_say_is_no_lack() -> None:
    assert said(manifest(**NEEDS), DeviceFacts(arch="aarch64")) == []
    silent = replace(GPU_BOX, gpus=(Gpu("Orin"),), libraries=None)
    assert said(manifest(ORT_GPU, **GPU_NEEDS), silent) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpus": ()}, "it has no NVIDIA GPU (there is no nvidia-smi)"),
        ({"gpus": (), "gpu_trouble": "No devices were found"},
         "it has no NVIDIA GPU (nvidia-smi says: No devices were found)"),
        ({"gpus": (replace(H100, driver="535.129.03"),)},
         "its NVIDIA driver 535.129.03 is older than 580"),
        ({"gpus": (Gpu("Tesla P4", "580.95.05", "6.1"),)},
         "no GPU of it has compute capability 7.5: Tesla P4 (6.1)"),
        ({"libraries": ()}, "its loader does not find libcublasLt.so.13"),
        ({"packages": {"onnxruntime-gpu": "1.30.0", "numpy": "2.4.6"}},
         "its Python (python3) lacks onnxruntime-gpu 1.31.1 (it has 1.30.0)"),
        ({"packages": {"numpy": "1.26.4"}}, "its Python (python3) lacks onnxruntime-gpu 1.31.1"),
        ({"packages": None, "python": None}, "it has no Python 3 (python3)"),
        ({"packages": None, "python": "3.7.3"},
         "it has Python 3.7.3, which is too old (python3)"),
        ({"packages": {"onnxruntime-gpu": "1.31.1", "onnxruntime": "1.32.0", "numpy": "2.4.6"}},
         "its Python (python3) has onnxruntime beside onnxruntime-gpu: they overwrite each other"),
    ],
)  # fmt: skip
def test_what_a_gpu_bundle_lacks(changes: dict[str, Any], why: str) -> None:
    assert said(manifest(ORT_GPU, **GPU_NEEDS), replace(GPU_BOX, **changes)) == [why]


def test_one_gpu_that_fits_is_enough() -> None:
    both = replace(GPU_BOX, gpus=(Gpu("Tesla P4", "580.95.05", "6.1"), H100))
    assert said(manifest(ORT_GPU, **GPU_NEEDS), both) == []


def test_an_engine_is_for_the_compute_capabilities_that_it_was_built_for() -> None:
    engine = manifest(gpu="nvidia", compute_capabilities="8.6 8.9")
    assert said(engine, GPU_BOX) == [
        "its engine is for compute capability 8.6 or 8.9, the GPU is NVIDIA H100 80GB HBM3 (9.0)"
    ]
    assert said(engine, replace(GPU_BOX, gpus=(Gpu("NVIDIA L4", "580", "8.9"),))) == []


def test_pips_libraries_count_for_a_python_runner_alone() -> None:
    what = manifest(**GPU_NEEDS)
    assert misfit.libraries(what, GPU_BOX, by_python=True) == []
    (lack,) = misfit.libraries(what, GPU_BOX, by_python=False)
    assert lack.what == "its loader does not find libcudnn.so.9"


def test_names_that_no_probe_looks_for_are_left_to_the_health_run() -> None:
    assert said(manifest("left-pad==1.0", libraries="libleftpad.so.1"), GPU_BOX) == []


@pytest.mark.parametrize(
    ("wanted", "found", "same"),
    [
        ("1.31.1", "1.31.1", True),
        ("1.31", "1.31.0", True),
        ("1.31.1", "1.31.10", False),
        ("1.31.1", "1.31.1+cu13", True),
        ("1.31.1+cu12", "1.31.1+cu13", False),
        ("1.31.1rc1", "1.31.1", False),
        ("2.0", "20", False),
    ],
)
def test_versions_are_held_against_each_other_as_pip_does(
    wanted: str, found: str, same: bool
) -> None:
    facts = replace(GPU_BOX, packages={"numpy": found})
    assert (said(manifest(f"NumPy=={wanted}"), facts) == []) is same


def test_everything_that_is_missing_is_one_error_with_its_remedies() -> None:
    old = replace(
        GPU_BOX,
        arch="aarch64",
        gpus=(Gpu("Tesla P4", "535.54.03", "6.1"),),
        packages={"numpy": "1.26.4"},
        libraries=(),
        python_libraries=(),
    )
    what = manifest(ORT_GPU, arch="x86_64", **GPU_NEEDS)
    lacks = [
        *misfit.hardware(what, old),
        *misfit.packages(what, old, "./env/bin/python"),
        *misfit.libraries(what, old, by_python=True),
    ]
    with pytest.raises(errors.Unavailable) as caught:
        misfit.refuse(lacks, what, "lab")
    assert caught.value.exit_code == 3
    assert caught.value.message == (
        "the device lab cannot run the bundle m.t: its CPU is aarch64, not x86_64; its NVIDIA "
        "driver 535.54.03 is older than 580; no GPU of it has compute capability 7.5: Tesla P4 "
        "(6.1); its Python (./env/bin/python) lacks onnxruntime-gpu 1.31.1; its loader does not "
        "find libcublasLt.so.13, libcudnn.so.9"
    )
    for words in (
        "edge targets",
        "driver 580 or newer",
        "./env/bin/python -m pip install 'onnxruntime-gpu[cuda,cudnn]==1.31.1'",
        "LD_LIBRARY_PATH",
    ):
        assert caught.value.remedy.count(words) == 1


def test_an_updated_driver_wants_a_restart() -> None:
    trouble = "Failed to initialize NVML: Driver/library version mismatch"
    (lack,) = misfit.hardware(manifest(gpu="nvidia"), DeviceFacts(gpu_trouble=trouble))
    assert "restart the device" in lack.remedy


def test_nothing_missing_is_no_error() -> None:
    misfit.refuse([], manifest(), "lab")


def test_a_requirement_that_pip_would_take_for_something_else_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="no exact requirement"):
        misfit.packages(manifest("--index-url=https://x"), GPU_BOX, "python3")


@given(st.dictionaries(st.sampled_from([*GPU_NEEDS, "arch", "glibc", "cpu_flags"]), st.text()))
def test_requirements_of_any_text_raise_nothing(requires: dict[str, str]) -> None:
    misfit.refuse([], manifest(), "lab")
    for facts in (GPU_BOX, PI_5):
        misfit.hardware(manifest(**requires), facts)
        misfit.libraries(manifest(**requires), facts, by_python=True)


def test_what_the_targets_require_is_looked_for() -> None:
    """A package or library that no probe looks for would be missed on every device."""
    for path in sorted((PACKAGE_PARENT / "targets").glob("*.toml")):
        target = tomllib.loads(path.read_text())
        for each in target["runtime"].get("python", ()):
            found = exact(each)
            assert found, each
            assert found[0] in software.PACKAGES, f"{path.name}: {each}"
        for library in target.get("requires", {}).get("libraries", "").split():
            assert software.is_known(library) or library.endswith(".dll"), f"{path.name}: {library}"


def test_the_python_runner_needs_numpy_of_any_release() -> None:
    without = replace(GPU_BOX, packages={"onnxruntime-gpu": "1.31.1"})
    (lack,) = said(manifest("onnxruntime-gpu==1.31.1"), without)
    assert "lacks numpy" in lack
    assert said(manifest("onnxruntime-gpu==1.31.1"), GPU_BOX) == []
