"""Profiles of a model for TensorRT, and what can be proven of them without a GPU.

At the least, the usual and the largest shapes ONNX shape inference accepts the model, and ONNX
Runtime really runs it on the CPU.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph, samples
from edge.convert import profiles, run_model
from edge.convert.profiles import Profile
from edge.job import PENDING
from edge.model import ports
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]

FILE = "profiles.json"


@step(version=2, tools=("onnx", "onnxruntime", "numpy"), timeout=1800)
def tensorrt_profiles(
    out: Path, *, model: Path, golden: Path, ranges: dict[str, list[int]]
) -> Facts:
    """``profiles.json``: the profile of every input of ``model``, proven at its three points.

    ``golden`` is the index of the golden samples, ``ranges`` the target's least, usual and largest
    size of open dimensions. Facts: ``profiles`` (Profile.to_json values), ``points`` (shapes of
    the outputs at each point), ``kinds`` (``fp16``, ``int8``: what the model holds of them). Raises
    what :func:`edge.convert.profiles.derive` raises, and
    :class:`errors.ModelRefused` where the model does not hold a point.
    """
    loaded = graph.read(model)
    found = profiles.derive(ports(graph.facts(loaded)["inputs"]), _cases(golden.parent), ranges)
    for point in profiles.POINTS:
        _infer(loaded, found, point)
    points = _run(model, found, golden.parent)
    entries = [each.to_json() for each in found]
    (out / FILE).write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")
    return {"profiles": entries, "points": points, "kinds": _kinds(loaded)}


def read(path: Path) -> tuple[Profile, ...]:
    """The profiles of the step's file."""
    return profiles.from_json(json.loads(path.read_text(encoding="utf-8")))


def _kinds(loaded: onnx.ModelProto) -> list[str]:
    """``fp16``: tensors of float16; ``int8``: Q/DQ pairs. Those of a model given so, too."""
    import onnx

    half = onnx.TensorProto.FLOAT16
    body = loaded.graph
    types = {tensor.data_type for tensor in graph.all_tensors(loaded)}
    values = (*body.input, *body.output, *body.value_info)
    types |= {value.type.tensor_type.elem_type for value in values}
    quantized = any(node.op_type == "DequantizeLinear" for node in body.node)
    return [*(["fp16"] if half in types else []), *(["int8"] if quantized else [])]


def _cases(folder: Path) -> list[dict[str, tuple[int, ...]]]:
    """The shapes of each sample's inputs."""
    found: dict[int, dict[str, tuple[int, ...]]] = {}
    for tensor in samples.read_index(folder):
        if tensor.role == "input":
            found.setdefault(tensor.sample, {})[tensor.name] = tensor.shape
    return list(found.values())


def _infer(loaded: onnx.ModelProto, found: Sequence[Profile], point: str) -> None:
    """ONNX shape inference with the inputs bound to a point's shapes."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(loaded)
    del copy.graph.value_info[:]
    bound = {each.name: getattr(each, point) for each in found}
    for value in copy.graph.input:
        if value.name in bound:
            for dim, size in zip(value.type.tensor_type.shape.dim, bound[value.name], strict=True):
                dim.dim_value = size
    try:
        onnx.shape_inference.infer_shapes(copy, strict_mode=True, data_prop=True)
    except onnx.shape_inference.InferenceError as error:
        raise _refused(found, point, graph.first_line(error)) from error


def _refused(found: Sequence[Profile], point: str, why: str) -> errors.ModelRefused:
    said = ", ".join(f"{each.name} {list(getattr(each, point))}" for each in found)
    return errors.ModelRefused(
        f"the model does not hold the {point} shapes of its profile ({said}): {why}",
        remedy="narrow [tensorrt.profiles] of the target",
    )


def _run(path: Path, found: Sequence[Profile], folder: Path) -> dict[str, Any]:
    """Shapes of the outputs as ONNX Runtime gives them, by point."""
    given = samples.cases(folder, "input")[0]
    session = run_model.open_session(path, level="disabled")
    done: dict[str, Any] = {}
    for point in profiles.POINTS:
        feeds = {each.name: _filled(each, given[each.name], point) for each in found}
        try:
            outputs = run_model.run_session(session, feeds)
        except errors.RunFailed as error:
            raise _refused(found, point, error.message) from error
        done[point] = {name: list(array.shape) for name, array in outputs.items()}
    return done


def _filled(profile: Profile, sample: Array, point: str) -> Array:
    """The sample's values, repeated or cut to a point's shape: they stay values of its domain."""
    import numpy as np

    shape = getattr(profile, point)
    size = prod(shape) * sample.itemsize
    if size > samples.MAX_TENSOR_BYTES:
        raise errors.ConfigError(
            f"input {profile.name} {list(shape)} would hold {size} bytes",
            remedy="narrow [tensorrt.profiles] of the target",
        )
    return np.resize(sample, shape)


def shape_options(entries: Sequence[Mapping[str, Any]] | None) -> dict[str, str]:
    """The provider's options for the step's ``profiles``; None: not known yet."""
    names = {point: f"trt_profile_{short}_shapes" for point, short in profiles.SHORT.items()}
    if entries is None:
        return dict.fromkeys(names.values(), PENDING)
    found = profiles.strings(profiles.from_json(entries))
    return {names[point]: text for point, text in found.items()}
