"""Devices: machines that run commands and take files, this one included."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from edge.devices.base import Device, DeviceSettings

__all__ = ["Device", "DeviceSettings", "create", "open_device"]


def create(settings: DeviceSettings) -> Device:
    """The device that ``settings`` describe, not connected yet."""
    if settings.kind == "ssh" and settings.os == "windows":
        from edge.devices.windows import Windows

        return Windows(settings)
    if settings.kind == "ssh":
        from edge.devices.ssh import Ssh

        return Ssh(settings)
    from edge.devices.local import Local

    return Local(settings)


@contextmanager
def open_device(settings: DeviceSettings) -> Iterator[Device]:
    """The device, connected; it is closed at the end, however that comes.

    Raises :class:`errors.DeviceUnreachable`, :class:`errors.HostKeyRejected` and
    :class:`errors.ConfigError`.
    """
    device = create(settings)
    device.connect()
    try:
        yield device
    finally:
        device.close()
