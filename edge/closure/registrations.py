"""The tables of CPU kernel registrations in a source tree of ONNX Runtime, as values.

Text in, values out; only :func:`load` and :func:`read` open files, the few that the runtime's
own ``reduce_op_kernels.py`` rewrites. Rules:

1. A registration is ``BuildKernelCreateInfo<ONNX_OPERATOR_..._KERNEL_CLASS_NAME(...)>`` outside
   of comments, in every branch of ``#if``; the conditions around it are its ``guards``.
   A spelling that is not known is an error: no kernel is passed over.
2. The runtime's tool reads lines and not C++. Lines up to one that ends in a registration's end
   are one piece to it, decided by the last registration in it: one with a comment behind it
   goes with the next (1.21: TransposeMatMul with FusedMatMul). Such a one is ``tied``. One that
   does not begin its line is not seen, and so never taken out: it is not ``reducible``.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from edge import errors
from edge.closure import operators
from edge.closure.conditions import Groups, Guard

# (file, the condition under which the build compiles it at all).
TABLES = (
    ("onnxruntime/core/providers/cpu/cpu_execution_provider.cc", ""),
    ("onnxruntime/contrib_ops/cpu/cpu_contrib_kernels.cc", "!defined(DISABLE_CONTRIB_OPS)"),
    (
        "orttraining/orttraining/training_ops/cpu/cpu_training_kernels.cc",
        "defined(ENABLE_TRAINING_OPS)",
    ),
)
LAYOUT = (
    "onnxruntime/core/optimizer/layout_transformation/layout_transformation_potentially_added_ops.h"
)
MAX_BYTES = 8 * 2**20  # the longest table of 1.21 has 350,000
PROVIDER = "kCpuExecutionProvider"
# include/onnxruntime/core/graph/constants.h, as op_registration_utils.py has it.
DOMAINS = {
    "kOnnxDomain": operators.ONNX,
    "kMLDomain": operators.ML,
    "kMSDomain": operators.MICROSOFT,
    "kPytorchAtenDomain": "org.pytorch.aten",
    "kMSExperimentalDomain": "com.microsoft.experimental",
    "kMSNchwcDomain": operators.NCHWC,
    "kMSInternalNHWCDomain": operators.NHWC,
    "kMSDmlDomain": "com.microsoft.dml",
    "kNGraphDomain": "com.intel.ai",
    "kVitisAIDomain": "com.xilinx",
}
_COUNTS = {"TYPED_": 1, "TWO_TYPED_": 2, "THREE_TYPED_": 3}
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_ITEM = re.compile(
    r"^[ \t]*#[ \t]*(?P<directive>\w+)(?P<rest>(?:\\\n|[^\n])*)|\bBuildKernelCreateInfo\s*<", re.M
)
_BUILD = re.compile(
    r"BuildKernelCreateInfo\s*<\s*(?P<macro>\w+)\s*(?:\((?P<arguments>[^()<>;]*)\)\s*)?>"
)
_MACRO = re.compile(r"ONNX_OPERATOR_(VERSIONED_)?((?:TWO_|THREE_)?TYPED_)?KERNEL_CLASS_NAME")
_WORD = re.compile(r"\w{1,200}", re.ASCII)
_ENDS = (");", ")>", ")>,", ")>,};", ")>};")  # op_registration_utils.py's
_REGION = re.compile(r"@@region_(begin|end)\(extended_minimal_build_required_kernels\)@@")
_ADDED = re.compile(r'OpIdentifierWithStringViews{(\w+),\s+"(\w+)",\s+([0-9]{1,9})}')

Key = tuple[str, str]


@dataclass(frozen=True)
class Registration:
    """One kernel for the opsets ``start`` to ``end`` (``operators.OPEN``: no end).

    ``types``: the C++ type names that tell it from its siblings, () when it has none; which
    input or output they are of is the operator's matter. ``guards``: what must hold for it to
    be compiled. ``tied``: the registration that decides about this one too (rule 2).
    """

    domain: str
    operator: str
    start: int
    end: int = operators.OPEN
    types: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()
    tied: Registration | None = None
    reducible: bool = True

    @property
    def key(self) -> Key:
        """(domain, operator)."""
        return (self.domain, self.operator)

    def serves(self, since: int) -> bool:
        """Whether it runs nodes of the version ``since``, whatever their types."""
        return operators.serves((self.start, self.end), since)

    def barrier(self, defines: frozenset[str]) -> Guard | None:
        """The first guard that keeps it from being compiled; None when it is compiled."""
        return next((guard for guard in self.guards if not guard.holds(defines)), None)


@dataclass(frozen=True)
class Tables:
    """What a source tree registers, and (domain, operator, opset) of what layout changes add."""

    registrations: tuple[Registration, ...]
    layout: tuple[tuple[str, str, int], ...] = ()


def load(tree: Path) -> Tables:
    """The tables of the source tree ``tree``, all conditions open.

    Raises :class:`errors.ConfigError` when it is none, or for a table that cannot be read.
    """
    found: list[Registration] = []
    for name, condition in TABLES:
        rows = parse(_text(tree, name), PurePosixPath(name).name)
        guard = (Guard(condition, name),) if condition else ()
        found += [_guarded(row, guard) for row in rows]
    return Tables(tuple(found), parse_layout(_text(tree, LAYOUT), PurePosixPath(LAYOUT).name))


def read(tree: Path, defines: frozenset[str]) -> tuple[Registration, ...]:
    """The registrations that a build with the macros ``defines`` compiles, before reduction.

    Raises as :func:`load` does, and for a condition that asks for a macro's value.
    """
    return tuple(row for row in load(tree).registrations if row.barrier(defines) is None)


def _guarded(row: Registration, guard: tuple[Guard, ...]) -> Registration:
    tied = replace(row.tied, guards=guard + row.tied.guards) if row.tied else None
    return replace(row, guards=guard + row.guards, tied=tied)


def _text(tree: Path, name: str) -> str:
    path = tree / name
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise _no_tree(tree, f"{name} has more than {MAX_BYTES} bytes")
        return data.decode("utf-8")
    except OSError as error:
        raise _no_tree(tree, f"cannot read {name} ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise _no_tree(tree, f"{name} is no text") from error


def _no_tree(tree: Path, why: str) -> errors.ConfigError:
    return errors.ConfigError(
        f"{tree} is no ONNX Runtime source tree: {why}",
        remedy="give the folder of a release's sources",
    )


# --------------------------------------------------------------------------------- parsing
def parse(text: str, where: str) -> tuple[Registration, ...]:
    """All registrations of one table, in order; ``where`` names it in messages.

    Raises :class:`errors.ConfigError` with the line for anything that cannot be read.
    """
    table = _Table(text.replace("\r\n", "\n"), where)
    found = list(table.rows())
    if not found:
        raise errors.ConfigError(f"{where} registers no kernel: is it a table of ONNX Runtime's?")
    return tuple(_tied(found, table))


@dataclass(frozen=True)
class _Row:
    """A registration with its macro and its lines (first and last, from 0)."""

    registration: Registration
    macro: str
    first: int
    last: int


class _Table:
    """One table's text: where its lines are, and what stands on them."""

    def __init__(self, text: str, where: str) -> None:
        self.lines = [line.strip() for line in text.split("\n")]
        self.code = _COMMENT.sub(_blank, text)
        self.where = where
        self._ends = [match.end() for match in re.finditer("\n", text)]

    def line(self, at: int) -> int:
        """The line, from 0, of the character ``at``."""
        return bisect.bisect_right(self._ends, at)

    def error(self, line: int, why: str) -> errors.ConfigError:
        return errors.ConfigError(
            f"{self.where}, line {line + 1}: {why}",
            remedy="report it: this release of ONNX Runtime writes its tables in a new way",
        )

    def rows(self) -> Iterator[_Row]:
        groups = Groups()
        changed: dict[str, int] = {}
        asked: set[str] = set()
        for match in _ITEM.finditer(self.code):
            line = self.line(match.start())
            if match["directive"]:
                self._take(groups, changed, match, line)
                continue
            row = self._row(match.start(), line, groups.guards())
            if row:
                asked |= {name for guard in row.registration.guards for name in guard.names}
                yield row
        if groups.depth:
            raise self.error(len(self.lines) - 1, "an #if is not closed")
        for name in sorted(asked & set(changed)):
            raise self.error(changed[name], f"{name} is changed here, and guards registrations")

    def _take(
        self, groups: Groups, changed: dict[str, int], match: re.Match[str], line: int
    ) -> None:
        directive, rest = match["directive"], match["rest"].replace("\\\n", " ")
        if "BuildKernelCreateInfo" in rest:
            raise self.error(line, "a macro registers kernels")
        if directive in ("define", "undef"):
            changed[re.split(r"\W", rest.strip(), maxsplit=1)[0]] = line
        try:
            groups.take(directive, rest, f"{self.where}, line {line + 1}")
        except ValueError as error:
            raise self.error(line, str(error)) from error

    def _row(self, at: int, line: int, guards: tuple[Guard, ...]) -> _Row | None:
        match = _BUILD.match(self.code, at)
        if not match:
            raise self.error(line, "this registration cannot be read")
        if match["macro"] == "void":  # the entry that keeps a reduced table from being empty
            return None
        arguments = [word.strip() for word in (match["arguments"] or "").split(",")]
        try:
            registration = _registration(match["macro"], arguments)
        except ValueError as error:
            raise self.error(line, str(error)) from error
        last = self.line(match.end() - 1)
        return _Row(replace(registration, guards=guards), match["macro"], line, last)


