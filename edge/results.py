"""The project's measurements: one SQLite file, ``.edge/results.db``.

A record is added once and never changed (a trigger refuses it). Two processes may write at once
(write-ahead log, a busy timeout); the file is made whole beside its place and linked into it.
Raw samples are kept compressed, apart from what tables and comparisons read.
"""

from __future__ import annotations

import json
import math
import sqlite3
import sys
import uuid
import zlib
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_args

from edge import errors
from edge.parity import OutputParity, decode, encode
from edge.stats import Kind, Loop, Summary, Verdict

APPLICATION_ID = 0x45444745  # "EDGE" in the file's header: no other program's database is touched
SCHEMA_VERSION = 1
BUSY_SECONDS = 30.0
MAX_RECORDS = 10_000  # of one query
MAX_SAMPLES_BYTES = 2**30

TABLES = (
    """CREATE TABLE records (
        id TEXT PRIMARY KEY, created TEXT NOT NULL, model TEXT NOT NULL,
        model_sha256 TEXT NOT NULL, samples_sha256 TEXT NOT NULL, target TEXT NOT NULL,
        device TEXT NOT NULL, runner TEXT NOT NULL, verdict TEXT NOT NULL,
        body TEXT NOT NULL, loops TEXT NOT NULL, samples BLOB NOT NULL)""",
    "CREATE INDEX by_model ON records (model, target, device, created)",
    """CREATE TRIGGER never_changed BEFORE UPDATE ON records
        BEGIN SELECT RAISE(ABORT, 'a record is never changed'); END""",
)
LATEST = """SELECT id, body FROM (
    SELECT id, body, created, rowid AS place, ROW_NUMBER() OVER (
        PARTITION BY model, model_sha256, samples_sha256, target, device, runner,
            json_extract(body, '$.options.threads'), json_extract(body, '$.options.provider'),
            json_extract(body, '$.options.precision')
        ORDER BY created DESC, rowid DESC) AS age
    FROM records WHERE {filters}) WHERE age = 1 ORDER BY created DESC, place DESC LIMIT ?"""
ALL = "SELECT id, body FROM records WHERE {filters} ORDER BY created DESC, rowid DESC LIMIT ?"


@dataclass(frozen=True)
class Size:
    """Bytes as they lie on the device, and compressed for the way there."""

    raw: int
    compressed: int


@dataclass(frozen=True)
class Sizes:
    """Sizes of a bundle's artifact, its runtime, and both together.

    ``runtime`` and ``total`` are None where the runtime is not in the bundle (an app gets it
    from a package registry).
    """

    artifact: Size
    runtime: Size | None
    total: Size | None


@dataclass(frozen=True)
class ModelId:
    """Which model: its name and version, and the SHA-256 of its content."""

    name: str
    version: str
    sha256: str


@dataclass(frozen=True)
class Record:
    """One measurement. ``created`` is UTC in ISO 8601, times are ns, sizes bytes.

    ``runner`` (c, python ...; figures of different runners are not comparable) and ``runtime``
    (name and version) as the runner said. ``facts`` are the device's, ``before`` and ``after``
    its context, ``options`` what was asked for: JSON values. ``load_ns`` and ``first_ns``: one a
    process. ``outputs``: parity of every output of every golden sample.
    """

    id: str
    created: str
    model: ModelId
    samples_sha256: str
    target: str
    manifest_sha256: str
    device: str
    runner: str
    runtime: str
    facts: Mapping[str, Any]
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    options: Mapping[str, Any]
    sizes: Sizes
    load_ns: tuple[int, ...]
    first_ns: tuple[int, ...]
    peak_bytes: int | None
    summary: Summary
    outputs: tuple[OutputParity, ...]
    verdict: Verdict


def new_id() -> str:
    """An id for a new record."""
    return uuid.uuid4().hex


