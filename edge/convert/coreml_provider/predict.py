"""The prediction: every node's verdict, and the partitions."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.convert.coreml_provider.judge import judge
from edge.convert.coreml_provider.options import Options
from edge.convert.coreml_provider.partition import groups, worthwhile
from edge.convert.coreml_provider.rule import Params
from edge.convert.coreml_provider.view import Graph, Node, graphs
from edge.graph import first_line

if TYPE_CHECKING:
    import onnx

IN_SUBGRAPH = "in a subgraph, EnableOnSubgraphs is 0"
TRIVIAL = "only trivial operators beside it"


@dataclass(frozen=True)
class Verdict:
    """A node: the partition that takes it (counted from 0), or None and the reason."""

    graph: str
    index: int
    name: str
    operator: str
    partition: int | None = None
    reason: str = ""


@dataclass(frozen=True)
class Prediction:
    """All nodes, subgraphs' too, in the order of the graphs and files; number of partitions."""

    nodes: tuple[Verdict, ...]
    partitions: int

    @property
    def taken(self) -> int:
        """Nodes that a partition takes."""
        return sum(each.partition is not None for each in self.nodes)

    @property
    def share(self) -> float:
        """Share of the nodes that are taken; 0 of no nodes is 0."""
        return self.taken / len(self.nodes) if self.nodes else 0.0

    def refused(self) -> dict[str, dict[str, int]]:
        """How many nodes stay on the CPU, by operator and reason, sorted."""
        counted = Counter(
            (each.operator, each.reason) for each in self.nodes if each.partition is None
        )
        found: dict[str, dict[str, int]] = {}
        for (operator, reason), count in sorted(counted.items()):
            found.setdefault(operator, {})[reason] = count
        return found

    def to_json(self) -> dict[str, Any]:
        """Counts, and every node."""
        return {**self.counts(), "node": [asdict(each) for each in self.nodes]}

    def counts(self) -> dict[str, Any]:
        """``nodes``, ``taken``, ``share`` (0 to 1) and ``partitions``."""
        return {
            "nodes": len(self.nodes),
            "taken": self.taken,
            "share": round(self.share, 6),
            "partitions": self.partitions,
        }


def predict(model: onnx.ModelProto, options: Options, *, coreml: int) -> Prediction:
    """What the provider takes of the model that its session hands it.

    ``coreml`` is the device's Core ML version (see ``coreml_version``). The model gets shapes and
    its Constant nodes become initializers: give a copy of what is still needed.
    Raises :class:`errors.ModelRefused` for a model that is no valid one.
    """
    params = Params(options.mlprogram, coreml, options.require_static_input_shapes)
    found: list[Verdict] = []
    partitions = 0
    for graph in graphs(model):
        if graph.path and not options.enable_on_subgraphs:
            found += [replace(_verdict(graph, node), reason=IN_SUBGRAPH) for node in graph.nodes]
            continue
        verdicts, more = _graph(graph, params, partitions)
        found += verdicts
        partitions += more
    return Prediction(tuple(found), partitions)


def _graph(graph: Graph, params: Params, first: int) -> tuple[list[Verdict], int]:
    reasons = {node.index: _reason(node, params) for node in graph.nodes}
    supported = {index for index, reason in reasons.items() if not reason}
    every = groups(graph.nodes, supported)
    kept = [group for group in every if worthwhile(group)]
    place = {node.index: first + at for at, group in enumerate(kept) for node in group}
    return [
        replace(
            _verdict(graph, node),
            partition=place.get(node.index),
            reason=reasons[node.index] or ("" if node.index in place else TRIVIAL),
        )
        for node in graph.nodes
    ], len(kept)


def _reason(node: Node, params: Params) -> str:
    try:
        return judge(node, params)
    except (ValueError, IndexError, TypeError, ArithmeticError) as error:
        raise errors.ModelRefused(
            f"node {node.proto.name or node.index!r} ({node.kind}) is no valid one: "
            f"{first_line(error)}",
            remedy="check the model with onnx.checker.check_model",
        ) from error


def _verdict(graph: Graph, node: Node) -> Verdict:
    domain = f"{node.proto.domain}:" if node.proto.domain not in {"", "ai.onnx"} else ""
    return Verdict(graph.path, node.index, node.proto.name, f"{domain}{node.kind}")
