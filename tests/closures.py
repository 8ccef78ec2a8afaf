"""Hypothesis strategies for operator closures."""

from __future__ import annotations

from hypothesis import strategies as st

from edge.closure import Closure, Entry, Types, operators

# (domain, operator, opsets at which it exists): tracked in all ways, and not tracked.
KNOWN = (
    ("ai.onnx", "Add", (7, 13, 14)),
    ("ai.onnx", "Cast", (9, 13)),
    ("ai.onnx", "ConstantOfShape", (9, 20)),
    ("ai.onnx", "Erf", (9, 13)),
    ("ai.onnx", "OneHot", (9, 11)),
    ("ai.onnx", "ReduceProd", (13, 18)),
    ("ai.onnx", "Where", (9, 16)),
    ("com.microsoft", "FusedConv", (1,)),
    ("com.microsoft.nchwc", "Conv", (1,)),
)
TYPES = ("float", "int32_t", "int64_t", "std::string", "MLFloat16")

_names = st.lists(st.sampled_from(TYPES), min_size=1, max_size=3).map(tuple)
_triple = st.tuples(*[st.sampled_from(TYPES)] * 3)


@st.composite
def types_for(draw: st.DrawFn, domain: str, operator: str) -> Types | None:
    """Types as the runtime's reader makes them: at the tracked places, or none."""
    tracked = operators.TRACKED.get((domain, operator))
    if tracked is None or draw(st.booleans()):
        return None
    if tracked.custom:
        return Types(custom=tuple(draw(st.lists(_triple, min_size=1, max_size=3))))
    return Types(
        tuple((index, draw(_names)) for index in tracked.inputs),
        tuple((index, draw(_names)) for index in tracked.outputs),
    )


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    """One entry of a known operator."""
    domain, operator, opsets = draw(st.sampled_from(KNOWN))
    types = draw(types_for(domain, operator))
    node = draw(st.sampled_from(("", "a", "b")))
    return Entry(domain, operator, draw(st.sampled_from(opsets)), types, node)


def of_models() -> st.SearchStrategy[Closure]:
    """Closures as artifacts have them."""
    return st.lists(entries(), max_size=8).map(lambda found: Closure(tuple(found)))


@st.composite
def closures(draw: st.DrawFn) -> Closure:
    """Any closure that a configuration can say."""
    if draw(st.integers(0, 4)):
        return draw(of_models())
    allowed = draw(st.none() | _names)
    bare = draw(of_models()).without_types().entries
    return Closure(bare, allowed, every_operator=draw(st.booleans()))