def _blank(match: re.Match[str]) -> str:
    """A comment becomes space, its line ends stay; a string stays."""
    found = match[0]
    return found if found.startswith('"') else re.sub(r"[^\n]", " ", found)


def _registration(macro: str, arguments: list[str]) -> Registration:
    form = _MACRO.fullmatch(macro)
    if not form:
        raise ValueError(f"{macro} is no known way to register a kernel")
    types = _COUNTS.get(form[2] or "", 0)
    versions = 2 if form[1] else 1
    if len(arguments) != 3 + versions + types:
        raise ValueError(f"{macro} has {len(arguments)} arguments")
    for word in arguments:
        if not _WORD.fullmatch(word):
            raise ValueError(f"{word[:80]!r} is no argument of a registration")
    provider, domain, *rest, operator = arguments
    numbers = rest[:versions]
    if not all(re.fullmatch("[0-9]{1,9}", number) for number in numbers):
        raise ValueError(f"{', '.join(numbers)} are no opsets")
    if provider != PROVIDER:
        raise ValueError(f"{provider} is not the CPU's provider")
    start, *end = map(int, numbers)
    tags = rest[versions:]
    names = tags if types > 1 else [name for tag in tags for name in _split(tag)]
    return Registration(
        _domain(domain),
        operator,
        start,
        end[0] if end else operators.OPEN,
        tuple("std::string" if name == "string" else name for name in names),
    )


