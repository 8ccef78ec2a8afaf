"""float16 weights and arithmetic where float16 can hold the values, float32 where it cannot.

``onnxruntime.transformers.float16`` converts (onnxconverter-common gives invalid models around
Cast, its issue #320), but it clamps what float16 cannot hold, without a word, and hands values
between two float32 nodes through float16. So, beside its own list and the caller's, these nodes
stay in float32:

1. Nodes with subgraphs (If, Loop, Scan), whole: inside them the converter makes invalid models.
2. Nodes on sequences, and operators whose ONNX schema takes no float16.
3. Nodes that read a constant beyond float16, or one that is all but lost in it (an epsilon of
   1e-12); and what such an epsilon guards, up to the division.
4. Nodes that make or read a value which goes beyond ``LIMIT`` on the samples, or is all but
   lost; and casts to integers of values that float16 does not count exactly.

Afterwards no float32 value passes through float16 on its way to a float32 node, Casts that some
releases write twice (onnxruntime 1.22 to 1.31) are there once, and the order is topological.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph, samples
from edge.convert import graph_values, run_model
from edge.convert.graph_values import FLOAT, Value
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np
    import onnx

    Array = np.ndarray[Any, Any]

LARGEST = 65504.0  # IEEE 754 binary16
# The samples are few: a value that other inputs make four times as large still fits.
LIMIT = LARGEST / 4
# float16 counts integers one by one up to here.
EXACT_INTEGERS = 2048.0
# float16 rounds to multiples of 2**-24 down here: values below this are off by up to 1 % or more.
TINY = 2.0**-25 / 0.01
# An epsilon guards a division, root or logarithm; these stand between the two.
GUARDED = ("Div", "Reciprocal", "Log", "Pow", "Sqrt")
PASSING = ("Sqrt", "Expand", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Identity")

Reasons = dict[str, str]


@step(version=1, tools=("onnx", "onnxruntime", "numpy"), timeout=1800)
def fp16(out: Path, *, model: Path, cases: Path, block: list[str]) -> Facts:
    """``model.onnx`` in float16, with float32 inputs and outputs as before.

    ``cases`` is the index file of samples that hold inputs; ``block`` are operator types, or
    names of nodes, that stay in float32. Facts: ``blocked`` (why, by node), ``casts`` (their
    number), ``fp16_bytes`` (of initializers), ``nodes_fp16`` and ``nodes_fp32`` (of those that
    work on floats).

    Raises :class:`errors.ModelRefused` when nothing is left to convert or the result is no valid
    model, :class:`errors.UsageError` for unknown names in ``block`` and for no samples.
    """
    loaded = _prepared(graph.read(model))
    given = samples.cases(cases.parent, "input")
    if not given:
        raise errors.UsageError("float16 needs samples: without them no activation is checked")
    with tempfile.TemporaryDirectory(prefix="work-", dir=out.parent) as folder:
        values = graph_values.types(loaded, Path(folder))
        largest = graph_values.largest(loaded, values, given, Path(folder))
    exposed = graph_values.expose_captures(loaded.graph)
    blocked = _reasons(loaded, values, largest, block)
    floats = [node.name for node in loaded.graph.node if _is_float(node, values)]
    if not set(floats) - set(blocked):
        raise errors.ModelRefused(
            "nothing to convert to float16: no node would compute in it",
            remedy=_first(blocked) or "the model has no float32 values",
        )
    made = _convert(loaded, values, blocked, exposed)
    graph.save(made, out / "model.onnx")
    _check(made, out / "model.onnx", graph_values.initializers(loaded.graph))
    kept = [name for name in floats if name in blocked]
    return {
        "blocked": {name: blocked[name] for name in kept},
        "casts": sum(node.op_type == "Cast" for node in made.graph.node),
        "fp16_bytes": _fp16_bytes(made),
        "nodes_fp16": len(floats) - len(kept),
        "nodes_fp32": len(kept),
    }


def _prepared(model: onnx.ModelProto) -> onnx.ModelProto:
    """What the converter expects: no functions, no Constant nodes, a name for every node."""
    import onnx.inliner

    if model.functions:
        model = onnx.inliner.inline_local_functions(model)
    graph_values.drop_initializer_inputs(model)
    graph_values.constants_to_initializers(model.graph)
    graph_values.name_nodes(model.graph)
    for node in model.graph.node:
        # The converter of onnxruntime before 1.32 leaves this one's default a float32.
        if node.op_type == "ConstantOfShape" and not node.attribute:
            zero = onnx.helper.make_tensor("value", onnx.TensorProto.FLOAT, [1], [0.0])
            node.attribute.append(onnx.helper.make_attribute("value", zero))
    return model


def _first(blocked: Reasons) -> str:
    return next((f"{name}: {why}" for name, why in blocked.items()), "")


def _is_float(node: onnx.NodeProto, values: Mapping[str, Value]) -> bool:
    return any(values[n].type == FLOAT for n in (*node.input, *node.output) if n in values)


# --------------------------------------------------------------------------------- reasons
def _reasons(
    model: onnx.ModelProto,
    values: Mapping[str, Value],
    largest: Mapping[str, float],
    block: list[str],
) -> Reasons:
    """Why nodes stay in float32, by their names; the first reason of each."""
    found: Reasons = {}
    constants = _constant_reasons(model)
    opsets = graph_values.opsets(model)
    for node in model.graph.node:
        why = (
            _asked_reason(node, block)
            or _kind_reason(node, values, opsets)
            or constants.get(node.name)
            or _activation_reason(node, values, largest)
        )
        if why:
            found[node.name] = why
    _known(model, block)
    return found


def _known(model: onnx.ModelProto, block: list[str]) -> None:
    """A block list may name operators that this model has not, but none that nobody has."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    known = {schema.name for schema in state.get_all_operator_schema()}
    known |= {name for node in model.graph.node for name in (node.op_type, node.name)}
    for name in block:
        if name not in known:
            raise errors.UsageError(
                f"fp16: {name!r} is no operator and no node of the model",
                remedy=errors.did_you_mean(name, sorted(known)),
            )


