"""Every way a run can fail: one class per cause, with its exit code and the remedy.

Exit codes (see README): 1 a gate said no, 2 wrong usage or configuration, 3 a tool, host or
device is not there, 4 a build, conversion or run failed, 5 inconclusive measurement,
130 interrupted. The command line catches :class:`EdgeError` once, in ``edge.cli.main``.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import ClassVar


class EdgeError(Exception):
    """A failure that is reported in words, never as a traceback.

    ``message`` says what happened and where; ``remedy`` says what to do about it.
    """

    exit_code: ClassVar[int] = 4

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


class GateFailed(EdgeError):
    """Something was built or measured, and a gate said no."""

    exit_code = 1


class ParityFailed(GateFailed):
    """An artifact computes something else than the source did."""


class BudgetExceeded(GateFailed):
    """A size or latency budget of the target is not met."""


class ClosureIncomplete(GateFailed):
    """An operator configuration lacks an operator, opset or type that the artifact needs."""


class UsageError(EdgeError):
    """Wrong usage or configuration: the user has to change what was asked for."""

    exit_code = 2


class ConfigError(UsageError):
    """A target, project or device file is wrong; the message names file and key path."""


class ModelRefused(UsageError):
    """The source is no usable model for what was asked."""


class Unavailable(EdgeError):
    """A tool, a host or a device is not there."""

    exit_code = 3


class ToolMissing(Unavailable):
    """An outside tool (compiler, npm, Xcode ...) is not on this host."""


class FetchFailed(Unavailable):
    """A pinned file could not be fetched, or what came has another hash than the pin."""


class DeviceUnreachable(Unavailable):
    """A device did not answer, refused the login, or the connection broke."""


class HostKeyRejected(Unavailable):
    """The device's host key is unknown, changed or revoked."""


class StepFailed(EdgeError):
    """A step of a build failed; the message names the step and the last lines it printed."""


class StoreDamaged(EdgeError):
    """A stored result is not what its record says."""


class RunFailed(EdgeError):
    """A command or a runner failed on this machine or on a device."""


class DeployFailed(EdgeError):
    """A bundle could not be brought onto a device; what was there before is still active."""


class Inconclusive(EdgeError):
    """A measurement was taken but does not allow a verdict."""

    exit_code = 5


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """``did you mean 'x'?``, or the list of what is known."""
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return "known: " + ", ".join(known) if known else ""
