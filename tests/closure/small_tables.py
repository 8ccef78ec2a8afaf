"""Small registration tables, as texts and as values, and hypothesis strategies of them."""

from __future__ import annotations

from hypothesis import strategies as st

from edge.closure import Closure, Entry, Types, operators
from edge.closure.conditions import Guard
from edge.closure.operators import OPEN
from edge.closure.reduction import Options
from edge.closure.registrations import Registration, Tables, parse
from tests.closures import KNOWN, TYPES


def row(what: str, macro: str = "", comma: str = ",") -> str:
    name = f"ONNX_OPERATOR_{macro}KERNEL_CLASS_NAME"
    return f"      BuildKernelCreateInfo<{name}(kCpuExecutionProvider, {what})>{comma}\n"


def add(start: int = 7) -> str:
    return row(f"kOnnxDomain, {start}, Add")


def one(text: str) -> Registration:
    (found,) = parse(text, "table.cc")
    return found


CONTRIB = "!defined(DISABLE_CONTRIB_OPS)"
FLOAT16 = "defined(MLAS_F16VEC_INTRINSICS_SUPPORTED)"
EXTENDED = "!defined(ORT_MINIMAL_BUILD) || defined(ORT_EXTENDED_MINIMAL_BUILD)"


def kernel(
    name: str,
    start: int = 1,
    end: int = OPEN,
    *types: str,
    domain: str = operators.ONNX,
    guard: str = "",
) -> Registration:
    guards = (Guard(guard),) if guard else ()
    return Registration(domain, name, start, end, types, guards)


def each_type(name: str, start: int, end: int, *types: str) -> tuple[Registration, ...]:
    return tuple(kernel(name, start, end, one) for one in types)


def at(index: int, *names: str) -> Types:
    return Types(((index, names),))


def out(*names: str) -> Types:
    return Types((), ((0, names),))


def need(operator: str, opset: int, types: Types | None = None, domain: str = "") -> Closure:
    return Closure((Entry(domain, operator, opset, types, "n1"),))


TABLES = Tables(
    (
        *each_type("Add", 7, 12, "float", "int32_t", "int64_t"),
        *each_type("Add", 14, OPEN, "float", "int32_t", "int64_t"),
        *each_type("ReduceProd", 13, 17, "float", "int64_t"),
        *each_type("ReduceProd", 18, OPEN, "float", "int64_t"),
        *each_type("QuantizeLinear", 13, 18, "uint8_t", "int8_t"),
        *each_type("Where", 16, OPEN, "float", "std::string"),
        kernel("OneHot", 11, OPEN, "float", "float", "int64_t"),
        kernel("OneHot", 11, OPEN, "int64_t", "std::string", "int64_t"),
        kernel("Cast", 13, 18),
        kernel("Transpose", 13, 20),
        kernel("Relu", 6, 12, "float"),
        *each_type("Relu", 13, 13, "float", "int8_t"),
        kernel("Conv", 11, 21),
        kernel("Conv", 11, 21, "MLFloat16", guard=FLOAT16),
        *each_type("LayerNorm", 17, OPEN, "float", "double"),
        kernel("Scaler", 1, OPEN, domain="ai.onnx.ml", guard="!defined(DISABLE_ML_OPS)"),
        kernel("FusedConv", 1, OPEN, "float", domain="com.microsoft", guard=CONTRIB),
        kernel("Beam", 1, domain="com.microsoft", guard="!defined(DISABLE_GENERATION_OPS)"),
        kernel("Full", 1, guard="!defined(ORT_MINIMAL_BUILD)"),
        kernel("Layout", 1, guard=EXTENDED),
        kernel("Odd", 1, guard="defined(A) && defined(B)"),
        kernel("Conv", 1, OPEN, "float", domain="com.microsoft.nchwc"),
    ),
    (("ai.onnx", "Transpose", 13), ("ai.onnx", "QuantizeLinear", 13)),
)  # fmt: skip


GUARDS = (
    (), (Guard(CONTRIB),), (Guard(FLOAT16),), (Guard("!defined(ORT_MINIMAL_BUILD)"),),
    (Guard(EXTENDED),), (Guard("!defined(DISABLE_ML_OPS)"), Guard("defined(A)")),
)  # fmt: skip


@st.composite
def rows(draw: st.DrawFn) -> Registration:
    domain, operator, opsets = draw(st.sampled_from(KNOWN))
    start = draw(st.sampled_from(opsets))
    end = draw(st.sampled_from((OPEN, start, start + 2, 21)))
    tracked = operators.TRACKED.get((domain, operator))
    count = 3 if tracked and tracked.custom else draw(st.sampled_from((1, 1, 2)))
    types = draw(st.just(()) | st.tuples(*[st.sampled_from(TYPES)] * count))
    return Registration(domain, operator, start, end, types, draw(st.sampled_from(GUARDS)))


@st.composite
def tables(draw: st.DrawFn) -> Tables:
    layout = draw(st.lists(st.sampled_from([(d, n, o) for d, n, all_ in KNOWN for o in all_])))
    found = draw(st.lists(rows(), max_size=20))
    # Some entry has a kernel most of the time.
    found += [Registration(d, n, o[0], o[-1]) for d, n, o in KNOWN if draw(st.booleans())]
    return Tables(tuple(found), tuple(sorted(set(layout))))


def options() -> st.SearchStrategy[Options]:
    """Any way to build, with every type."""
    return st.builds(
        Options, st.sampled_from(("base", "extended")), st.booleans(), st.just(()),
        *[st.booleans()] * 5, st.sampled_from(((), ("A",))),
    )  # fmt: skip


# Magika, Silero (16 kHz) and PP-OCR's classifier, optimized by 1.21.0: their closure.
ARM = """\
ai.onnx;1;GlobalAveragePool,GlobalMaxPool
ai.onnx;5;Reshape
ai.onnx;7;Add{"inputs": {"0": ["float"]}},Div{"inputs": {"0": ["float"]}},Mul{"inputs": {"0": ["float"]}}
ai.onnx;11;Clip{"inputs": {"0": ["float"]}},Conv{"inputs": {"0": ["float"]}},Gemm{"inputs": {"0": ["float"]}},MaxPool{"inputs": {"0": ["float"]}},Softmax{"inputs": {"0": ["float"]}}
ai.onnx;13;Cast{"inputs": {"0": ["bool"]}, "outputs": {"0": ["float"]}},Concat{"inputs": {"0": ["float"]}},Equal{"inputs": {"0": ["int32_t"]}},Exp{"inputs": {"0": ["float"]}},Gemm{"inputs": {"0": ["float"]}},MatMul{"inputs": {"0": ["float"]}},Max{"inputs": {"0": ["float"]}},Pad{"inputs": {"0": ["float"]}},ReduceMax{"inputs": {"0": ["float"]}},ReduceSum{"inputs": {"0": ["float"]}},Split{"inputs": {"0": ["float"]}},Squeeze,Transpose{"inputs": {"0": ["float"]}},Unsqueeze
ai.onnx;14;Add{"inputs": {"0": ["float"]}},LSTM,Mul{"inputs": {"0": ["float"]}},Relu{"inputs": {"0": ["float"]}},Reshape,Sub{"inputs": {"0": ["float"]}}
ai.onnx;15;Pow{"inputs": {"0": ["float"], "1": ["float"]}}
com.microsoft;1;FusedConv
"""  # noqa: E501
X64 = ARM + "com.microsoft.nchwc;1;Conv,ReorderInput,ReorderOutput\n"
