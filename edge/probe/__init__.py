"""Facts about a device: what it is (:func:`probe`) and the state it is in (:func:`context`).

A probe is a piece of shell and a pure parser from its lines to a value. All probes of one call
run in one command on the device; each one's lines come behind a mark with a random word, so that
an odd answer of one probe is not taken for another's. A probe that finds nothing gives None, 0 or
nothing: devices differ too much for any fact to be required. Reads of /proc and /sys go below a
root that can be given, because virtual machines have neither frequency nor temperature to test.
A device with Windows is asked in its own way (``windows``), for the same values.
"""

from __future__ import annotations

import sys

from edge.devices.base import Device, DeviceSettings, device_path
from edge.probe.asking import Lines, Probe, ask, read, script
from edge.probe.facts import FACTS, NEAREST, DeviceFacts
from edge.probe.gpu import Gpu, GpuState
from edge.probe.state import CONTEXT, Context

__all__ = [
    "CONTEXT",
    "FACTS",
    "NEAREST",
    "Context",
    "DeviceFacts",
    "Gpu",
    "GpuState",
    "Lines",
    "Probe",
    "context",
    "probe",
    "python_of",
    "read",
    "script",
]


def probe(device: Device, *, root: str = "", python: str = "") -> DeviceFacts:
    """What ``device`` is. ``root`` stands before /proc and /sys, where it has them.

    ``python`` is asked for its packages (default: :func:`python_of`). Raises
    :class:`errors.RunFailed` when the device has no usable shell.
    """
    python = python or python_of(device.settings)
    if device.settings.os == "windows":
        from edge.probe import windows

        return windows.probe(device, python)
    return DeviceFacts(**ask(device, FACTS, root, python))


def context(device: Device, *, root: str = "") -> Context:
    """The state ``device`` is in. ``root`` stands before /proc and /sys, where it has them."""
    if device.settings.os == "windows":
        from edge.probe import windows

        return windows.context(device)
    return Context(**ask(device, CONTEXT, root, ""))


def python_of(settings: DeviceSettings) -> str:
    """The word that starts Python on a device, from its home folder.

    What ``devices.toml`` says; else this interpreter on this machine, which need not be on the
    PATH, and the usual name elsewhere.
    """
    said = settings.python
    if not said and settings.kind == "local":
        return sys.executable
    if settings.os == "windows":
        return said or "python"
    return device_path(said) if "/" in said else said or "python3"
