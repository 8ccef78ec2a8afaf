"""Native plans: the commands, and making them on a device that is this machine."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from edge import errors, process
from edge.convert import profiles
from edge.convert.tensorrt_plan import COMMANDS, plan_files, tensorrt_plan
from edge.devices import Device, DeviceSettings, open_device
from edge.model import Port
from edge.tools import remote_build, remote_jobs
from edge.tools import tensorrt_plan as plans
from edge.tools.tensorrt_host import Host, survey
from edge.tools.tensorrt_plan import ENGINE, PlanRequest
from tests import models
from tests.rtx import need_rtx
from tests.tools import fake_trtexec

SCRIPT = process.PACKAGE_PARENT / "templates" / "tensorrt" / "build_plan.py"
SAID = {"builder": "trtexec", "version": "10.16.1.11", "options": {}}
PROFILES = profiles.derive(
    [Port("x", "float32", ("batch", 4))], [{"x": (2, 4)}], {"batch": [1, 2, 8]}
)
ENTRIES = [each.to_json() for each in PROFILES]


def request(**changes: Any) -> PlanRequest:
    return PlanRequest.of(ENTRIES, {**SAID, **changes})


# ------------------------------------------------------------------------------- commands
def test_the_line_for_trtexec() -> None:
    assert plans.trtexec(request(), "trtexec", "m.onnx", "t.cache") == (
        "trtexec",
        "--onnx=m.onnx",
        "--saveEngine=engine.plan",
        "--stronglyTyped",
        "--noTF32",
        "--minShapes=x:1x4",
        "--optShapes=x:2x4",
        "--maxShapes=x:8x4",
        "--timingCacheFile=t.cache",
        "--skipInference",
    )


def test_a_static_model_has_no_shapes() -> None:
    static = profiles.derive([Port("x", "float32", (2, 4))], [{"x": (2, 4)}], {})
    made = PlanRequest.of([each.to_json() for each in static], SAID)
    assert not [w for w in plans.trtexec(made, "trtexec", "m", "t") if "Shapes" in w]
    assert made.to_json("trtexec", "m", "t")["profiles"] == []


def test_options_of_the_target() -> None:
    options = {
        "trt_builder_optimization_level": "5",
        "trt_engine_hw_compatible": "1",
        "trt_max_workspace_size": "1073741824",
        "trt_sparsity_enable": "0",
    }
    words = plans.trtexec(request(options=options), "trtexec", "m", "t")
    assert "--builderOptimizationLevel=5" in words
    assert "--hardwareCompatibilityLevel=ampere+" in words
    assert "--memPoolSize=workspace:1073741824B" in words
    assert "" not in words
    assert not [word for word in words if "sparsity" in word]


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("trt_builder_optimisation_level", "3", "no such option"),
        ("trt_fp16_enable", "1", "no such option"),
        ("trt_builder_optimization_level", "6", "cannot be '6'"),
        ("trt_max_workspace_size", "1 --verbose", "cannot be"),
        ("trt_sparsity_enable", "²", "cannot be"),
    ],
)
def test_options_that_are_none(name: str, value: str, word: str) -> None:
    with pytest.raises(errors.ConfigError, match=word):
        request(options={name: value})


def test_the_files_of_a_plan_for_a_person(tmp_path: Path) -> None:
    (tmp_path / "profiles.json").write_text(json.dumps(ENTRIES))
    (tmp_path / "out").mkdir()
    facts = plan_files.function(
        tmp_path / "out", script=SCRIPT, profiles=tmp_path / "profiles.json", request=SAID
    )
    assert facts is not None
    lines = (tmp_path / "out" / COMMANDS).read_text().splitlines()
    assert facts["commands"] == lines
    words = shlex.split(lines[1])
    assert words == json.loads((tmp_path / "out" / "request.json").read_text())["command"]
    assert "--onnx=../model.onnx" in words
    assert (tmp_path / "out" / "build_plan.py").read_bytes() == SCRIPT.read_bytes()


# --------------------------------------------------------------------------- on a device
@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This machine with a GPU and TensorRT that are not there."""
    monkeypatch.setattr(remote_jobs, "POLL", (0.05, 0.2))
    path = fake_trtexec.programs(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{path}{os.pathsep}{os.environ['PATH']}")
    models.save(models.mlp(), tmp_path / "model.onnx")
    return tmp_path


@pytest.fixture
def device(host: Path) -> Iterator[Device]:
    with open_device(DeviceSettings("gpu-box", folder=str(host / "device"))) as made:
        yield made


@pytest.fixture
def rtx() -> None:
    need_rtx()


def built(device: Device, host: Path, name: str = "scratch", **changes: Any) -> Path:
    """The plan; nothing but the timing cache stays on the device."""
    made = request(**changes)
    said = survey(remote_build.ask_of(device), made.builder, sys.executable)
    assert said.gpu
    (host / name).mkdir()
    given = (SCRIPT, host / name, host / "log")
    try:
        return plans.build_plan(device, host / "model.onnx", made, said, given)
    finally:
        assert not list((host / "device").glob("builds/*"))


@pytest.mark.process
def test_a_plan_by_trtexec(device: Device, host: Path) -> None:
    said = json.loads(built(device, host).read_text())
    assert said["model"] == (host / "model.onnx").stat().st_size
    assert "--maxShapes=x:8x4" in said["words"]
    assert said["cache"] == 0


@pytest.mark.process
def test_the_timing_cache_is_kept_for_this_gpu_and_release(device: Device, host: Path) -> None:
    built(device, host, "one")
    assert json.loads(built(device, host, "two").read_text())["cache"] == 1
    (kept,) = (host / "device" / "tensorrt").iterdir()
    assert kept.name == "10.16.1-8.6-NVIDIA_RTX_A4000.timing"


@pytest.mark.process
def test_the_builders_own_words(
    device: Device, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TRTEXEC", "refuses")
    with pytest.raises(errors.ModelRefused) as caught:
        built(device, host)
    assert "gpu-box cannot build the model: [graphShapeAnalyzer" in caught.value.message
    assert str(host / "log") in caught.value.remedy


@pytest.mark.process
def test_success_without_a_plan_is_a_failure(
    device: Device, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_TRTEXEC", "nothing")
    with pytest.raises(errors.StepFailed, match="ended with no plan"):
        built(device, host)


@pytest.mark.process
@pytest.mark.usefixtures("rtx")
def test_a_plan_by_the_python_package(
    device: Device, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script's calls, by TensorRT-RTX under TensorRT's name."""
    monkeypatch.setenv("PYTHONPATH", str(fake_trtexec.package(host / "package")))
    options = {"trt_max_workspace_size": str(1 << 28)}
    plan = built(device, host, builder="python", options=options)
    assert plan.read_bytes().startswith(b"vtrt")


@pytest.mark.process
@pytest.mark.usefixtures("rtx")
def test_the_python_packages_own_words(
    device: Device, host: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(fake_trtexec.package(host / "package")))
    model = onnx.load(host / "model.onnx")
    model.graph.node[0].op_type = "NoSuchOperator"
    onnx.save(model, host / "model.onnx")
    with pytest.raises(errors.ModelRefused, match="cannot build the model"):
        built(device, host, builder="python")


@pytest.mark.process
def test_the_step_brings_the_plan(host: Path) -> None:
    settings = DeviceSettings("gpu-box", folder=str(host / "device"))
    (host / "profiles.json").write_text(json.dumps(ENTRIES))
    (host / "out").mkdir()
    said = Host("NVIDIA RTX A4000", "8.6", "", "10.16.1", "trtexec").versions()
    facts = tensorrt_plan.function(
        host / "out",
        model=host / "model.onnx",
        script=SCRIPT,
        profiles=host / "profiles.json",
        request={**SAID, "host": said},
        where={
            "device": remote_build.to_json(settings),
            "log": str(host / "log"),
            "program": "trtexec",
        },
    )
    assert facts == {"host": said}
    assert [path.name for path in (host / "out").iterdir()] == [ENGINE]
    # Where and how it was made is in no key, what GPU and TensorRT it was is.
    assert tensorrt_plan.aside == ("where",)


def test_windows_hosts_are_refused_with_a_way(tmp_path: Path) -> None:
    class Windows:
        settings = DeviceSettings("pc", os="windows")

    given = (SCRIPT, tmp_path, tmp_path / "log")
    with pytest.raises(errors.ConfigError, match="made on Linux") as caught:
        plans.build_plan(Windows(), tmp_path, request(), Host(), given)  # type: ignore[arg-type]
    assert "plan/" in caught.value.remedy


@pytest.mark.process
def test_the_planned_commands_run_as_they_are(host: Path) -> None:
    """In a bundle's folder, by sh, with trtexec on the PATH."""
    bundle = host / "bundle"
    (bundle / "plan").mkdir(parents=True)
    (bundle / "model.onnx").write_bytes((host / "model.onnx").read_bytes())
    commands = plans.write(request(), SCRIPT, bundle / "plan")
    process.run(["sh", "-euc", "\n".join(commands)], timeout=60, cwd=bundle)
    assert json.loads((bundle / ENGINE).read_text())["model"] > 0
