"""Device files (``devices.toml``): machines that take bundles and measure them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from edge.config.fields import Name, Strict


class DeviceSpec(Strict):
    """One device of ``devices.toml``.

    ``folder`` is where bundles live there, relative to the login's home (default: edgewright).
    ``os`` says whose commands its SSH server takes. ``python`` runs bundles' Python runners there
    (default: python3, on Windows python), for example that of a virtual environment. On a Mac
    with a phone: ``team`` is the development team that signs the app, ten letters and digits, and
    ``phone`` the phone's name, identifier or UDID (default: the only one that can be used).
    """

    kind: Literal["local", "ssh"]
    folder: str = ""
    host: str = ""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    user: str | None = None
    identity_file: str | None = None
    known_hosts: str | None = None
    ssh_config: str | None = None
    os: Literal["posix", "windows"] = "posix"
    python: str = ""
    phone: str = ""
    team: Annotated[str, Field(pattern="^([0-9A-Z]{10})?$")] = ""
    connect_timeout: Annotated[float, Field(gt=0)] = 10.0

    @model_validator(mode="after")
    def _host(self) -> DeviceSpec:
        if self.kind == "ssh" and not self.host:
            raise ValueError("an ssh device needs host")
        if self.phone and not self.team:
            raise ValueError("phone needs team, the development team that signs the app")
        return self


class DevicesFile(Strict):
    """``devices.toml``."""

    devices: dict[Name, DeviceSpec] = {}
