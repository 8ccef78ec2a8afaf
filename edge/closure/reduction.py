"""What a reduced build of ONNX Runtime keeps of its kernel registrations.

:func:`kept` is the choice of upstream's ``reduce_op_kernels.py``, registration by registration;
the tests hold it against that tool. :class:`Options` is what else decides about a kernel: the
flags of ``build.py`` that are macros in the tables, and the processor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge import errors
from edge.closure import Closure, Types, operators
from edge.closure.registrations import Key, Registration, Tables

TYPE_MACROS = {
    "float4": "DISABLE_FLOAT4_TYPES",
    "float8": "DISABLE_FLOAT8_TYPES",
    "optional": "DISABLE_OPTIONAL_TYPE",
    "sparsetensor": "DISABLE_SPARSE_TENSORS",
    "string": "DISABLE_STRING_TYPE",
}
FLOAT16 = "MLAS_F16VEC_INTRINSICS_SUPPORTED"


@dataclass(frozen=True)
class Options:
    """How the runtime is built, by the flags of its ``build.py``.

    ``types``: ``--enable_reduced_operator_type_support``; ``disabled_types``: those of
    ``--disable_types``; ``ml_ops``, ``contrib_ops``, ``generation_ops`` (1.25 and newer): false
    for ``--disable_...``. Of the processor: ``fp16_vectors``, float16 arithmetic (arm64, not
    Apple's; also decided when the library is loaded), and ``nchwc``, whose kernels the library
    registers where MLAS has that layout only (amd64). ``macros``: others that this build and
    the full library are compiled with, such as ``USE_KLEIDIAI``. Raises
    :class:`errors.ConfigError` for a type that cannot be disabled.
    """

    minimal: Literal["base", "extended"] = "base"
    types: bool = True
    disabled_types: tuple[str, ...] = ()
    ml_ops: bool = True
    contrib_ops: bool = True
    generation_ops: bool = True
    fp16_vectors: bool = False
    nchwc: bool = True
    macros: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in self.disabled_types:
            if name not in TYPE_MACROS:
                raise errors.ConfigError(
                    f"{name!r} is no type that a build can leave out",
                    remedy=f"types are {', '.join(TYPE_MACROS)}",
                )

    @property
    def full(self) -> frozenset[str]:
        """The macros of the release's full library on the same processor."""
        return frozenset({FLOAT16} if self.fp16_vectors else ()) | frozenset(self.macros)

    @property
    def defines(self) -> frozenset[str]:
        """The macros that this build is compiled with, of those that guard registrations."""
        switches = {
            "ORT_MINIMAL_BUILD": True,
            "ORT_EXTENDED_MINIMAL_BUILD": self.minimal == "extended",
            "DISABLE_ML_OPS": not self.ml_ops,
            "DISABLE_CONTRIB_OPS": not self.contrib_ops,
            "DISABLE_GENERATION_OPS": not self.generation_ops,
        }
        disabled = {TYPE_MACROS[name] for name in self.disabled_types}
        return self.full | disabled | {macro for macro, on in switches.items() if on}

    def lacks_type(self, name: str) -> bool:
        """Whether the build leaves the C++ type ``name`` out altogether."""
        kind = "string" if name == "std::string" else name[:6].lower()
        return kind in self.disabled_types


class Choice:
    """What one configuration asks of each registration.

    An opset that is listed for the operator must lie in its range, and its types must be asked
    for. Extended builds always keep what layout transformation may add, with all types.
    """

    def __init__(self, offered: Closure, tables: Tables, options: Options) -> None:
        self.offered = offered if options.types else offered.without_types()
        layout = tables.layout if options.minimal == "extended" else ()
        self.always = {(domain, operator) for domain, operator, _ in layout}
        self.types: dict[Key, Types | None] = {}
        self.opsets: dict[Key, set[int]] = {}
        for entry in self.offered.entries:
            self.types[entry.key] = entry.types
            self.opsets.setdefault(entry.key, set()).add(entry.opset)
        for domain, operator, opset in layout:
            self.opsets.setdefault((domain, operator), set()).add(opset)

    def lists(self, row: Registration) -> bool:
        """Whether the opsets listed for its operator keep it."""
        row = row.tied or row
        if self.offered.every_operator or not row.reducible:
            return True
        return any(row.start <= opset <= row.end for opset in self.opsets.get(row.key, ()))

    def types_keep(self, row: Registration) -> bool:
        """Whether the types asked for keep it: ``is_typed_registration_needed``."""
        row = row.tied or row
        if not row.types or not row.reducible or row.key in self.always:
            return True
        allowed, types = self.offered.allowed_types, self.types.get(row.key)
        if row.key not in operators.TRACKED:
            return allowed is None or (len(row.types) == 1 and row.types[0] in allowed)
        if types is not None:
            return _asked(row, types)
        return allowed is None or set(row.types) <= {*allowed, *_always(row.key)}

    def keeps(self, row: Registration) -> bool:
        """Whether it stays in the reduced table."""
        return self.lists(row) and self.types_keep(row)


def place(key: Key) -> tuple[str, int]:
    """The input or output whose type tells an operator's registrations apart."""
    tracked = operators.TRACKED[key]
    return ("inputs", tracked.inputs[0]) if tracked.inputs else ("outputs", tracked.outputs[0])


def _always(key: Key) -> frozenset[str]:
    tracked = operators.TRACKED[key]
    return tracked.always if tracked.inputs[:1] == (0,) else frozenset()


def _asked(row: Registration, types: Types) -> bool:
    if operators.TRACKED[row.key].custom:
        return row.types in types.custom
    return len(row.types) == 1 and row.types[0] in {*_at(types, row.key), *_always(row.key)}


def _at(types: Types, key: Key) -> tuple[str, ...]:
    side, index = place(key)
    names: tuple[str, ...] | None = dict(getattr(types, side)).get(index)
    if names is None:
        raise errors.ConfigError(
            f"the configuration gives types of {key[0]} {key[1]}, and none for "
            f"{side[:-1]} {index}, which its kernels are chosen by: the build would stop there",
            remedy="make the configuration from the closures of all artifacts that ship",
        )
    return names


def kept(offered: Closure, tables: Tables, options: Options) -> tuple[Registration, ...]:
    """The registrations that the reduction leaves in the tables, conditions not regarded.

    ``offered`` is ``text.as_built`` of the configuration. Raises :class:`errors.ConfigError`
    for one that the runtime's tool would stop at.
    """
    choice = Choice(offered, tables, options)
    return tuple(row for row in tables.registrations if choice.keeps(row))