def _split(tag: str) -> list[str]:
    """``float_int64_t_int64_t`` into its three types: ``_t`` belongs to what is before it."""
    return re.split(r"_(?!t(?:_|\Z))", tag)


def _domain(constant: str) -> str:
    if constant not in DOMAINS:
        raise ValueError(f"{constant} is no known domain")
    return DOMAINS[constant]


def _tied(rows: list[_Row], table: _Table) -> Iterator[Registration]:
    """The registrations, each with the one that the runtime's tool decides it by (rule 2)."""
    piece: list[_Row] = []
    end = -1
    for row in rows:
        if row.first > end:
            yield from _decided(piece, end, table)
            piece = []
            if not table.lines[row.first].startswith("BuildKernelCreateInfo<ONNX"):
                yield replace(row.registration, reducible=False)
                continue
            end = _end(row.first, table)
        piece.append(row)
    yield from _decided(piece, end, table)


def _end(first: int, table: _Table) -> int:
    for line in range(first, len(table.lines)):
        if table.lines[line].endswith(_ENDS):
            return line
    raise table.error(first, "this registration has no end that the runtime's own tool knows")


def _decided(piece: list[_Row], end: int, table: _Table) -> Iterator[Registration]:
    if not piece:
        return
    *others, last = piece
    if last.last != end or any(row.macro != last.macro for row in others):
        raise table.error(
            piece[0].first, "the runtime's own tool mistakes what follows for one registration"
        )
    yield from (replace(row.registration, tied=last.registration) for row in others)
    yield last.registration


def parse_layout(text: str, where: str) -> tuple[tuple[str, str, int], ...]:
    """(domain, operator, opset) that layout transformation may add, sorted.

    Read as ``reduce_op_kernels.py`` does: by line, in the marked region, conditions not
    regarded. Raises :class:`errors.ConfigError`.
    """
    found: set[tuple[str, str, int]] = set()
    inside = False
    for line in text.splitlines():
        boundary = _REGION.search(line)
        if boundary:
            inside = boundary[1] == "begin"
            continue
        added = _ADDED.search(line) if inside else None
        if added:
            found.add(_added(added, where))
    if not found:
        raise errors.ConfigError(f"{where} names no operator that layout transformation adds")
    return tuple(sorted(found))


def _added(row: re.Match[str], where: str) -> tuple[str, str, int]:
    try:
        return (_domain(row[1]), row[2], int(row[3]))
    except ValueError as error:
        raise errors.ConfigError(f"{where}: {error}") from error