def _asked_reason(node: onnx.NodeProto, block: list[str]) -> str:
    from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST

    if node.op_type in block or node.name in block:
        return "asked for"
    if node.op_type in DEFAULT_OP_BLOCK_LIST:
        return f"{node.op_type} is on the converter's own list"
    return ""


def _kind_reason(
    node: onnx.NodeProto, values: Mapping[str, Value], opsets: Mapping[str, int]
) -> str:
    """Rules 1 and 2 of the module's docstring."""
    import onnx
    from onnxruntime.transformers.float16 import ALWAYS_FLOAT_INPUTS

    if graph_values.subgraphs(node):
        return f"{node.op_type} has subgraphs"
    names = [name for name in (*node.input, *node.output) if name in values]
    if any(not values[name].type.startswith("tensor(") for name in names):
        return "works on a sequence or an optional value"
    if node.op_type in ALWAYS_FLOAT_INPUTS:
        return ""  # the converter itself keeps those inputs in float32
    domain = graph_values.plain_domain(node.domain)
    try:
        schema = onnx.defs.get_schema(node.op_type, opsets[domain], domain)
    except (onnx.defs.SchemaError, KeyError):
        return ""  # com.microsoft and the like: loading the result tells
    if any(_only_float32(node, schema, values)):
        return f"{node.op_type} of opset {schema.since_version} takes no float16"
    return ""


def _only_float32(
    node: onnx.NodeProto, schema: onnx.defs.OpSchema, values: Mapping[str, Value]
) -> Iterator[bool]:
    """Whether a float32 input or output of the node could be no float16, for each of them."""
    for names, formals in ((node.input, schema.inputs), (node.output, schema.outputs)):
        for index, name in enumerate(names):
            if name in values and values[name].type == FLOAT and formals:
                allowed = formals[min(index, len(formals) - 1)].types
                yield "tensor(float16)" not in allowed


def _constant_reasons(model: onnx.ModelProto) -> Reasons:
    """Rule 3: readers of constants that float16 cannot hold, and what epsilons guard."""
    found: Reasons = {}
    readers = graph_values.readers(model.graph)
    for name, array in _float_constants(model.graph):
        size = graph_values.magnitude(array)
        for node in readers.get(name, ()):
            if size > LARGEST:
                found.setdefault(
                    node.name, f"its constant {name!r} holds {size:g}, beyond float16's 65504"
                )
            elif 0 < size < TINY:
                found.setdefault(node.name, f"its constant {name!r} of {size:g} is lost in float16")
                for guarded in _guarded(node, readers):
                    found.setdefault(guarded, f"{node.name!r} guards it with {size:g}")
    return found


def _float_constants(body: onnx.GraphProto) -> Iterator[tuple[str, Array]]:
    import onnx

    for tensor in body.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            yield tensor.name, onnx.numpy_helper.to_array(tensor)


def _guarded(node: onnx.NodeProto, readers: Mapping[str, list[onnx.NodeProto]]) -> set[str]:
    """The nodes from an epsilon's reader on up to the division that it guards."""
    found: set[str] = set()
    pending = [node]
    while pending:
        for reader in [each for name in pending.pop().output for each in readers.get(name, ())]:
            if reader.op_type not in (*GUARDED, *PASSING) or reader.name in found:
                continue
            found.add(reader.name)
            if reader.op_type in PASSING:
                pending.append(reader)
    return found


