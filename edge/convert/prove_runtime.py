"""Prove a built runtime: it computes what it should, and refuses what it was not built for.

The C runner is what runs it, as on a device; natively, or under qemu for another platform.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

from edge import errors, process, protocol, samples
from edge.closure import text
from edge.convert import ort_format
from edge.step import Facts, step
from edge.tools import emulator

TIMEOUT = 900.0
OUTSIDER = "outsider.ort"
# Operators of one input and one output that runtimes of every release have kernels for (and no
# functions, which become others); one that the closure lacks stands for every model outside it.
CANDIDATES = ("Erf", "Elu", "Softsign", "Celu", "Tan", "Atan", "HardSigmoid", "Acos", "Det",
              "Sinh", "Selu", "Asin")  # fmt: skip
SHAPE = (3, 3)  # of what an outsider takes, float32


@step(version=1, isolated=False)
def run_with_library(
    out: Path, *, library: Path, runner: Path, model: Path, golden: Path, platform: str
) -> Facts:
    """The outputs of ``model`` under ``library``, in the samples' form; see ``run_artifact``.

    ``runner`` is the platform's C runner, ``golden`` the index of the golden samples,
    ``platform`` as ``emulator.words`` takes it. Facts: ``runtime`` (the version that the library
    says) and ``by``. Raises :class:`errors.RunFailed` with the library's own words.
    """
    with tempfile.TemporaryDirectory(prefix="work-", dir=out.parent) as scratch:
        place = Path(scratch)
        _lay_out(place / "bundle", library, runner, model)
        shutil.copytree(golden.parent, place / "bundle" / "samples")
        (place / "outputs").mkdir()
        words = ["--output", str(place / "outputs"), "--check-only"]
        run = _run(place, platform, words)
        tensors = [_kept(output, place / "outputs", out) for output in run.outputs]
    (out / samples.INDEX).write_bytes("".join(each.line() for each in tensors).encode())
    return {"runtime": run.env.version, "by": emulator.name(platform)}


def _kept(output: protocol.Output, folder: Path, out: Path) -> samples.Tensor:
    """An output whose file the runner left, copied to ``out``."""
    name = output.file or ""
    if not (folder / name).is_file():
        raise errors.RunFailed(f"the runner left no file of the output {output.name!r}")
    shutil.copyfile(folder / name, out / name)
    return samples.Tensor(
        output.sample, "output", output.index, output.dtype, output.shape, name, output.name
    )


@step(version=1, tools=("onnx", "onnxruntime", "flatbuffers"), timeout=600)
def outsider(out: Path, *, config: Path) -> Facts:
    """``outsider.ort``, a model of one operator that the operator configuration ``config`` lacks.

    Facts: ``operator``. Raises :class:`errors.StepFailed` when it lacks none of ``CANDIDATES``.
    """
    import onnx

    operator = _outside(config)
    kind = onnx.TensorProto.FLOAT
    result = () if operator == "Det" else SHAPE
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(operator, ["x"], ["y"])],
        "outsider",
        [onnx.helper.make_tensor_value_info("x", kind, SHAPE)],
        [onnx.helper.make_tensor_value_info("y", kind, result)],
    )
    opset = [onnx.helper.make_opsetid("", 18)]
    model = onnx.helper.make_model(graph, opset_imports=opset, ir_version=8)
    with tempfile.TemporaryDirectory(prefix="work-", dir=out.parent) as scratch:
        place = Path(scratch)
        (place / "made").mkdir()
        onnx.save(model, place / "outsider.onnx")
        ort_format.ort_format.function(
            place / "made",
            model=place / "outsider.onnx",
            style="Fixed",
            target_platform="arm",
            level="basic",
        )
        shutil.copyfile(place / "made" / "model.ort", out / OUTSIDER)
    return {"operator": operator}


def _outside(config: Path) -> str:
    held = text.parse(config.read_text(encoding="utf-8"), where=config.name)
    names = {entry.operator for entry in held.entries}
    for name in CANDIDATES:
        if name not in names and not held.every_operator:
            return name
    raise errors.StepFailed(
        f"no operator is known that {config.name} lacks: it cannot be proven that the built "
        "runtime refuses what it was not built for",
        remedy="models that need nearly every operator are better off with --runtime prebuilt",
    )


@step(version=1, isolated=False)
def refuses(
    out: Path, *, library: Path, runner: Path, model: Path, operator: str, platform: str
) -> Facts:
    """That ``library`` does not load ``model``, and names ``operator`` when it says so.

    Facts: ``said``, the library's words. Raises :class:`errors.ClosureIncomplete` when it loads
    the model, or refuses it without a name.
    """
    with tempfile.TemporaryDirectory(prefix="work-", dir=out.parent) as scratch:
        place = Path(scratch)
        _lay_out(place / "bundle", library, runner, model)
        folder = place / "bundle" / "samples"
        folder.mkdir()
        tensor = samples.Tensor(0, "input", 0, "float32", SHAPE, "000.input.0.bin", "x")
        (folder / samples.INDEX).write_bytes(tensor.line().encode())
        (folder / tensor.file).write_bytes(bytes(tensor.nbytes))
        said = _refusal(place, platform)
    if not re.search(rf"\b{re.escape(operator)}\b", said):
        raise errors.ClosureIncomplete(
            f"the built {library.name} should refuse a model with {operator}, which it was not "
            f"built for, and name that operator; it said: {said[:300] or 'nothing, and ran it'}"
        )
    return {"said": said[:500], "operator": operator}


def _refusal(place: Path, platform: str) -> str:
    try:
        _run(place, platform, ["--check-only"])
    except errors.RunFailed as error:
        return error.message
    return ""


def _lay_out(bundle: Path, library: Path, runner: Path, model: Path) -> None:
    for folder in ("runtime", "runner"):
        (bundle / folder).mkdir(parents=True)
    shutil.copyfile(library, bundle / "runtime" / library.name)
    shutil.copyfile(runner, bundle / "runner" / "edge_runner")
    (bundle / "runner" / "edge_runner").chmod(0o755)
    shutil.copyfile(model, bundle / "model.ort")


def _run(place: Path, platform: str, words: list[str]) -> protocol.Run:
    (place / "root").mkdir()
    before = emulator.words(platform, place / "root")
    command = [*before, str(place / "bundle" / "runner" / "edge_runner")]
    done = process.run(
        [*command, "--bundle", str(place / "bundle"), *words],
        timeout=TIMEOUT,
        env={**os.environ, "ORT_DISABLE_TELEMETRY": "1"},
        check=False,
    )
    if done.returncode < 0 or not done.stdout.strip():
        ended = process.describe_exit(done.returncode)
        raise errors.RunFailed(
            f"the runner ended with {ended}: {done.tail(3) or 'it said nothing'}"
        )
    run = protocol.parse(done.stdout)
    if done.returncode != 0:
        raise errors.RunFailed(
            f"the runner said that all went well, and ended with "
            f"{process.describe_exit(done.returncode)}"
        )
    return run
