"""A model made ready for 8-bit quantization, and a quantized one looked at.

What is done before quantizing, as ``onnxruntime.quantization.quant_pre_process`` does it, but
without its symbolic shape inference (that needs sympy, and with the types that ONNX Runtime
writes there is nothing left to infer):

1. ``onnx.version_converter`` where the opset is too old for what was asked;
2. ONNX Runtime's basic optimizations: constants folded, Conv and BatchNormalization fused, which
   otherwise would be quantized one by one;
3. every node has a name of its own, by which it can be chosen or left out;
4. every tensor has a type: one without is left in float by the quantizer, silently;
5. the bias of a Gemm is one row: the fusion of MatMul and Add leaves ``[1, N]``, on which the
   quantizer of onnxruntime 1.32 fails per channel ("truth value of an array ... is ambiguous").
"""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph
from edge.convert import run_model

if TYPE_CHECKING:
    import onnx

QUANTIZED_TYPES = (2, 3)  # TensorProto.UINT8, INT8
FLOAT_TYPES = (1, 10)  # TensorProto.FLOAT, FLOAT16
# DequantizeLinear knows an axis, which scales per channel need, from opset 13 on.
PER_CHANNEL_OPSET = 13
OLDEST_OPSET = 11


def prepare(model: Path, work: Path, *, per_channel: bool) -> onnx.ModelProto:
    """``model`` ready to quantize; ``work`` is a folder for files in between.

    Raises :class:`errors.ModelRefused` for a model that is quantized already.
    """
    import onnx

    loaded = graph.read(model)
    if any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in loaded.graph.node):
        raise errors.ModelRefused(
            "the model is quantized already",
            remedy="give the float model, or use it as it is with precision source",
        )
    onnx.save(_raise_opset(loaded, per_channel=per_channel), work / "raised.onnx")
    settings = run_model.options("basic")
    settings.optimized_model_filepath = str(work / "basic.onnx")
    run_model.create(work / "raised.onnx", settings)
    prepared = onnx.load(work / "basic.onnx")
    _name_nodes(prepared)
    _flatten_biases(prepared.graph)
    prepared = onnx.shape_inference.infer_shapes(prepared)
    _refuse_renamed(loaded, prepared)
    return prepared


def _raise_opset(model: onnx.ModelProto, *, per_channel: bool) -> onnx.ModelProto:
    import onnx

    opset = graph.facts(model)["opset"]
    if opset >= (PER_CHANNEL_OPSET if per_channel else OLDEST_OPSET):
        return model
    try:
        return onnx.version_converter.convert_version(model, PER_CHANNEL_OPSET)
    except (RuntimeError, ValueError) as error:
        raise errors.ModelRefused(
            f"opset {opset} is too old to quantize, and cannot be converted to "
            f"{PER_CHANNEL_OPSET}: {graph.first_line(error)}",
            remedy=f"export with opset {PER_CHANNEL_OPSET}, or set per_channel = false",
        ) from error