def now() -> str:
    """The time for ``Record.created``, UTC to the microsecond; such texts sort by time."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


class Results:
    """The database at ``path``; it need not exist before the first ``add``.

    Every method raises :class:`errors.StoreDamaged` when the file is no database of edge or is
    damaged, :class:`errors.UsageError` when a newer release wrote it, and
    :class:`errors.RunFailed` when it cannot be opened or written (disk full, locked, read-only).
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, record: Record, loops: Sequence[Loop]) -> None:
        """Keep a record with its loops, all raw samples included.

        Raises :class:`errors.UsageError` when there is a record of that id already.
        """
        row = _row(record, loops)
        if not self._exists():
            self._create()
        marks = ", ".join("?" * len(row))
        with self._open() as connection:
            try:
                connection.execute(f"INSERT INTO records VALUES ({marks})", row)  # noqa: S608
            except sqlite3.IntegrityError as error:
                raise errors.UsageError(f"there is a record {record.id} already") from error

    def find(
        self, *, model: str = "", target: str = "", device: str = "", limit: int = MAX_RECORDS
    ) -> tuple[Record, ...]:
        """Records by the model's name, target and device (empty: any), newest first."""
        return self._query(ALL, {"model": model, "target": target, "device": device}, limit)

    def latest(
        self, *, model: str = "", target: str = "", device: str = "", limit: int = MAX_RECORDS
    ) -> tuple[Record, ...]:
        """The newest of each thing that is compared.

        That is a model with its hash and samples, for a target on a device, by a runner with its
        number of threads and provider, at a precision.
        """
        return self._query(LATEST, {"model": model, "target": target, "device": device}, limit)

    def get(self, record_id: str) -> Record:
        """One record; :class:`errors.UsageError` when there is none."""
        found = self._query(ALL, {"id": record_id}, 1)
        if not found:
            raise errors.UsageError(
                f"there is no record {record_id}", remedy="edge report --json lists the ids"
            )
        return found[0]

    def loops(self, record_id: str) -> tuple[Loop, ...]:
        """The timed loops of a record with their raw samples."""
        query = "SELECT loops, samples FROM records WHERE id = ?"
        rows = self._rows(query, (record_id,))
        if not rows:
            raise errors.UsageError(f"there is no record {record_id}")
        with self._reading(record_id):
            return _loops(*rows[0])

    def _query(self, query: str, wanted: Mapping[str, str], limit: int) -> tuple[Record, ...]:
        given = {column: value for column, value in wanted.items() if value}
        filters = " AND ".join(f"{column} = ?" for column in given) or "1"
        records = []
        for record_id, body in self._rows(query.format(filters=filters), (*given.values(), limit)):
            with self._reading(record_id):
                records.append(_record(json.loads(body)))
        return tuple(records)

    def _rows(self, query: str, values: Sequence[str | int]) -> list[tuple[Any, ...]]:
        if not self._exists():
            return []
        with self._open() as connection:
            return list(connection.execute(query, values))

    @contextmanager
    def _reading(self, record_id: str) -> Iterator[None]:
        try:
            yield
        except (ValueError, TypeError, KeyError, RecursionError, zlib.error) as error:
            raise errors.StoreDamaged(
                f"the record {record_id} in {self.path} is damaged: {error}", remedy=self._remedy()
            ) from error

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._explained():
            connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
            with closing(connection):
                self._check(connection)
                yield connection

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.OperationalError, OSError) as error:
            raise errors.RunFailed(
                f"cannot use {self.path}: {error}",
                remedy="see that the folder can be written, has space, and no other edge hangs",
            ) from error
        except sqlite3.DatabaseError as error:
            raise errors.StoreDamaged(
                f"{self.path} is no results database: {error}", remedy=self._remedy()
            ) from error

    def _remedy(self) -> str:
        return f"move {self.path} away; edge bench starts a new one"

    def _check(self, connection: sqlite3.Connection) -> None:
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if application != APPLICATION_ID:
            raise errors.StoreDamaged(
                f"{self.path} is the database of another program", remedy=self._remedy()
            )
        if version != SCHEMA_VERSION:
            raise errors.UsageError(
                f"{self.path} has schema {version}, this release reads {SCHEMA_VERSION}",
                remedy="use the newer edgewright that wrote it, or move the file away",
            )

    def _exists(self) -> bool:
        with self._explained():
            return self.path.exists()

    def _create(self) -> None:
        """Make the file whole, then link it into place: the first of two processes wins."""
        with self._explained():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            part = self.path.with_name(f"{self.path.name}.{new_id()}.part")
            try:
                with closing(sqlite3.connect(part, isolation_level=None)) as made:
                    made.execute("PRAGMA journal_mode = WAL")
                    made.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    for statement in TABLES:
                        made.execute(statement)
                    made.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
                _place(part, self.path)
            finally:
                part.unlink(missing_ok=True)


