"""Groups of nodes that run as one Core ML model each.

``onnxruntime/core/providers/partitioning_utils.cc`` (CreateSupportedPartitionNodeGroups) as
``coreml_execution_provider.cc`` (GetCapability) calls it, which since 1.27 keeps no group of
trivial operators alone (microsoft/onnxruntime#28293).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence

from edge import errors
from edge.convert.coreml_provider.judge import ROWS
from edge.convert.coreml_provider.view import Node


def groups(nodes: Sequence[Node], supported: Collection[int]) -> list[list[Node]]:
    """The largest groups, greedily: a wave over the graph in topological order.

    A wave takes every supported node that it comes to and stops at unsupported ones that read
    what the wave's group makes; from those the next wave starts. Nodes of a group need not touch.
    Raises :class:`errors.ModelRefused` for a graph with a cycle.
    """
    waiting = {node.index: len(node.sources) for node in nodes}
    ready = deque(node for node in nodes if not node.sources)
    found: list[list[Node]] = []
    while ready:
        group, ready = _wave(ready, supported, waiting)
        if group:
            found.append(group)
    if any(waiting.values()):
        raise errors.ModelRefused("the graph has a cycle", remedy="export the model again")
    return found


def _wave(
    ready: deque[Node], supported: Collection[int], waiting: dict[int, int]
) -> tuple[list[Node], deque[Node]]:
    """One group, and the nodes that the next wave starts from."""
    group: list[Node] = []
    border: set[int] = set()
    later: deque[Node] = deque()
    while ready:
        node = ready.popleft()
        taken = node.index in supported
        if not taken and node.index in border:
            later.append(node)
            continue
        if taken:
            group.append(node)
            border |= {each.index for each in node.readers}
        for reader in node.readers:
            waiting[reader.index] -= 1
            if not waiting[reader.index]:
                ready.append(reader)
    return group, later


def worthwhile(group: Sequence[Node]) -> bool:
    """Whether a node of it is not trivial."""
    return not all(ROWS[node.kind].trivial for node in group)
