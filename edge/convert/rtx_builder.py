"""TensorRT for RTX (PyPI ``tensorrt-rtx``) in this process: its one logger, its networks.

It needs no GPU to parse and to build. A process has one logger, the first that was made (another
one is ignored), so messages are collected in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from edge import errors

if TYPE_CHECKING:
    import tensorrt_rtx as trt

T = TypeVar("T")
DISTRIBUTION = "tensorrt-rtx"
MAX_MESSAGES = 2000
# By what the first reason holds.
REMEDIES = (
    ("SM75", 'leave "7.5" out of tensorrt.compute_capabilities, or say precision = "fp16"'),
    ("profile", 'say dims = "bound", or give the open dimension a name and a profile'),
    ("", 'say dims = "bound", or use the targets cuda or tensorrt, where nodes may fall back'),
)


@cache
def _log() -> Any:
    """The process's logger: ``messages`` are (severity's name, text)."""
    import tensorrt_rtx as trt

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.messages: list[tuple[str, str]] = []

        def log(self, severity: Any, text: str) -> None:
            if len(self.messages) < MAX_MESSAGES:
                self.messages.append((severity.name, text))

    return Log()


class Session:
    """A builder and a network that is strongly typed: precisions are the model's own."""

    def __init__(self) -> None:
        import tensorrt_rtx as trt

        self.log = _log()
        self.log.messages.clear()
        self.builder: trt.Builder = trt.Builder(self.log)
        flag = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        self.network: trt.INetworkDefinition = self.builder.create_network(flag)
        self.parser: trt.OnnxParser = trt.OnnxParser(self.network, self.log)

    def reasons(self) -> list[str]:
        """What it said of errors, the first line of each, without its source files' lines."""
        kinds = ("ERROR", "INTERNAL_ERROR")
        return [line(text) for kind, text in self.log.messages if kind in kinds]

    def parsed(self) -> list[dict[str, Any]]:
        """The parser's errors: node's index (-1: none), name, operator, and why."""
        found = [self.parser.get_error(n) for n in range(self.parser.num_errors)]
        return [
            {
                "node": int(each.node()),
                "name": each.node_name(),
                "operator": each.node_operator(),
                "why": _why(each.desc()) or each.code().name,
            }
            for each in found
        ]

    def refused(self, doing: str) -> errors.ModelRefused:
        """The error with TensorRT's own first reason."""
        said = [f"{each['operator']} {each['name']}: {each['why']}" for each in self.parsed()]
        reasons = [each for each in said + self.reasons() if each.strip(": ")]
        why = reasons[0] if reasons else "it does not say why"
        return errors.ModelRefused(
            f"TensorRT-RTX {version()} cannot {doing} the model: {why}",
            remedy=next((how for mark, how in REMEDIES if mark in why)),
        )


def line(text: str) -> str:
    """The first line that is not empty, bounded."""
    lines = [each.strip() for each in text.splitlines() if each.strip()]
    return lines[0][:300] if lines else ""


def _why(text: str) -> str:
    return "" if text in {"", "false"} else line(text)


def version() -> str:
    """The installed release."""
    import tensorrt_rtx as trt

    return str(trt.__version__)


def with_fresh_memory(work: Callable[[], T]) -> T:
    """``work()`` in the first thread that this process starts for it: the same bytes each time.

    Where two outputs are equal to it, the builder takes that first whose object lies lower in
    memory: Silero came out in two forms, 15 and 9 of 24 times, by the length of a path. Memory of
    a new thread is a new arena of glibc's, where addresses grow in the order of allocation.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()
