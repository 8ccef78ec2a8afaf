"""The record of a choice of precision: ``TARGET.choice.json`` beside the bundle's folder."""

from __future__ import annotations

import json
import math
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from edge import errors
from edge.choice import Limits, Variant
from edge.parity import decode, encode

SCHEMA_VERSION = 1
SUFFIX = ".choice.json"
MAX_RECORD_BYTES = 2**20


@dataclass(frozen=True)
class ModelRef:
    """Which model: its name and version, and the SHA-256 of its content."""

    name: str
    version: str
    sha256: str


@dataclass(frozen=True)
class _Head:
    """What is flat in a record's JSON."""

    target: str
    platform: str
    samples_sha256: str
    prefer: str
    device: str | None
    source_accuracy: float | None
    metric: str | None
    chosen: str | None
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class ChoiceRecord:
    """What was tried for a target, what was chosen, and why: a file beside the bundle's folder.

    ``device``: where times were taken, None where nobody did. ``source_accuracy``: that of the
    source framework itself, by the user's ``metric``. ``chosen``: a precision; None when none
    was within the limits. ``reasons``: by precision, why each of the others lost
    (``edge.choice.choose``; ``excluded`` when none was chosen).

    Raises :class:`errors.RunFailed` when what was chosen and what lost do not fit together.
    """

    target: str
    platform: str
    model: ModelRef
    samples_sha256: str
    limits: Limits
    variants: tuple[Variant, ...]
    reasons: Mapping[str, str]
    chosen: str | None = None
    warnings: tuple[str, ...] = ()
    device: str | None = None
    source_accuracy: float | None = None
    metric: str | None = None

    def __post_init__(self) -> None:
        made = {each.precision: each.state == "made" for each in self.variants}
        losers = set(made) - {self.chosen}
        known = self.chosen is None or made.get(self.chosen, False)
        told = set(self.reasons) == losers and all(self.reasons.values())
        if len(made) != len(self.variants) or not (told and known):
            raise errors.RunFailed("what was chosen and what lost do not fit together")
        if self.source_accuracy is not None and not math.isfinite(self.source_accuracy):
            raise errors.RunFailed(f"the source's accuracy is {self.source_accuracy}, no figure")

    def to_json(self) -> dict[str, Any]:
        """A mapping that standard JSON can hold: infinities are the strings inf and -inf."""
        limits = encode(self.limits)
        head = {
            field.name: getattr(self, field.name)
            for field in fields(_Head)
            if field.name != "prefer"
        }
        return encode(_Head(prefer=limits.pop("prefer"), **head)) | {
            "schema": SCHEMA_VERSION,
            "model": encode(self.model),
            "limits": limits,
            "variants": [
                encode(each) | {"reason": self.reasons.get(each.precision, "")}
                for each in self.variants
            ],
        }

    @classmethod
    def from_json(cls, data: object) -> ChoiceRecord:
        """The other way round; :class:`errors.StoreDamaged` when ``data`` is no such mapping."""
        try:
            return _record(data)
        except errors.StoreDamaged:
            raise
        except (errors.EdgeError, ValueError, TypeError, KeyError, OverflowError) as error:
            raise errors.StoreDamaged(f"it is no record of a choice: {error}") from error

    def write(self, path: Path) -> None:
        """Write whole or not at all, the same bytes for the same record.

        Raises :class:`errors.StepFailed` when it cannot be written.
        """
        text = json.dumps(self.to_json(), indent=2, sort_keys=True, allow_nan=False)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _replace(path, text.encode() + b"\n")
        except OSError as error:
            raise errors.StepFailed(
                f"cannot write {path}: {error.strerror}", remedy="see to its space and permissions"
            ) from error

    @classmethod
    def read(cls, path: Path) -> ChoiceRecord:
        """A record from a file, which may hold anything; :class:`errors.StoreDamaged`."""
        try:
            return cls.from_json(json.loads(_content(path), parse_constant=_refuse))
        except (errors.StoreDamaged, OSError, ValueError, RecursionError) as error:
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise errors.StoreDamaged(
                f"{path} cannot be read: {why}", remedy="remove it and build the target again"
            ) from error


def path_beside(bundle: Path) -> Path:
    """Where the record of a bundle lies: ``TARGET.choice.json`` beside its folder."""
    return bundle.with_name(bundle.name + SUFFIX)


def _record(data: Any) -> ChoiceRecord:
    known = dict(data)
    if (version := known.pop("schema")) != SCHEMA_VERSION:
        raise errors.StoreDamaged(
            f"it has schema {version!r:.60}, this release reads {SCHEMA_VERSION}"
        )
    model, limits = decode(ModelRef, known.pop("model")), dict(known.pop("limits"))
    rows = [dict(row) for row in known.pop("variants")]
    head = decode(_Head, known)
    told = {row["precision"]: row.pop("reason") for row in rows}
    if not all(isinstance(why, str) for why in told.values()):
        raise TypeError("a reason is no text")
    reasons = {name: why for name, why in told.items() if why}
    variants = tuple(decode(Variant, row) for row in rows)
    values = {field.name: getattr(head, field.name) for field in fields(_Head)}
    limits_ = decode(Limits, {**limits, "prefer": values.pop("prefer")})
    return ChoiceRecord(model=model, limits=limits_, variants=variants, reasons=reasons, **values)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _content(path: Path) -> bytes:
    if not stat.S_ISREG(path.lstat().st_mode):  # a pipe would wait forever
        raise ValueError("it is no regular file")
    with path.open("rb") as stream:
        content = stream.read(MAX_RECORD_BYTES + 1)
    if len(content) > MAX_RECORD_BYTES:
        raise ValueError(f"it is larger than {MAX_RECORD_BYTES} bytes")
    return content


def _replace(path: Path, content: bytes) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.chmod(0o644)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
