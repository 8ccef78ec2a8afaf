"""The iOS runner, compiled by a Swift compiler and run here, without an Apple system.

ONNX Runtime's way runs the real library of the pinned release; Core ML's way is compiled against
a stand-in of the same names (``tests/fakes/CoreML.swift``), so that its conversions run too.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edge import errors, process, protocol, samples
from edge.convert.coreml_cache_key import coreml_cache_key
from edge.convert.ort_format import ort_format
from edge.convert.render import render
from edge.store import Store
from edge.tools.ort_release import overlay
from tests.support import need
from tests.test_templates_mobile import BASE, COREML, TEMPLATES

pytestmark = [pytest.mark.slow, pytest.mark.process]
FAKE = Path(__file__).parent / "fakes" / "CoreML.swift"
RELEASE = "1.29.0"


OUTPUTS = ("y", "k")


@dataclass(frozen=True)
class Built:
    """A bundle whose package was compiled by the program ``swift``."""

    bundle: Path
    swift: Path
    flags: tuple[str, ...]

    def run(
        self, what: str, *words: str, check: bool = True, package: str = "EdgeBenchTool"
    ) -> str:
        """What ``swift WHAT`` of a package prints."""
        said = [str(self.swift), what, "--disable-sandbox", "-c", "release", *self.flags, *words]
        place = self.bundle / "app" / package
        return process.run(said, cwd=place, timeout=900, check=check).stdout

    def say(self, *words: str) -> str:
        """What the runner prints; it may fail."""
        few = ("--min-ns", "1", "--warmup-ns", "0", "--iterations", "5")
        given = ("edge-bench", "--bundle", str(self.bundle), *few, *words)
        return self.run("run", "--skip-build", *given, check=False)


def small() -> onnx.ModelProto:
    """x[1, 3, 8, 8] -> Conv -> Relu -> y, and the ArgMax of its channels, k (int64)."""
    weights = np.random.default_rng(0).standard_normal((8, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1] * 4),
            helper.make_node("Relu", ["c"], ["y"]),
            helper.make_node("ArgMax", ["y"], ["k"], axis=1, keepdims=0),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 8, 8]),
            helper.make_tensor_value_info("k", TensorProto.INT64, [1, 8, 8]),
        ],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def write_bundle(folder: Path) -> None:
    """Models, samples, the app, and a package for the stand-in."""
    import onnxruntime

    onnx.save(small(), folder / "small.onnx")
    for name, level in (("model.ort", "all"), (str(COREML["artifact"]), "basic")):
        out = folder / f"{level}.made"
        out.mkdir()
        source = folder / "small.onnx"
        if level == "basic":
            coreml_cache_key.function(out, model=source)
            source = out / "model.onnx"
        options = {"style": "Fixed", "target_platform": "arm", "level": level}
        ort_format.function(out, model=source, **options)
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.move(out / "model.ort", folder / name)
    case = {"x": np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)}
    session = onnxruntime.InferenceSession(folder / "small.onnx")
    outputs = dict(zip(OUTPUTS, session.run(OUTPUTS, case), strict=True))
    (folder / "samples").mkdir()
    samples.write(folder / "samples", [(case, outputs)])
    render(TEMPLATES / "ios", folder / "app", {**BASE, "coreml": COREML})
    write_package(folder / str(COREML["package"]), case["x"], outputs)


def write_package(folder: Path, given: Any, outputs: dict[str, Any]) -> None:
    """What the stand-in reads: ports, and outputs as Core ML would hold them."""

    def port(name: str, onnx_name: str, dtype: str, held: str, shape: list[int]) -> dict[str, Any]:
        named = {"name": name, "onnx": onnx_name, "dtype": dtype, "held": held}
        return {**named, "shape": shape, "scalar": False}

    ports = {
        "inputs": [port("x_0", "x", "float", "float32", list(given.shape))],
        "outputs": [
            port("y_0", "y", "float", "float32", list(outputs["y"].shape)),
            port("k_0", "k", "int64", "int32", list(outputs["k"].shape)),
        ],
    }
    made = [
        {"name": name, "type": kind, "shape": list(array.shape), "values": array.ravel().tolist()}
        for name, kind, array in (
            ("y_0", "float32", outputs["y"]),
            ("k_0", "int32", outputs["k"]),
        )
    ]
    folder.mkdir(parents=True)
    total = float(sum(given.ravel().astype(np.float64).tolist()))
    fake = {"ports": json.dumps(ports), "expects": {"x_0": total}, "outputs": made}
    (folder / "outputs.json").write_text(json.dumps(fake))


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, ort_header: Path, download_store: Store
) -> Built:
    """The bundle, and its tool compiled against ONNX Runtime's release and the stand-in."""
    swift = need("swift")
    root = tmp_path_factory.mktemp("ios")
    libraries = root / "lib"
    libraries.mkdir()
    capi = overlay(download_store, RELEASE)
    assert capi is not None
    library = next(capi.glob("onnxruntime/capi/libonnxruntime.so.*"))
    for name in ("libonnxruntime.so", "libonnxruntime.so.1"):
        shutil.copyfile(library, libraries / name)
    (libraries / "onnxruntime_c_api.h").write_bytes(ort_header.read_bytes())
    process.run(
        [swift.with_name("swiftc"), "-O", "-emit-library", "-emit-module", "-module-name", "CoreML",
         "-o", libraries / "libCoreML.so", "-emit-module-path", libraries / "CoreML.swiftmodule",
         FAKE],
        cwd=libraries, timeout=600,
    )  # fmt: skip
    bundle = root / "bundle"
    bundle.mkdir()
    write_bundle(bundle)
    flags = ["-Xcc", f"-I{libraries}", "-Xswiftc", f"-I{libraries}"]
    for word in (f"-L{libraries}", "-lCoreML", "-rpath", str(libraries)):
        flags += ["-Xlinker", word]
    made = Built(bundle, swift, tuple(flags))
    made.run("build")
    return made


