"""Which nodes TensorRT's parser takes, and what would fall back, found without a GPU.

Full TensorRT cannot be had on a host without a GPU. The parser of TensorRT-RTX has the same
source (onnx-tensorrt) and is the nearest that runs here: what it says is named after it, and full
TensorRT, with plugins and other kernels, may say otherwise.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import graph
from edge.step import Facts, step

if TYPE_CHECKING:
    import onnx

    from edge.convert.rtx_builder import Session

MOST_NAMED = 100


@step(version=1, tools=("onnx", "tensorrt-rtx?"), timeout=1800, extra="rtx")
def rtx_partition(out: Path, *, model: Path) -> Facts:  # noqa: ARG001 - facts alone
    """Facts: ``partition``, None where ``tensorrt-rtx`` is not installed.

    Else ``parser`` with its version, ``nodes``, ``supported_nodes``, ``subgraphs`` (connected
    parts that it takes), ``unsupported`` (the first 100: name, operator, why) and ``errors``, what
    it says of no single node.
    """
    if find_spec("tensorrt_rtx") is None:
        return {"partition": None}
    from edge.convert.rtx_builder import Session

    return {"partition": partition(graph.read(model), model.read_bytes(), Session())}


def partition(loaded: onnx.ModelProto, data: bytes, session: Session) -> dict[str, Any]:
    """The facts of :func:`rtx_partition` for a model and its serialized form."""
    from edge.convert import rtx_builder

    parser = session.parser
    supported = bool(parser.supports_model_v2(data))
    taken = {node for n in range(parser.num_subgraphs) for node in parser.get_subgraph_nodes(n)}
    said = session.parsed()
    nodes = list(loaded.graph.node)
    left = [n for n in range(len(nodes)) if n not in taken]
    general = [each["why"] for each in said if _of(each, nodes) is None]
    if not supported and not left and not general:
        general = session.reasons()[:1] or ["it does not say why"]
    return {
        "parser": f"{rtx_builder.DISTRIBUTION} {rtx_builder.version()}",
        "supported": supported,
        "nodes": len(nodes),
        "supported_nodes": len(nodes) - len(left),
        "subgraphs": parser.num_subgraphs,
        "unsupported": [_entry(n, nodes[n], said, nodes) for n in left[:MOST_NAMED]],
        "errors": list(dict.fromkeys(general)),
    }


def _of(error: dict[str, Any], nodes: list[onnx.NodeProto]) -> int | None:
    """The node that an error is about; None for one inside a subgraph, or of none at all."""
    place = error["node"]
    known = 0 <= place < len(nodes) and nodes[place].op_type == error["operator"]
    return place if known else None


def _entry(
    place: int, node: onnx.NodeProto, said: list[dict[str, Any]], nodes: list[onnx.NodeProto]
) -> dict[str, str]:
    why = next((each["why"] for each in said if _of(each, nodes) == place), "")
    operator = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    return {"name": node.name or node.output[0], "operator": operator, "why": why}
