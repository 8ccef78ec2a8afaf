"""How far an artifact's outputs are from the golden ones, and whether that is within tolerance.

**The rule**, that of numpy.allclose, torch.testing and ONNX's own tests, with a floor: a
floating-point element ``a`` is within tolerance of its expected value ``e`` when

    |a - e| <= max_abs + max_rel * max(|e|, floor)

A limit that is not given counts as 0, so ``max_abs`` alone is a limit on the figure ``max_abs``
and ``max_rel`` alone one on the figure ``max_rel``. ``floor`` keeps elements near zero from
making relative differences meaningless. ``sqnr_db`` and ``argmax`` (at least so much) are limits
of their own beside it. With no limit given at all, the values must be equal.

What no tolerance forgives: another dtype, another shape, NaN or infinities at other places than
expected, an output with elements of which none is finite, an output missing, added or renamed.
Integer outputs must be equal unless ``max_abs >= 1`` is given (quantized outputs), booleans
always (a bool differs by at most 1, so such a limit would allow everything).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from edge import errors

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

T = TypeVar("T")
FLOOR = 1e-3
CHUNK = 2**18  # elements taken to float64 at a time: 2 MB an array
ZERO_BY_ZERO = "0/0: expected and actual are all zeros"
EMPTY = "no elements"
NOTHING_FINITE = "no finite element to compare"


@dataclass(frozen=True)
class Tolerance:
    """Limits on an output's differences; the module's docstring says how they combine.

    ``max_abs`` and ``floor`` in the output's unit, ``max_rel`` and ``argmax`` (of the rows) as
    fractions, ``sqnr_db`` in decibels. Raises :class:`errors.ConfigError` for a limit that could
    never fail or never hold (NaN, infinite, negative, a floor that is not above zero).
    """

    max_abs: float | None = None
    max_rel: float | None = None
    floor: float = FLOOR
    sqnr_db: float | None = None
    argmax: float | None = None

    def __post_init__(self) -> None:
        highest = {"argmax": 1.0}
        lowest = {"sqnr_db": -math.inf, "floor": 5e-324}
        for field in fields(self):
            limit, low = getattr(self, field.name), lowest.get(field.name, 0.0)
            high = highest.get(field.name, math.inf)
            if limit is not None and not (math.isfinite(limit) and low <= limit <= high):
                raise errors.ConfigError(
                    f"tolerance {field.name} = {limit:g} is no limit",
                    remedy=f"give a finite number from {low:g} to {high:g}",
                )

    @property
    def exact(self) -> bool:
        """True when no limit is given: values must be equal."""
        return self.max_abs is self.max_rel is self.sqnr_db is self.argmax is None


@dataclass(frozen=True)
class OutputParity:
    """One output held against its golden values; a figure that is not defined is None.

    ``elements`` and ``mismatches`` (elements that are not equal; NaN equals NaN here) are counts.
    ``exact``: the same bits. ``max_abs``: largest |actual - expected| of the elements that are
    finite on both sides. ``max_rel``: the same over max(|expected|, ``floor``). ``abs_beyond``:
    the most that is left of |actual - expected| when ``rel_allowed * max(|expected|, floor)`` is
    taken off; None without ``rel_allowed``. ``sqnr_db``: 10 log10 of the sum of expected^2 over
    the sum of (actual - expected)^2; inf when nothing differs, -inf when zeros were expected and
    something else came, None for 0/0 (``note`` says so). ``argmax``: the fraction of rows along
    the last axis whose largest actual element is (one of) the largest expected; a row with NaN
    never agrees. ``nan_agree``, ``inf_agree``: they stand at the same places, with the same sign.
    """

    name: str
    dtype_expected: str
    dtype_actual: str
    shape_expected: tuple[int, ...]
    shape_actual: tuple[int, ...]
    elements: int
    floor: float
    exact: bool = False
    mismatches: int | None = None
    max_abs: float | None = None
    max_rel: float | None = None
    rel_allowed: float | None = None
    abs_beyond: float | None = None
    sqnr_db: float | None = None
    argmax: float | None = None
    nan_expected: int = 0
    nan_actual: int = 0
    nan_agree: bool = True
    inf_expected: int = 0
    inf_actual: int = 0
    inf_agree: bool = True
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """A mapping that standard JSON can hold: infinities are the strings inf and -inf."""
        return encode(self)

    @classmethod
    def from_json(cls, data: object) -> OutputParity:
        """The other way round; :class:`errors.StoreDamaged` when ``data`` is no such mapping."""
        return decode(cls, data)


def encode(record: Any) -> dict[str, Any]:
    """A flat frozen dataclass as a mapping that standard JSON can hold."""
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return list(value) if isinstance(value, tuple) else value


def decode(cls: type[T], data: object) -> T:
    """``encode`` the other way round, every value checked; :class:`errors.StoreDamaged`."""
    kinds = {field.name: str(field.type) for field in fields(cls)}  # type: ignore[arg-type]
    if not isinstance(data, Mapping) or set(data) != set(kinds):
        raise errors.StoreDamaged(
            f"a record of {cls.__name__} has other fields than it should",
            remedy="build or measure again with this version of edgewright",
        )
    return cls(**{name: _typed(f"{cls.__name__}.{name}", kinds[name], data[name]) for name in data})


def _typed(where: str, kind: str, value: Any) -> Any:
    kind, _, optional = kind.partition(" | ")
    if value is None and optional == "None":
        return None
    if kind == "float" and (type(value) in (int, float) or value in ("inf", "-inf", "nan")):
        return float(value)
    if kind.startswith("tuple[") and isinstance(value, list):
        return tuple(_typed(where, kind[6:].partition(",")[0], item) for item in value)
    if type(value).__name__ != kind:
        raise errors.StoreDamaged(f"{where} is {value!r:.100}, not {kind}")
    return value


def measure(
    expected: Array, actual: Array, tolerance: Tolerance, *, name: str = ""
) -> OutputParity:
    """:func:`compare` with all that :func:`verdict` needs to judge by ``tolerance`` exactly."""
    floor, rel = tolerance.floor, tolerance.max_rel
    return compare(expected, actual, floor=floor, name=name, rel_allowed=rel)


def compare(
    expected: Array,
    actual: Array,
    *,
    floor: float = FLOOR,
    name: str = "",
    rel_allowed: float | None = None,
) -> OutputParity:
    """Hold ``actual`` against ``expected``: arrays of any shape; bool, integer or float dtypes.

    Large arrays are read in chunks. When the shapes differ only shapes and dtypes are told.
    Raises :class:`errors.RunFailed` for dtypes that are no plain numbers (strings, complex).
    """
    for side in (expected, actual):
        if side.dtype.kind not in "fiub":
            raise errors.RunFailed(f"output {name!r} has the type {side.dtype}: no plain numbers")
    found: dict[str, Any] = {}
    if expected.shape == actual.shape:
        found = _figures(expected, actual, floor, rel_allowed)
    return OutputParity(
        name, expected.dtype.name, actual.dtype.name, expected.shape, actual.shape,
        expected.size, floor, **found,
    )  # fmt: skip


def _figures(
    expected: Array, actual: Array, floor: float, rel_allowed: float | None
) -> dict[str, Any]:
    import numpy as np

    e, a = (np.ascontiguousarray(x, x.dtype.newbyteorder("=")).ravel() for x in (expected, actual))
    same_type = e.dtype == a.dtype
    exact = same_type and all(
        np.array_equal(e[part].view(np.uint8), a[part].view(np.uint8)) for part in _parts(e.size)
    )
    if e.size == 0:
        return {"exact": exact, "mismatches": 0, "note": EMPTY}
    if same_type and e.dtype.kind in "iub":
        return {"exact": exact, **_integer_figures(e, a)}
    found = _Differences(floor, rel_allowed)
    # A difference of two huge float64 may be infinite; casting a signalling NaN is "invalid".
    with np.errstate(over="ignore", invalid="ignore"):
        for part in _parts(e.size):
            found.add(e[part].astype(np.float64), a[part].astype(np.float64))
        found.add_powers(e, a)
    found.values["argmax"] = _argmax_agreement(e, a, expected.shape)
    return {"exact": exact, **found.values}


def _parts(size: int) -> Iterator[slice]:
    return (slice(start, start + CHUNK) for start in range(0, size, CHUNK))


def _integer_figures(e: Array, a: Array) -> dict[str, Any]:
    """Exact for 64 bits too: the larger minus the smaller, wrapped around as unsigned."""
    import numpy as np

    mismatches = largest = 0
    for part in _parts(e.size):
        # A bool from a device may hold a byte other than 0 and 1: the bytes are compared.
        x, y = (v[part].view(np.uint8) if v.dtype.kind == "b" else v[part] for v in (e, a))
        if x.dtype != np.uint64:
            x, y = x.astype(np.int64), y.astype(np.int64)
        mismatches += int(np.count_nonzero(x != y))
        gap = np.maximum(x, y).view(np.uint64) - np.minimum(x, y).view(np.uint64)
        largest = max(largest, int(gap.max()))
    return {"mismatches": mismatches, "max_abs": float(largest)}


class _Differences:
    """Figures of floating-point outputs, gathered part by part in float64."""

    def __init__(self, floor: float, rel_allowed: float | None) -> None:
        self.floor, self.rel_allowed, self.peak = floor, rel_allowed, 0.0
        counts = ("mismatches", "nan_expected", "nan_actual", "inf_expected", "inf_actual")
        self.values: dict[str, Any] = dict.fromkeys(counts, 0)
        self.values |= {"nan_agree": True, "inf_agree": True, "rel_allowed": rel_allowed}

    def add(self, e: Array, a: Array) -> None:
        import numpy as np

        v = self.values
        nan_e, nan_a, inf_e, inf_a = np.isnan(e), np.isnan(a), np.isinf(e), np.isinf(a)
        found = ((e != a) & ~(nan_e & nan_a), nan_e, nan_a, inf_e, inf_a)
        for key, places in zip(tuple(v)[:5], found, strict=True):
            v[key] += int(np.count_nonzero(places))
        v["nan_agree"] &= np.array_equal(nan_e, nan_a)
        v["inf_agree"] &= np.array_equal(np.where(inf_e, e, 0.0), np.where(inf_a, a, 0.0))
        finite = ~(nan_e | nan_a | inf_e | inf_a)
        if finite.any():
            self._add_finite(e[finite], a[finite])

    def _add_finite(self, e: Array, a: Array) -> None:
        import numpy as np

        size, gap = np.abs(e), np.abs(a - e)
        scale = np.maximum(size, self.floor)
        self.peak = max(self.peak, float(size.max()))
        self._raise_to("max_abs", gap)
        self._raise_to("max_rel", gap / scale)
        if self.rel_allowed is not None:
            beyond = gap - self.rel_allowed * scale
            beyond[np.isnan(beyond)] = np.inf  # inf - inf: never a silent pass
            self._raise_to("abs_beyond", np.maximum(beyond, 0.0))

    def _raise_to(self, key: str, figures: Array) -> None:
        self.values[key] = max(self.values.get(key, 0.0), float(figures.max()))

    def add_powers(self, e: Array, a: Array) -> None:
        """SQNR in a second pass: scaled by the peaks, no square over- or underflows."""
        import numpy as np

        noise = self.values.get("max_abs")
        if noise is None or not (self.peak and noise) or math.isinf(noise):
            self.values |= _degenerate_sqnr(self.peak, noise)
            return
        powers = [0.0, 0.0]
        for part in _parts(e.size):
            x, y = e[part].astype(np.float64), a[part].astype(np.float64)
            finite = np.isfinite(x) & np.isfinite(y)
            x, y = x[finite], y[finite]
            powers[0] += float(np.sum(np.square(x / self.peak)))
            powers[1] += float(np.sum(np.square((y - x) / noise)))
        peaks = 20 * (math.log10(self.peak) - math.log10(noise))
        self.values["sqnr_db"] = peaks + 10 * math.log10(powers[0] / powers[1])


def _degenerate_sqnr(signal: float, noise: float | None) -> dict[str, Any]:
    if noise is None:
        return {"note": NOTHING_FINITE}
    if noise == 0:
        return {"sqnr_db": math.inf} if signal else {"note": ZERO_BY_ZERO}
    return {"sqnr_db": -math.inf}


def _argmax_agreement(e: Array, a: Array, shape: tuple[int, ...]) -> float | None:
    """Fraction of rows whose actual choice is a largest expected one (ties are no error)."""
    import numpy as np

    if not (e.dtype.kind == a.dtype.kind == "f" and shape and shape[-1] > 1):
        return None
    e, a = e.reshape(-1, shape[-1]), a.reshape(-1, shape[-1])
    step = max(1, CHUNK // shape[-1])
    agreeing = 0
    for start in range(0, len(e), step):
        x, y = e[start : start + step], a[start : start + step]
        chosen = x[np.arange(len(x)), y.argmax(axis=1)]
        agreeing += int(np.count_nonzero((chosen == x.max(axis=1)) & ~np.isnan(y).any(axis=1)))
    return agreeing / len(e)


def verdict(p: OutputParity, tolerance: Tolerance) -> tuple[str, ...]:
    """Why the output is not within ``tolerance``, in phrases with figures; empty when it is.

    With both ``max_abs`` and ``max_rel`` the rule needs a parity made by :func:`measure`; for
    one measured otherwise, one of the two alone has to hold (stricter, never laxer).
    """
    t, shapes = tolerance, (list(p.shape_actual), list(p.shape_expected))
    structure = (
        (p.dtype_actual == p.dtype_expected, f"dtype {p.dtype_actual}, not {p.dtype_expected}"),
        (shapes[0] == shapes[1], f"shape {shapes[0]}, not {shapes[1]}"),
    )
    if p.elements == 0 or not all(good for good, _ in structure):
        return tuple(reason for good, reason in structure if not good)
    if not p.dtype_expected.startswith("float"):
        return _integers(p, t)
    differ = f"{p.mismatches} of {p.elements} elements differ (max_abs {_figure(p.max_abs)})"
    places = (
        (p.nan_agree, f"NaN: {p.nan_actual}, expected {p.nan_expected}, at other places"),
        (p.inf_agree, f"infinities: {p.inf_actual}, expected {p.inf_expected}, not the same"),
        (p.max_abs is not None, NOTHING_FINITE),
    )
    values = (
        (not t.exact or p.mismatches == 0, f"{differ} and no tolerance is given"),
        (_close(p, t), _above(p, t)),
        (t.sqnr_db is None or p.max_abs == 0 or _at_most(t.sqnr_db, p.sqnr_db),
         f"SQNR {_figure(p.sqnr_db, '.1f')} dB < {_figure(t.sqnr_db, 'g')} dB"),
        (t.argmax is None or p.argmax is None or p.argmax >= t.argmax,
         f"argmax agrees in {_figure(p.argmax, '.2%')} < {_figure(t.argmax, '.2%')} of the rows"),
    )  # fmt: skip
    checks = places if p.max_abs is None else (*places, *values)
    return tuple(reason for good, reason in checks if not good)


def _integers(p: OutputParity, t: Tolerance) -> tuple[str, ...]:
    limit = t.max_abs if t.max_abs and t.max_abs >= 1 and p.dtype_expected != "bool" else 0.0
    if p.mismatches == 0 or (limit and _at_most(p.max_abs, limit)):
        return ()
    allowed = f"more than max_abs {limit:g}" if limit else f"{p.dtype_expected} must be equal"
    differ = f"{p.mismatches} of {p.elements} elements differ, by up to {_figure(p.max_abs, 'g')}"
    return (f"{differ}: {allowed}",)


def _close(p: OutputParity, t: Tolerance) -> bool:
    """The rule of the module's docstring; comparisons are such that a NaN never passes."""
    # A floor above the limit's own makes the figure smaller than the limit means.
    relative = p.floor <= t.floor and _at_most(p.max_rel, t.max_rel)
    together = (p.rel_allowed, p.floor) == (t.max_rel, t.floor)
    return (
        t.max_abs is t.max_rel is None
        or _at_most(p.max_abs, t.max_abs)
        or relative
        or (together and _at_most(p.abs_beyond, t.max_abs))
    )


def _at_most(figure: float | None, limit: float | None) -> bool:
    return figure is not None and limit is not None and figure <= limit


def _figure(figure: float | None, form: str = ".2e") -> str:
    return "undefined" if figure is None else format(figure, form)


def _above(p: OutputParity, t: Tolerance) -> str:
    floor = f" of max(|expected|, {p.floor:g})"
    given = (("max_abs", p.max_abs, t.max_abs, ""), ("max_rel", p.max_rel, t.max_rel, floor))
    return " and ".join(
        f"{name} {_figure(figure)} > {limit:g}{of}"
        for name, figure, limit, of in given
        if limit is not None
    )
