"""What is mended in a graph that skl2onnx made: outputs, names, shapes, opsets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edge import errors
from edge.sources.sklearn_ports import Input, Output

if TYPE_CHECKING:
    import onnx

_LAST_SCORE = "last_score"


def mend(model: onnx.ModelProto, port: Input, wanted: tuple[Output, ...], *, binary: bool) -> None:
    """Keep the wanted outputs alone, name input and outputs, make double opset entries one.

    ``binary``: scores of a classifier with two classes are one column, as in scikit-learn.
    """
    names = [port.name, *(each.name for each in wanted)]
    if len(set(names)) != len(names):
        raise errors.UsageError(
            f"the input and an output are both called {port.name}",
            remedy="give the outputs other names in the project",
        )
    _select(model, wanted)
    _one_opset_each(model)
    sources = [each.name for each in model.graph.output]
    for at, each in enumerate(wanted):
        if each.purpose == "scores" and binary:
            sources[at] = _last_column(model, sources[at])
    _declare_input(model, port, sources)
    _declare_outputs(model, wanted, sources)
    del model.graph.value_info[:]


def bind_batch(model: onnx.ModelProto, batch: int | str) -> None:
    """Give the first dimension of input and outputs its size, or the name of its symbol."""
    for value in (*model.graph.input, *model.graph.output):
        first = value.type.tensor_type.shape.dim[0]
        first.Clear()
        if isinstance(batch, int):
            first.dim_value = batch
        else:
            first.dim_param = batch


def _select(model: onnx.ModelProto, wanted: tuple[Output, ...]) -> None:
    """Keep the wanted outputs, and of the nodes and initializers what they need."""
    outputs = list(model.graph.output)
    if max(each.index for each in wanted) >= len(outputs):
        raise errors.ModelRefused(
            f"the converter gives {len(outputs)} outputs; expected "
            f"{', '.join(each.name for each in wanted)}",
            remedy="please report the estimator",
        )
    kept = [outputs[each.index] for each in wanted]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    needed, nodes = {each.name for each in kept}, []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output):
            nodes.append(node)
            needed.update(node.input)
            needed.update(_captured(node))
    constants = [each for each in model.graph.initializer if each.name in needed]
    del model.graph.node[:], model.graph.initializer[:]
    model.graph.node.extend(reversed(nodes))
    model.graph.initializer.extend(constants)


def _captured(node: onnx.NodeProto) -> set[str]:
    """Names that the subgraphs of a node take from outside (or make themselves: harmless)."""
    inner = [each for attribute in node.attribute for each in (attribute.g, *attribute.graphs)]
    names: set[str] = set()
    for subgraph in inner:
        for each in subgraph.node:
            names |= set(each.input) | _captured(each)
        names |= {value.name for value in subgraph.output}
    return names


def _one_opset_each(model: onnx.ModelProto) -> None:
    """skl2onnx writes a domain twice, ``('', 20), ('', 20)``: the higher entry stays."""
    versions: dict[str, int] = {}
    for entry in model.opset_import:
        versions[entry.domain] = max(versions.get(entry.domain, 0), entry.version)
    del model.opset_import[:]
    for domain, version in sorted(versions.items()):
        model.opset_import.add(domain=domain, version=version)


def _last_column(model: onnx.ModelProto, source: str) -> str:
    """[batch, 1]: skl2onnx gives [-d, d] for some binary classifiers and [d] for others."""
    import numpy as np
    from onnx import helper, numpy_helper

    index, made = _free(model, "last_column"), _free(model, _LAST_SCORE)
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1], np.int64), index))
    model.graph.node.append(helper.make_node("Gather", [source, index], [made], made, axis=1))
    return made


def _declare_input(model: onnx.ModelProto, port: Input, sources: list[str]) -> None:
    """The input as the project says it; another dtype than float32 is cast to it first."""
    import numpy as np
    from onnx import TensorProto, helper

    del model.graph.input[:]
    if port.dtype != "float32":
        inner = _free(model, f"{port.name}_float32")
        _rename(model, port.name, inner, sources)
        cast = helper.make_node("Cast", [port.name], [inner], inner, to=TensorProto.FLOAT)
        model.graph.node.insert(0, cast)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(port.dtype))
    shape: list[Any] = ["batch", port.shape[1]]
    model.graph.input.append(helper.make_tensor_value_info(port.name, kind, shape))


def _declare_outputs(
    model: onnx.ModelProto, wanted: tuple[Output, ...], sources: list[str]
) -> None:
    from onnx import TensorProto, helper

    kept = [_columns(each) for each in model.graph.output]
    del model.graph.output[:]
    for at, each in enumerate(wanted):
        one = each.purpose == "column" or sources[at].startswith(_LAST_SCORE)
        if each.name != sources[at]:
            if each.name in _names(model):
                _rename(model, each.name, _free(model, f"{each.name}_inner"), sources)
            _rename(model, sources[at], each.name, sources)
        whole = each.purpose in ("label", "column")
        kind = TensorProto.INT64 if whole else TensorProto.FLOAT
        shape: list[Any] = ["batch"]
        if each.purpose != "label":
            shape.append(1 if one else kept[at])
        model.graph.output.append(helper.make_tensor_value_info(each.name, kind, shape))


def _columns(value: onnx.ValueInfoProto) -> int | None:
    dims = value.type.tensor_type.shape.dim
    return dims[1].dim_value if len(dims) == 2 and dims[1].dim_value > 0 else None


def _names(model: onnx.ModelProto) -> set[str]:
    found = {each.name for each in (*model.graph.initializer, *model.graph.input)}
    for node in model.graph.node:
        found |= {*node.input, *node.output} | _captured(node)
    return found


def _free(model: onnx.ModelProto, name: str) -> str:
    taken = _names(model)
    while name in taken:
        name += "_"
    return name


def _rename(model: onnx.ModelProto, old: str, new: str, sources: list[str]) -> None:
    """Another name for a tensor, wherever it stands; also in the list ``sources``."""
    for constant in model.graph.initializer:
        constant.name = new if constant.name == old else constant.name
    _rename_in(model.graph, old, new)
    sources[:] = [new if each == old else each for each in sources]


def _rename_in(graph: onnx.GraphProto, old: str, new: str) -> None:
    for node in graph.node:
        for names in (node.input, node.output):
            for at, name in enumerate(names):
                if name == old:
                    names[at] = new
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                _rename_in(inner, old, new)