def _activation_reason(
    node: onnx.NodeProto, values: Mapping[str, Value], largest: Mapping[str, float]
) -> str:
    """Rule 4, for a value that the node makes or reads."""
    for role, names in (("output", node.output), ("input", node.input)):
        for name in names:
            size = largest.get(name, 0.0)
            if size > LIMIT:
                return (
                    f"its {role} {name!r} reaches {size:g} on the samples, beyond {LIMIT:g} "
                    "(float16's 65504, with room for other inputs)"
                )
            if 0 < size < TINY:
                return f"its {role} {name!r} stays below {size:g} on the samples, lost in float16"
    makes = [values[name].type for name in node.output if name in values]
    size = max((largest.get(name, 0.0) for name in node.input), default=0.0)
    if node.op_type == "Cast" and size > EXACT_INTEGERS and "int" in "".join(makes):
        return f"it makes integers of up to {size:g}, which float16 does not count exactly"
    return ""


# ------------------------------------------------------------------------------ conversion
def _convert(
    model: onnx.ModelProto,
    values: Mapping[str, Value],
    blocked: Reasons,
    exposed: Mapping[str, tuple[str, ...]],
) -> onnx.ModelProto:
    import onnx
    from onnxruntime.transformers import float16

    made = onnx.ModelProto()
    made.CopyFrom(model)
    own = {node.name for node in made.graph.node}
    _declare(made.graph, values)
    made = float16.convert_float_to_float16(
        made,
        keep_io_types=True,
        disable_shape_infer=True,  # every value is declared: the converter goes by that
        op_block_list=float16.DEFAULT_OP_BLOCK_LIST,
        node_block_list=list(blocked),
    )
    _drop_twins(made.graph, own)
    _drop_round_trips(made.graph, own)
    graph_values.sort_nodes(made.graph)
    graph_values.hide_captures(made.graph, exposed)
    del made.graph.value_info[:]
    return onnx.shape_inference.infer_shapes(made)


def _declare(body: onnx.GraphProto, values: Mapping[str, Value]) -> None:
    """Declare every float32 value between nodes, and nothing else."""
    import onnx

    ports = {value.name for value in (*body.input, *body.output)}
    made = [name for node in body.node for name in node.output]
    floats = [n for n in made if n not in ports and n in values and values[n].type == FLOAT]
    del body.value_info[:]
    body.value_info.extend(
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in floats
    )


def _drop_twins(body: onnx.GraphProto, own: set[str]) -> None:
    """A Cast for each of two float32 readers, of one name (onnxruntime 1.22 to 1.31)."""
    seen: set[str] = set()
    for node in list(body.node):
        if node.name not in own and node.output[0] in seen:
            body.node.remove(node)
        seen.add(node.output[0])


def _drop_round_trips(body: onnx.GraphProto, own: set[str]) -> None:
    """float32 to float16 and back, between Casts of the converter, is the value itself."""
    import onnx

    added = [node for node in body.node if node.name not in own]
    to = {node.name: onnx.helper.get_node_attr_value(node, "to") for node in added}
    halves = {
        node.output[0]: node.input[0] for node in added if to[node.name] == onnx.TensorProto.FLOAT16
    }
    ports = {value.name for value in body.output}
    renamed = {}
    for node in added:
        if to[node.name] == onnx.TensorProto.FLOAT and node.input[0] in halves:
            renamed[node.output[0]] = halves[node.input[0]]
            if node.output[0] in ports:  # a model's output keeps its name
                node.CopyFrom(
                    onnx.helper.make_node(
                        "Identity", [halves[node.input[0]]], node.output, name=node.name
                    )
                )
    for node in body.node:
        for index, name in enumerate(node.input):
            node.input[index] = renamed.get(name, name)
    _drop_unread(body, own, ports)


def _drop_unread(body: onnx.GraphProto, own: set[str], ports: set[str]) -> None:
    """Casts that the converter added and nobody reads any more; a Cast to half may follow."""
    for _ in range(2):
        read = {name for node in body.node for name in node.input} | ports
        for node in list(body.node):
            if node.name not in own and node.output[0] not in read:
                body.node.remove(node)


# ----------------------------------------------------------------------------------- check
def _check(made: onnx.ModelProto, path: Path, before: Mapping[str, onnx.TensorProto]) -> None:
    """The result is a valid model that loads here, and nothing in it was clamped."""
    import onnx

    for name, tensor in graph_values.initializers(made.graph).items():
        if tensor.data_type != onnx.TensorProto.FLOAT16 or name not in before:
            continue
        if graph_values.magnitude(onnx.numpy_helper.to_array(before[name])) > LARGEST:
            raise errors.StepFailed(f"the converter clamped the constant {name!r}")
    try:
        onnx.checker.check_model(made, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise errors.ModelRefused(
            f"the model does not convert to float16: {graph.first_line(error)}",
            remedy="block the operator that it names: it stays in float32",
        ) from error
    run_model.open_session(path, level="all")  # some releases fail in a fusion (1.27)


def _fp16_bytes(made: onnx.ModelProto) -> int:
    from math import prod

    import onnx

    half = [t for t in graph.all_tensors(made) if t.data_type == onnx.TensorProto.FLOAT16]
    return sum(2 * prod(tensor.dims) for tensor in half)
