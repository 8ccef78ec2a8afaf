"""Dynamic 8-bit quantization: weights in the file, activations in each run, by their own range.

Needs no calibration data. ``onnxruntime.quantization.quantize_dynamic``: MatMul and Gemm with
constant weights, Conv, LSTM, Attention, Gather. It is often slower than float (onnxruntime
#12854, #16009): the model becomes small, not necessarily fast.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.convert import quantizable
from edge.step import Facts, step

if TYPE_CHECKING:
    import onnx

TYPES = {"int8": "QInt8", "uint8": "QUInt8"}


@dataclass(frozen=True)
class Options:
    """What may be said of dynamic quantization; names as in ``onnxruntime.quantization``.

    ``exclude``: names of nodes or operator types. ``operators``: types, empty for all that
    onnxruntime quantizes.
    """

    weights: str = "int8"
    per_channel: bool = False
    reduce_range: bool = False
    exclude: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()

    @classmethod
    def of(cls, said: dict[str, Any]) -> Options:
        """The options from JSON; :class:`errors.ConfigError` for what is none."""
        if unknown := sorted(set(said) - {field.name for field in fields(cls)}):
            raise errors.ConfigError(f"int8_dynamic: unknown options {', '.join(unknown)}")
        lists = {key: tuple(said.get(key, ())) for key in ("exclude", "operators")}
        made = cls(**{**said, **lists})
        if made.weights not in TYPES:
            raise errors.ConfigError(
                f"int8_dynamic: weights = {made.weights!r} is none of {', '.join(TYPES)}"
            )
        return made


@step(version=1, tools=("onnx", "onnxruntime"), timeout=1800)
def int8_dynamic(out: Path, *, model: Path, options: dict[str, Any]) -> Facts:
    """``model.onnx`` with 8-bit weights; ``options`` are those of :class:`Options`.

    Facts: ``quantized_nodes``, ``weights`` (counts). Raises :class:`errors.ModelRefused` when
    nothing can be quantized, or onnxruntime has no kernel for what came out.
    """
    said = Options.of(options)
    with tempfile.TemporaryDirectory(prefix="work-", dir=out.parent) as folder:
        prepared = quantizable.prepare(model, Path(folder), per_channel=said.per_channel)
        operators = list(said.operators) or _operators()
        nodes = quantizable.chosen(prepared, model, operators, list(said.exclude))
        if not nodes:
            raise quantizable.nothing_quantized()
        made = _quantize(prepared, nodes, said)
        return quantizable.finish(made, model, out / "model.onnx")


def _operators() -> list[str]:
    """The operator types that onnxruntime quantizes dynamically; Gemm becomes MatMul for it."""
    from onnxruntime.quantization.registry import IntegerOpsRegistry

    return sorted({*IntegerOpsRegistry, "Gemm"})


def _quantize(model: onnx.ModelProto, nodes: list[str], said: Options) -> onnx.ModelProto:
    from onnxruntime.quantization import QuantizationMode, QuantType
    from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer

    weights = getattr(QuantType, TYPES[said.weights])
    others = sorted({node.name for node in model.graph.node} - set(nodes))
    # A Gemm is written as MatMul and Add before nodes are looked at.
    excluded = [spelled for name in others for spelled in (name, f"{name}_MatMul")]
    mode, extra = QuantizationMode.IntegerOps, {"MatMulConstBOnly": True}
    types: tuple[Any, ...] = (weights, QuantType.QUInt8, None, [], excluded, _operators(), extra)
    static = False
    quantizer = ONNXQuantizer(model, said.per_channel, said.reduce_range, mode, static, *types)
    quantizer.quantize_model()
    quantizer.model.topological_sort()
    made: onnx.ModelProto = quantizer.model.model
    return made
