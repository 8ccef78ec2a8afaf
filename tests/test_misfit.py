"""What a device says of itself against what a bundle requires: refused before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from edge import errors, field
from edge.probe import DeviceFacts


def bundle(**requires: str) -> field.Bundle:
    manifest: dict[str, Any] = {
        "model": {"name": "m", "version": "1"},
        "target": {"name": "t"},
        "runtime": {"requires": requires},
    }
    return field.Bundle(Path("nowhere"), manifest, "")


PI_5 = DeviceFacts(arch="aarch64", libc="glibc 2.36", cpu_flags=("asimd", "asimdhp", "fphp"))
PI_4 = DeviceFacts(arch="aarch64", libc="glibc 2.36", cpu_flags=("asimd", "fp"))
NEEDS = {"arch": "aarch64", "glibc": "2.34", "cpu_flags": "asimdhp"}


def test_a_device_that_has_all_of_it() -> None:
    field.refuse_misfit(bundle(**NEEDS), PI_5, "pi")
    field.refuse_misfit(bundle(), DeviceFacts(), "pi")


@pytest.mark.parametrize(
    ("facts", "needs", "why"),
    [
        (PI_4, NEEDS, "the CPU of the device pi lacks asimdhp"),
        (PI_5, {**NEEDS, "arch": "x86_64"}, "the device pi has a aarch64 CPU"),
        (PI_5, {**NEEDS, "glibc": "2.38"}, "needs glibc 2.38"),
    ],
)
def test_what_a_device_lacks_is_named(facts: DeviceFacts, needs: dict[str, str], why: str) -> None:
    with pytest.raises(errors.Unavailable, match=why) as caught:
        field.refuse_misfit(bundle(**needs), facts, "pi")
    assert caught.value.remedy


def test_what_a_device_does_not_say_is_no_lack() -> None:
    field.refuse_misfit(bundle(**NEEDS), DeviceFacts(arch="aarch64"), "pi")
