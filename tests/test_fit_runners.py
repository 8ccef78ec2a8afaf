"""Which runner a device starts: chosen by kind and system, refused before anything is made."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edge import deploy, errors, field, probe, runners
from edge.bench import BenchOptions
from edge.devices import DeviceSettings, open_device
from edge.probe import DeviceFacts, Gpu
from tests.test_misfit import GPU_BOX, GPU_NEEDS, ORT_GPU
from tests.test_probe import fake_smi

LOCAL = DeviceSettings("here")
LAB = DeviceSettings("lab", kind="ssh")
C, EXE, PYTHON, NODE = (each.file for each in runners.RUNNERS)


def manifest(*files: str, python: Sequence[str] = (), **requires: str) -> dict[str, Any]:
    return {
        "model": {"name": "m", "version": "1"},
        "target": {"name": "cuda"},
        "runtime": {"requires": requires, "python": list(python)},
        "provider": "CUDAExecutionProvider",
        "tolerance": {},
        "files": [{"path": path} for path in files],
    }


@pytest.mark.parametrize(
    ("files", "settings", "kind", "file"),
    [
        ((C, PYTHON), LAB, "", C),
        ((C, PYTHON), LAB, "python", PYTHON),
        ((EXE, PYTHON), replace(LAB, os="windows"), "", EXE),
        ((C, EXE, PYTHON), replace(LAB, os="windows"), "c", EXE),
        ((C, EXE), LAB, "", C),
        ((EXE,), LAB, "", EXE),  # its requirements refuse it
        ((NODE,), LAB, "", NODE),
    ],
)
def test_the_runner_by_kind_and_system(
    files: tuple[str, ...], settings: DeviceSettings, kind: str, file: str
) -> None:
    assert runners.choose(manifest(*files), settings, kind).file == file


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (LAB, ("python3",)),
        (replace(LAB, python="env/bin/python"), ("./env/bin/python",)),
        (LOCAL, (sys.executable,)),
        (replace(LOCAL, python="/opt/env/bin/python"), ("/opt/env/bin/python",)),
        (replace(LAB, os="windows"), ("python",)),
    ],
)
def test_the_words_of_a_python_runner(settings: DeviceSettings, words: tuple[str, ...]) -> None:
    assert runners.choose(manifest(PYTHON), settings, "").words == words


def test_a_runner_that_the_bundle_lacks_is_an_error() -> None:
    with pytest.raises(errors.UsageError, match="has no runner node; it has: c, python"):
        runners.choose(manifest(C, PYTHON), LAB, "node")


@pytest.mark.parametrize("kind", ["", "c"])
@pytest.mark.parametrize(
    ("what", "said", "remedy"),
    [
        (
            manifest("app/README.md") | {"runtime": {"coreml": {"ways": ["coreml:ALL"]}}},
            "m.cuda is for an app: there is no runner to start",
            "edge bench cuda --device MAC brings it",
        ),
        (
            manifest("runner/options.tsv") | {"artifact": "model.mlpackage"},
            "m.cuda is a package for an app of yours",
            "edge bench ios --device MAC measures the package of the target ios",
        ),
        (manifest("app/README.md"), "m.cuda is for an app", "run from the bundle's app folder"),
        (manifest("model.onnx"), "m.cuda is without runners", "docs/runner-protocol.md"),
    ],
)
def test_a_bundle_without_runners_says_what_it_is_for(
    what: dict[str, Any], said: str, remedy: str, kind: str
) -> None:
    with pytest.raises(errors.UsageError, match=said) as caught:
        runners.choose(what, LAB, kind)
    assert remedy in caught.value.remedy
    assert "--runner" not in caught.value.remedy


# ------------------------------------------------------------------- environments of runners
NOTHING = DeviceFacts(os="Linux", arch="x86_64", python="3.11.2", packages={}, libraries=())


class Machine:
    """A device that says ``facts``, and ``own`` of a Python that is none of its own."""

    def __init__(self, settings: DeviceSettings, facts: DeviceFacts, own: DeviceFacts) -> None:
        self.settings, self.facts, self.own = settings, facts, own
        self.made: list[Sequence[str]] = []

    def probe(self, _device: Any, *, python: str = "") -> DeviceFacts:
        return self.own if python else self.facts

    def environment(self, _store: Any, wanted: Sequence[str], *, needed: Any) -> Any:
        assert list(needed) == ["numpy"]  # a runner imports nothing else of what steps do
        self.made.append(wanted)
        return SimpleNamespace(python=Path("/store/env/bin/python"))


def ready(
    patch: pytest.MonkeyPatch, machine: Machine, what: dict[str, Any], kind: str = ""
) -> runners.Ready:
    patch.setattr(probe, "probe", machine.probe)
    patch.setattr(runners, "environment", machine.environment)
    return runners.ready(machine, what, kind)  # type: ignore[arg-type]


CUDA = manifest(PYTHON, python=[ORT_GPU], **GPU_NEEDS)


def test_this_interpreter_is_taken_where_it_has_the_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(LOCAL, GPU_BOX, NOTHING)
    found = ready(monkeypatch, machine, CUDA)
    assert found.runner.words == (sys.executable,)
    assert (found.facts, machine.made) == (GPU_BOX, [])


def test_else_an_environment_is_made_and_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(LOCAL, replace(GPU_BOX, packages={}, libraries=()), GPU_BOX)
    found = ready(monkeypatch, machine, CUDA)
    assert found.runner.words == ("/store/env/bin/python",)
    assert (found.facts, machine.made) == (GPU_BOX, [[ORT_GPU]])


def test_what_the_environment_does_not_bring_is_still_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(LOCAL, replace(GPU_BOX, packages={}), replace(GPU_BOX, libraries=()))
    with pytest.raises(errors.Unavailable, match=r"does not find libcublasLt\.so\.13"):
        ready(monkeypatch, machine, CUDA)


def test_nothing_is_installed_on_a_machine_that_cannot_run_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(LOCAL, NOTHING, NOTHING)
    with pytest.raises(errors.Unavailable, match="no NVIDIA GPU") as caught:
        ready(monkeypatch, machine, CUDA)
    assert machine.made == []
    assert "lacks onnxruntime-gpu 1.31.1" in caught.value.message
    assert "installed here once the rest is there" in caught.value.remedy


@pytest.mark.parametrize("settings", [LAB, replace(LOCAL, python="/opt/env/bin/python")])
def test_a_python_that_is_the_users_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, settings: DeviceSettings
) -> None:
    machine = Machine(settings, replace(GPU_BOX, packages={}), GPU_BOX)
    with pytest.raises(errors.Unavailable, match="lacks onnxruntime-gpu") as caught:
        ready(monkeypatch, machine, CUDA)
    assert machine.made == []
    assert f"{probe.python_of(settings)} -m pip install" in caught.value.remedy


def test_a_runner_that_needs_no_packages_is_not_asked_for_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Neither a C runner beside the Python one, nor a Python runner of a bundle without any."""
    what = manifest(C, PYTHON, python=[ORT_GPU])
    assert ready(monkeypatch, Machine(LAB, NOTHING, NOTHING), what).runner.kind == "c"
    plain = Machine(LOCAL, DeviceFacts(), DeviceFacts())
    assert ready(monkeypatch, plain, manifest(PYTHON)).runner.words == (sys.executable,)
    assert plain.made == []