def _place(part: Path, path: Path) -> None:
    try:
        path.hardlink_to(part)  # unlike a rename it never replaces
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links
        part.replace(path)


def _row(record: Record, loops: Sequence[Loop]) -> tuple[Any, ...]:
    data = array("q")
    for loop in loops:
        data.extend(loop.samples_ns)
    if sys.byteorder == "big":
        data.byteswap()
    heads = [{**encode(loop), "samples_ns": len(loop.samples_ns)} for loop in loops]
    return (
        record.id, record.created, record.model.name, record.model.sha256, record.samples_sha256,
        record.target, record.device, record.runner, record.verdict.kind,
        json.dumps(_plain(to_json(record)), allow_nan=False), json.dumps(heads),
        zlib.compress(data.tobytes(), 6),
    )  # fmt: skip


def _loops(heads_json: str, packed: bytes) -> tuple[Loop, ...]:
    heads = json.loads(heads_json)
    counts = [int(head["samples_ns"]) for head in heads]
    limit = 8 * sum(counts)
    if min(counts, default=0) < 0 or limit > MAX_SAMPLES_BYTES:
        raise ValueError("a wrong number of samples")
    unpacked = zlib.decompressobj().decompress(packed, limit + 1)
    if len(unpacked) != limit:
        raise ValueError("samples are missing")
    data = array("q", unpacked)
    if sys.byteorder == "big":
        data.byteswap()
    loops, start = [], 0
    for head, count in zip(heads, counts, strict=True):
        values = data[start : start + count].tolist()
        loops.append(decode(Loop, {**head, "samples_ns": values}))
        start += count
    return tuple(loops)


def to_json(record: Record) -> dict[str, Any]:
    """The record as a mapping for JSON, without raw samples; infinities are strings."""
    plain = {field.name: getattr(record, field.name) for field in fields(record)}
    parts = {field.name: getattr(record.sizes, field.name) for field in fields(Sizes)}
    sizes = {name: encode(size) if size else None for name, size in parts.items()}
    return plain | {
        "model": encode(record.model),
        "sizes": sizes,
        "load_ns": list(record.load_ns),
        "first_ns": list(record.first_ns),
        "summary": encode(record.summary),
        "outputs": [output.to_json() for output in record.outputs],
        "verdict": encode(record.verdict),
    }


def _plain(value: Any) -> Any:
    """Whatever a device's facts hold, as something that standard JSON can hold."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _record(data: Any) -> Record:
    kind, evidence = data["verdict"]["kind"], data["verdict"]["evidence"]
    if kind not in get_args(Kind) or {field.name for field in fields(Record)} != set(data):
        raise ValueError("its fields are not those of a record")
    sizes = Sizes(
        decode(Size, data["sizes"]["artifact"]),
        *(
            decode(Size, data["sizes"][part]) if data["sizes"][part] else None
            for part in ("runtime", "total")
        ),
    )
    return Record(**data | {
        "model": decode(ModelId, data["model"]),
        "sizes": sizes,
        "load_ns": tuple(data["load_ns"]),
        "first_ns": tuple(data["first_ns"]),
        "summary": decode(Summary, data["summary"]),
        "outputs": tuple(OutputParity.from_json(output) for output in data["outputs"]),
        "verdict": Verdict(kind, tuple(map(str, evidence))),
    })  # fmt: skip
