"""Where a model's nodes ran, from ONNX Runtime's profile (or one of its form).

ONNX Runtime places nodes on any provider that takes them, down to the CPU: what was asked for
says nothing of what ran.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from edge import errors

MAX_PROFILE_BYTES = 2**27
MAX_NS = 10**15  # eleven days
ORT = "ExecutionProvider"
CPU = f"CPU{ORT}"
CONTROL_FLOW = ("If", "Loop", "Scan")
_PROVIDER = re.compile(r"[A-Za-z0-9_.:+-]{1,64}")


class Part(NamedTuple):
    """What one provider ran: nodes, their kernels' time in ns, and both as shares of the whole.

    ``time`` is what the host waited for: kernels on a GPU go on after theirs was read, so that a
    GPU's share of the time is a lower bound.
    """

    nodes: int
    ns: int
    node_share: float
    time_share: float

    def __str__(self) -> str:
        return f"{self.nodes} nodes ({self.node_share:.0%}, {self.time_share:.0%} of their time)"


Placement = Mapping[str, Part]


def can_fall_back(provider: str) -> bool:
    """Whether nodes may run elsewhere: under ONNX Runtime, with any provider but the CPU's.

    OpenVINO compiles for one device, an engine of TensorRT runs as a whole.
    """
    return _name(provider).endswith(ORT) and provider != CPU


def _name(provider: str) -> str:
    """As profiles have it: a provider of ONNX Runtime without the compute units after a colon."""
    name = provider.partition(":")[0]
    return name if name.endswith(ORT) else provider


def read(profile_json: bytes) -> dict[str, Part]:
    """Nodes and time by execution provider; a node that ran several times is one.

    What a provider fused (a TensorRT engine, OpenVINO's part of the graph) is one node. Raises
    :class:`errors.RunFailed` for a profile that is larger than ``MAX_PROFILE_BYTES`` or was not
    written to its end.
    """
    if len(profile_json) > MAX_PROFILE_BYTES:
        raise errors.RunFailed(f"the profile has more than {MAX_PROFILE_BYTES} bytes")
    try:
        events = json.loads(profile_json)
    except (ValueError, RecursionError) as error:
        said = "".join(c if c.isprintable() else "?" for c in str(error))
        raise errors.RunFailed(f"the profile is no JSON: {said}") from error
    nodes: dict[str, set[str]] = {}
    spent: dict[str, int] = {}
    for event in events if isinstance(events, list) else []:
        if not isinstance(event, dict) or not isinstance(facts := event.get("args"), dict):
            continue
        provider = facts.get("provider")
        if isinstance(provider, str) and _PROVIDER.fullmatch(provider):
            # A node is in the profile once a run; in subgraphs names repeat.
            node = f"{event.get('name')}/{facts.get('node_index')}"
            nodes.setdefault(provider, set()).add(node)
            spent[provider] = spent.get(provider, 0) + _own(event, facts, provider)
    return _shares({name: (len(nodes[name]), spent[name]) for name in sorted(nodes)})


def _own(event: Mapping[str, Any], facts: Mapping[str, Any], provider: str) -> int:
    """A node's own time in ns: that of a body is in the profile once more, node by node."""
    inside = facts.get("op_name") in CONTROL_FLOW and provider.endswith(ORT)
    return 0 if inside else _ns(event.get("dur"))


def _ns(microseconds: Any) -> int:
    """An event's duration; 0 for what is none."""
    if isinstance(microseconds, bool) or not isinstance(microseconds, int | float):
        return 0
    return round(microseconds * 1000) if 0 <= microseconds <= MAX_NS / 1000 else 0


def _shares(found: Mapping[str, tuple[int, int]]) -> dict[str, Part]:
    nodes = sum(count for count, _ in found.values())
    time = sum(ns for _, ns in found.values())
    return {
        # Where every kernel was shorter than a microsecond, nodes stand for their time.
        name: Part(count, ns, count / nodes, ns / time if time else count / nodes)
        for name, (count, ns) in found.items()
    }


def require(found: Placement, provider: str, least_nodes: float, least_time: float) -> None:
    """Raise :class:`errors.RunFailed` where ``provider`` ran less than these shares (0 to 1)."""
    part = found.get(_name(provider))
    if part is None:
        raise errors.RunFailed(
            f"{provider} ran no node; nodes ran like this: {text(found) or 'none'}",
            remedy="use a target whose operators this provider has",
        )
    if part.node_share >= least_nodes and part.time_share >= least_time:
        return
    least = f"{least_nodes:.4g} of the nodes and {least_time:.4g} of their time"
    raise errors.RunFailed(
        f"{provider} was to run {least}, but nodes ran like this: {text(found) or 'none'}",
        remedy="use a target whose operators this provider has, or lower its [placement]",
    )


def text(found: Placement) -> str:
    """In words."""
    return ", ".join(f"{part} on {name}" for name, part in found.items())


def to_json(found: Placement) -> dict[str, dict[str, float]]:
    """For records: by provider ``nodes``, ``ns``, ``node_share``, ``time_share``."""
    return {name: part._asdict() for name, part in found.items()}