# ------------------------------------------------------------------------- on this machine
def refused(tmp_path: Path, what: dict[str, Any]) -> errors.Unavailable:
    """What ``edge bench`` says of a bundle on this machine; nothing is brought or installed."""
    bundle = field.Bundle(tmp_path / "nowhere", what, "0" * 64)
    folder = tmp_path / "device"
    with (
        open_device(DeviceSettings("here", folder=str(folder))) as device,
        pytest.raises(errors.Unavailable) as caught,
    ):
        field.measure(device, bundle, BenchOptions())
    assert not folder.exists()
    assert caught.value.exit_code == 3
    return caught.value


@pytest.mark.process
def test_a_host_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver."
    fake_smi(tmp_path / "bin", f'#!/bin/sh\necho "{failed}"\nexit 9\n')
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("EDGE_STORE", str(tmp_path / "store"))
    found = refused(tmp_path, CUDA)
    assert f"it has no NVIDIA GPU (nvidia-smi says: {failed})" in found.message
    assert "lacks onnxruntime-gpu 1.31.1" in found.message
    assert "install NVIDIA's driver 580 or newer" in found.remedy
    assert not (tmp_path / "store").exists()


@pytest.mark.process
def test_a_host_whose_gpu_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Driver, compute capability and a library, in one error."""
    fake_smi(tmp_path / "bin", "#!/bin/sh\necho 'Tesla P4, 470.57.02, 6.1, 7611'\n")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    monkeypatch.setenv("EDGE_STORE", str(tmp_path / "store"))
    what = manifest(PYTHON, python=[ORT_GPU], **{**GPU_NEEDS, "libraries": "libcudnn.so.99"})
    found = refused(tmp_path, what)
    for words in (
        "driver 470.57.02 is older than 580",
        "compute capability 7.5: Tesla P4 (6.1)",
        "does not find libcudnn.so.99",
    ):
        assert found.message.count(words) == 1
    assert not (tmp_path / "store").exists()


# ------------------------------------------------------------------------- what bundles ask
def test_what_a_bundle_says_of_its_measurement() -> None:
    what = manifest() | {"placement": {"least_nodes": 0.9, "least_time": 0.8}, "cache": True}
    found = field.bench_options(what, replace(LAB, folder="edge"), threads=2)
    assert (found.provider, found.threads) == ("CUDAExecutionProvider", 2)
    assert (found.least_nodes, found.least_time, found.cache) == (0.9, 0.8, "./edge/cache")


def test_a_bundle_that_says_nothing_of_it() -> None:
    found = field.bench_options(manifest(), LAB)
    assert (found.least_nodes, found.least_time, found.cache) == (1.0, 1.0, "")


def test_the_folder_for_compiled_models_is_made_before_the_runner_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    done: list[str] = []
    sent = SimpleNamespace(sent_bytes=0, total_bytes=0, release_dir="edge/bundles/x")
    device: Any = SimpleNamespace(settings=LAB, make_folder=done.append)
    monkeypatch.setattr(probe, "probe", lambda *_a, **_k: GPU_BOX)

    def brought(*_arguments: Any, **_options: Any) -> Any:
        done.append("deployed")
        return sent

    monkeypatch.setattr(deploy, "deploy", brought)
    what = manifest(PYTHON, python=[ORT_GPU], **GPU_NEEDS) | {"cache": True}
    bundle = field.Bundle(tmp_path, what, "0" * 64)
    _, release, facts = field.install(device, bundle, field.bench_options(what, LAB))
    assert done == ["./edgewright/cache", "deployed"]
    assert (release.runner, facts) == (("python3", f"edge/bundles/x/{PYTHON}"), GPU_BOX)
    done.clear()
    monkeypatch.setattr(probe, "probe", lambda *_a, **_k: NOTHING)
    with pytest.raises(errors.Unavailable):
        field.install(device, bundle, field.bench_options(what, LAB))
    assert done == []


# ------------------------------------------------------------------------ the list of devices
@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (GPU_BOX, "NVIDIA H100 80GB HBM3 (driver 580.95.05)"),
        (replace(GPU_BOX, gpus=GPU_BOX.gpus * 8), "8 x NVIDIA H100 80GB HBM3 (driver 580.95.05)"),
        (replace(GPU_BOX, gpus=(Gpu("Jetson AGX Orin", "", "8.7"),)), ", Jetson AGX Orin"),
        (DeviceFacts(gpu_trouble="No devices were found"), ", no GPU: No devices were found"),
        (DeviceFacts(os="Windows", arch="AMD64"), "Windows, AMD64, 0 cores"),
    ],
)
def test_devices_show_their_gpus(facts: DeviceFacts, words: str) -> None:
    assert words in field._detail(facts)
