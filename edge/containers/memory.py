"""How much memory a pod may take: what the bundle was measured to need, with a margin."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import ceil, prod

from edge import errors, samples
from edge.field import Bundle
from edge.results import Results

MIB = 2**20
MARGIN = 1.25  # on the measured peak: allocators differ between kernels and runs
# A number in JSON, with sign, exponent and comma; what else a request holds. The server counts
# the values of a request by the first one, too (VALUE_BYTES of templates/container/image/serve.py).
ELEMENT_BYTES, REQUEST_BYTES = 32, 64 << 10
OPEN_DIMS = 8  # how much larger than the golden samples a request with open dimensions may be
# What a request takes while it is parsed, in sizes of its body, and an answer while it is written.
PARSED, WRITTEN = 10, 5
FEWEST, MOST = 8, 32  # connections at once
HELD = 2**29  # bytes that they may hold before there are fewer than MOST
_SAID = re.compile(r"([1-9][0-9]{0,6})(Mi|Gi)")


@dataclass(frozen=True)
class Memory:
    """Limit and request of a pod in MiB, and where the number is from."""

    mib: int
    source: str

    def refuse_less_than(self, size: int) -> None:
        """Raise :class:`errors.UsageError` for less than ``size`` bytes, those of the bundle."""
        if self.mib * MIB < size:
            raise errors.UsageError(
                f"{self.mib} MiB ({self.source}) are less than the bundle itself has, "
                f"{size / MIB:.1f} MiB",
                remedy="leave --memory out: the peak that edge bench measured is taken then",
            )


@dataclass(frozen=True)
class Load:
    """The largest request and answer in bytes, and how many connections may hold one."""

    body: int
    answer: int

    @property
    def connections(self) -> int:
        """Connections at once."""
        return max(FEWEST, min(MOST, HELD // max(self.body, self.answer)))

    @property
    def held(self) -> int:
        """Bytes of all connections, and of the one request that is parsed, run and answered."""
        each = max(self.body, self.answer)
        return self.connections * each + max(PARSED * self.body, WRITTEN * self.answer)


def load(what: Bundle) -> Load:
    """What a server of the bundle has to bear, from the sizes of the golden samples."""
    totals: dict[tuple[str, int], int] = {}
    for tensor in samples.read_index(what.folder / "samples"):
        place = tensor.role, tensor.sample
        totals[place] = totals.get(place, 0) + prod(tensor.shape)
    factor = 1 if what.manifest["target"].get("dims") == "bound" else OPEN_DIMS

    def most(role: str) -> int:
        elements = max((size for place, size in totals.items() if place[0] == role), default=0)
        return REQUEST_BYTES + ELEMENT_BYTES * factor * elements

    return Load(most("input"), most("output"))


def said(text: str) -> Memory:
    """``512Mi`` or ``2Gi``, as the user said it."""
    match = _SAID.fullmatch(text)
    if not match:
        raise errors.UsageError(f"--memory {text} is no size", remedy="say 512Mi or 2Gi")
    return Memory(int(match[1]) * (1024 if match[2] == "Gi" else 1), "as said by --memory")


def measured(database: Results, what: Bundle, device: str) -> Memory:
    """From the largest peak of this very bundle on a device, measured by the Python runner.

    Raises :class:`errors.UsageError` when there is no such measurement.
    """
    target = what.manifest["target"]["name"]
    found = database.find(model=what.manifest["model"]["name"], target=target, device=device)
    # The C runner's peak lacks Python and numpy, which the server is made of.
    peaks = [
        (each.peak_bytes, each.id)
        for each in found
        if each.manifest_sha256 == what.digest and each.runner == "python" and each.peak_bytes
    ]
    if not peaks:
        raise errors.UsageError(
            f"the peak memory of the bundle {what.name} was not measured on {device}",
            remedy=f"edge bench {target} -d {device} --runner python, or say --memory 512Mi",
        )
    (peak, record), bears = max(peaks), load(what)
    return Memory(
        ceil((MARGIN * peak + bears.held) / MIB),
        f"measured peak {peak / MIB:.1f} MiB on {device} (record {record}) x {MARGIN:g} + "
        f"{bears.held / MIB:.1f} MiB for requests of {bears.body / MIB:.2f} MiB, answers of "
        f"{bears.answer / MIB:.2f} MiB and {bears.connections} connections",
    )