def outputs_of(built: Built, run: protocol.Run, folder: Path) -> dict[str, Any]:
    kept = {tensor.name: tensor for tensor in samples.read_index(built.bundle / "samples")}
    return {
        output.name: np.fromfile(folder / str(output.file), output.dtype).reshape(output.shape)
        for output in run.outputs
        if kept[output.name].shape == output.shape
    }


def golden(built: Built) -> dict[str, Any]:
    (case,) = samples.cases(built.bundle / "samples", "output")
    return case


def test_onnx_runtime_runs_the_golden_samples(built: Built, tmp_path: Path) -> None:
    said = built.say("--output", str(tmp_path), "--profile", "nodes")
    run = protocol.parse(said)
    assert (run.env.runner, run.env.runtime, run.env.version) == ("swift", "onnxruntime", RELEASE)
    assert run.end.runs >= 5
    made = outputs_of(built, run, tmp_path)
    np.testing.assert_allclose(made["y"], golden(built)["y"], atol=1e-5)
    np.testing.assert_array_equal(made["k"], golden(built)["k"])
    assert run.profile is not None
    assert Path(run.profile).parent == tmp_path
    for output in run.outputs:  # the digest of its own, where the system brings none
        data = (tmp_path / str(output.file)).read_bytes()
        assert output.sha256 == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize(
    "provider", ["CoreMLExecutionProvider:CPUOnly", "XnnpackExecutionProvider"]
)
def test_a_provider_that_the_runtime_lacks_is_named(built: Built, provider: str) -> None:
    without = f"this runtime was built without {provider.partition(':')[0]}"
    with pytest.raises(errors.RunFailed, match=rf"\(runtime\): {without}"):
        protocol.parse(built.say("--provider", provider))


@pytest.mark.parametrize("cache", [False, True])
def test_core_ml_gets_and_gives_tensors_as_they_are(
    built: Built, tmp_path: Path, cache: bool
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    words = ["--provider", "coreml:CPU_AND_NE", "--output", str(tmp_path)]
    words += ["--cache", str(kept)] if cache else []
    run = protocol.parse(built.say(*words))
    assert (run.env.runtime, run.env.provider) == ("coreml", "coreml:CPU_AND_NE")
    assert run.cached is (False if cache else None)
    made = outputs_of(built, run, tmp_path)
    np.testing.assert_array_equal(made["y"], golden(built)["y"])
    np.testing.assert_array_equal(made["k"], golden(built)["k"])
    if cache:
        assert protocol.parse(built.say(*words)).cached is True


def test_what_is_compiled_for_some_units_is_not_that_of_others(
    built: Built, tmp_path: Path
) -> None:
    """Of two ways each has a first load: what the chips need is made when a model is loaded."""
    for units in ("ALL", "CPU_ONLY"):
        words = ("--provider", f"coreml:{units}", "--cache", str(tmp_path))
        assert protocol.parse(built.say(*words)).cached is False
    names = sorted(path.name for path in tmp_path.iterdir())
    assert [name.rpartition("-")[2] for name in names] == ["ALL.mlmodelc", "CPU_ONLY.mlmodelc"]


def test_who_listens_may_go_away(built: Built) -> None:
    words = [str(built.swift), "run", "--disable-sandbox", "-c", "release", *built.flags]
    words += ["--skip-build", "edge-bench", "--bundle", str(built.bundle), "--min-ns", "1"]
    pipe = ["bash", "-c", 'set -o pipefail; "$@" | :', "sh", *words]
    done = process.run(pipe, cwd=built.bundle / "app/EdgeBenchTool", timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_the_packages_own_tests_pass(built: Built) -> None:
    said = built.run("test", package="EdgeBench")
    assert "with 0 failures" in said


def test_the_app_parses(built: Built) -> None:
    """SwiftUI is Apple's alone: more of the app than its syntax cannot be checked here."""
    compiler = built.swift.with_name("swiftc")
    for source in (built.bundle / "app/EdgeBenchApp").rglob("*.swift"):
        process.run([compiler, "-parse", "-swift-version", "5", source], timeout=60)


def test_units_that_core_ml_does_not_have(built: Built) -> None:
    with pytest.raises(errors.RunFailed, match="no compute units 'GPU'"):
        protocol.parse(built.say("--provider", "coreml:GPU"))
