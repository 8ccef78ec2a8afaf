"""The ONNX file itself: read with care, written whole, described in plain values.

Only steps call this, in processes of their own: what is read here is untrusted.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.model import FORMAT_LIMIT_BYTES

if TYPE_CHECKING:
    import onnx


def read(path: Path) -> onnx.ModelProto:
    """The model without its external data; :class:`errors.ModelRefused` when it is none."""
    import onnx
    from google.protobuf.message import DecodeError

    size = path.stat().st_size
    if size > FORMAT_LIMIT_BYTES:
        raise errors.ModelRefused(
            f"the model file holds {size} bytes; protobuf reads less than 2 GB",
            remedy="save the weights as external data (onnx.save(..., save_as_external_data=True))",
        )
    _refuse_other_formats(path)
    try:
        model = onnx.load(path, load_external_data=False)
    except (DecodeError, ValueError, UnicodeDecodeError) as error:
        raise errors.ModelRefused(
            f"not an ONNX model, or a truncated one: {first_line(error)}",
            remedy="name a complete .onnx file",
        ) from error
    if not model.graph.node and not model.graph.output:
        raise errors.ModelRefused(
            "not an ONNX model: the file holds no graph", remedy="name a complete .onnx file"
        )
    return model


def _refuse_other_formats(path: Path) -> None:
    with path.open("rb") as stream:
        head = stream.read(64)
    if head.startswith(b"version https://git-lfs"):
        raise errors.ModelRefused(
            "not an ONNX model but a Git LFS pointer to one", remedy="git lfs pull"
        )
    if head[4:8] == b"ORTM":
        raise errors.ModelRefused(
            "not an ONNX model but an ORT-format file, which cannot be converted back",
            remedy="name the .onnx file that it was made from",
        )


def first_line(error: Exception) -> str:
    """The first line of a library's message, bounded."""
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def confined(location: str, tensor: str) -> str:
    """``location`` when it stays in the model's folder (CVE-2022-25882, CVE-2024-27318)."""
    path = PurePosixPath(location)
    plain = location and not path.is_absolute() and "\\" not in location and "\0" not in location
    if not plain or ".." in path.parts:
        raise errors.ModelRefused(
            f"the external data of tensor {tensor!r} points outside the model's folder: "
            f"{location!r}",
            remedy="external data must lie beside the model; do not trust this file",
        )
    return path.as_posix()


def all_tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    """Every tensor of the model: of the graph, of subgraphs, of attributes and functions."""
    graphs = [model.graph]
    tensors: list[Any] = []
    nodes = [node for function in model.functions for node in function.node]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            tensors += graph.initializer
            for sparse in graph.sparse_initializer:
                tensors += [sparse.values, sparse.indices]
            nodes += graph.node
            continue
        for attribute in nodes.pop().attribute:
            if attribute.HasField("t"):
                tensors.append(attribute.t)
            if attribute.HasField("g"):
                graphs.append(attribute.g)
            tensors += attribute.tensors
            graphs += attribute.graphs
    return tensors


def save(model: onnx.ModelProto, path: Path) -> None:
    """Write the model as one file; larger ones than that can hold are refused at the door."""
    import onnx

    onnx.save_model(model, path)


def facts(model: onnx.ModelProto) -> dict[str, Any]:
    """Inputs, outputs, opsets, IR version and node count of a model."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    opsets = {entry.domain or "ai.onnx": entry.version for entry in model.opset_import}
    return {
        "inputs": [_port(v) for v in model.graph.input if v.name not in initializers],
        "outputs": [_port(value) for value in model.graph.output],
        "opset": opsets.get("ai.onnx", 0),
        "domains": dict(sorted(opsets.items())),
        "ir_version": model.ir_version,
        "nodes": len(model.graph.node),
    }


def _port(value: onnx.ValueInfoProto) -> dict[str, Any]:
    import onnx

    if not value.type.HasField("tensor_type"):
        raise errors.ModelRefused(
            f"{value.name!r} is no tensor but a {value.type.WhichOneof('value')}",
            remedy="export the model with plain tensors (for scikit-learn: ZipMap off)",
        )
    tensor = value.type.tensor_type
    shape = [_dim(dim) for dim in tensor.shape.dim]
    known = onnx.TensorProto.DataType.values()
    if tensor.elem_type not in known or tensor.elem_type == onnx.TensorProto.UNDEFINED:
        raise errors.ModelRefused(
            f"{value.name!r} has no element type that ONNX knows ({tensor.elem_type})",
            remedy="export the model again; its inputs and outputs need types",
        )
    if tensor.elem_type == onnx.TensorProto.STRING:
        dtype = "string"
    else:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type).name
    return {"name": value.name, "dtype": dtype, "shape": shape}


def _dim(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    # Exporters also write -1 and 0 for "unknown" (PaddlePaddle, Silero).
    if dim.dim_param and dim.dim_param != "?":
        return dim.dim_param
    return dim.dim_value if dim.dim_value > 0 else None