def _prune_domains(model: onnx.ModelProto) -> None:
    """ONNX Runtime writes all domains that it knows; others' readers refuse some of them."""
    used = {node.domain for node in all_nodes(model.graph)} | {""}
    used |= {node.domain for function in model.functions for node in function.node}
    kept = [entry for entry in model.opset_import if entry.domain in used]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def all_nodes(body: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes of a graph and of its subgraphs."""
    nodes = list(body.node)
    for node in body.node:
        for attribute in node.attribute:
            inner = [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]
            nodes += [found for each in inner for found in all_nodes(each)]
    return nodes


def _name_nodes(model: onnx.ModelProto) -> None:
    taken: set[str] = set()
    for index, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}_{index}"
        while node.name in taken:
            node.name += "_"
        taken.add(node.name)


def _flatten_biases(body: onnx.GraphProto) -> None:
    import numpy as np
    from onnx import helper, numpy_helper

    constants = {tensor.name: tensor for tensor in body.initializer}
    for node in body.node:
        if node.op_type != "Gemm" or not {*node.input[1:]} <= set(constants) or len(node.input) < 3:
            continue
        turned = next(
            (helper.get_attribute_value(a) for a in node.attribute if a.name == "transB"), 0
        )
        width = constants[node.input[1]].dims[0 if turned else 1]
        bias = numpy_helper.to_array(constants[node.input[2]])
        if bias.ndim != 1 and bias.size in (1, width) and bias.shape[-1:] in ((), (1,), (width,)):
            row = np.ascontiguousarray(np.broadcast_to(bias.reshape(-1), (width,)))
            node.input[2] = f"{node.input[2]}_row_of_{node.name}"
            body.initializer.append(numpy_helper.from_array(row, node.input[2]))
    used = {name for node in all_nodes(body) for name in node.input}
    used |= {value.name for value in body.output}
    kept = [tensor for tensor in body.initializer if tensor.name in used]
    del body.initializer[:]
    body.initializer.extend(kept)


def _refuse_renamed(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    """Inputs and outputs are a contract with whoever calls the model."""
    for side in ("inputs", "outputs"):
        ports = [[(p["name"], p["dtype"]) for p in graph.facts(m)[side]] for m in (before, after)]
        if ports[0] != ports[1]:
            raise errors.StepFailed(f"quantization changed the model's {side}: {ports[1]}")


def float_tensors(model: onnx.ModelProto) -> dict[str, int]:
    """Element types of the float tensors that the top graph computes or is given, by name."""
    body = model.graph
    constant = {tensor.name for tensor in body.initializer}
    typed = {v.name: v.type.tensor_type for v in (*body.value_info, *body.output, *body.input)}
    made = [v.name for v in body.input] + [name for node in body.node for name in node.output]
    return {
        name: typed[name].elem_type
        for name in made
        if name in typed and name not in constant and typed[name].elem_type in FLOAT_TYPES
    }


def weight_counts(model: onnx.ModelProto) -> dict[str, int]:
    """Number of constant float elements that each node reads, by its name."""
    floats = (each for each in model.graph.initializer if each.data_type in FLOAT_TYPES)
    sizes = {tensor.name: prod(tensor.dims) for tensor in floats}
    return {node.name: sum(sizes.get(n, 0) for n in node.input) for node in model.graph.node}


def chosen(
    model: onnx.ModelProto, original: Path, operators: list[str], exclude: list[str]
) -> list[str]:
    """Names of the nodes to quantize: of ``operators``, on floats, less what ``exclude`` names.

    ``exclude`` holds operator types and node names. Raises :class:`errors.UsageError` for one
    that neither the model as given (``original``) nor as prepared has.
    """
    floats = float_tensors(model)
    known = {name for node in model.graph.node for name in (node.name, node.op_type)}
    if strange := set(exclude) - known:
        known |= {name for n in graph.read(original).graph.node for name in (n.name, n.op_type)}
        if strange := strange - known:
            raise errors.UsageError(
                f"exclude: the model has no node or operator type {', '.join(sorted(strange))}",
                remedy="name nodes as a viewer such as Netron shows them",
            )
    return [
        node.name
        for node in model.graph.node
        if node.op_type in operators
        and not {node.name, node.op_type} & set(exclude)
        and any(name in floats for name in (*node.input, *node.output))
    ]


def finish(quantized: onnx.ModelProto, original: Path, out: Path) -> dict[str, Any]:
    """Write the quantized model to ``out`` and look at it; facts for the step.

    Raises :class:`errors.ModelRefused` when no weight became 8 bits wide, or when onnxruntime
    cannot load it.
    """
    for index in reversed(range(len(quantized.metadata_props))):
        if quantized.metadata_props[index].key in ("onnx.infer", "onnx.quant.pre_process"):
            del quantized.metadata_props[index]
    weights = eight_bit_weights(quantized)
    if not weights:
        raise nothing_quantized()
    _prune_domains(quantized)
    _refuse_renamed(graph.read(original), quantized)
    graph.save(quantized, out)
    run_model.open_session(out, level="all")
    return {"quantized_nodes": len(quantized_nodes(quantized)), "weights": len(weights)}


def nothing_quantized() -> errors.ModelRefused:
    """The error for a model whose weights all stay float."""
    return errors.ModelRefused(
        "the model has no weights that could be quantized to 8 bits",
        remedy="int8 is for models with Conv, Gemm or MatMul: choose precision fp16 or source, or "
        "check operators and exclude",
    )


def eight_bit_weights(model: onnx.ModelProto) -> list[str]:
    """Names of 8-bit constants with two or more dimensions (zero points have at most one)."""
    return [
        tensor.name
        for tensor in model.graph.initializer
        if tensor.data_type in QUANTIZED_TYPES and len(tensor.dims) > 1
    ]


def quantized_nodes(model: onnx.ModelProto) -> list[str]:
    """Names of nodes that compute on 8-bit values, in either format.

    In QDQ those that read what a DequantizeLinear gives, else the quantized operators.
    """
    body = model.graph
    given = {o for n in body.node if n.op_type == "DequantizeLinear" for o in n.output}
    between = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
    return [
        node.name
        for node in body.node
        if node.op_type not in between
        and (
            any(name in given for name in node.input)
            or node.op_type.startswith(("QLinear", "QGemm", "DynamicQuantize"))
            or node.op_type.endswith("Integer")
        )
    ]
