from __future__ import annotations

import time
from pathlib import Path

import pytest

from edge import errors
from edge.closure import Closure, Entry
from edge.closure.coverage import cover, prove, strangers
from edge.closure.reduction import Options
from edge.closure.registrations import Tables, load
from edge.closure.text import as_built, parse, render
from tests.closure.small_tables import ARM, X64, at, need

TIED = (
    "the configuration does not keep it, it lists it at 1 "
    "(the runtime's tool takes its line for one of FusedMatMul)"
)
UNKNOWN = "the domain com.microsft is not known (did you mean com.microsoft?)"


@pytest.fixture(scope="session")
def real(ort_source: Path) -> Tables:
    return load(ort_source)


@pytest.mark.parametrize(
    ("config", "how"),
    [
        (X64, Options()), (X64, Options(ml_ops=False, disabled_types=("float8", "optional"))),
        (ARM, Options(fp16_vectors=True, nchwc=False)), (ARM, Options(nchwc=False)),
        (ARM, Options("extended", types=False)),
    ],
)  # fmt: skip
def test_three_real_models_are_covered(real: Tables, config: str, how: Options) -> None:
    needed = parse(config)
    covers = prove(needed, as_built(config), real, how)
    assert len(covers) == len(needed.entries) > 30
    assert all(each.base and each.extended for each in covers)
    assert strangers(needed, real.registrations) == ()


def test_nothing_of_three_real_models_can_be_left_out(real: Tables) -> None:
    needed = parse(X64)
    for entry in needed.entries:
        rest = Closure(tuple(each for each in needed.entries if each.key != entry.key))
        lacking = {each.operator for each in cover(needed, rest, real, Options()) if not each.base}
        assert lacking == {entry.operator} or entry.operator == "Conv"


@pytest.mark.parametrize(
    ("entry", "how", "why"),
    [
        # Functions of the standard that have no kernel of their own.
        (Entry("", "HardSwish", 14), Options(), "no kernel is registered for it"),
        (Entry("", "Mish", 18), Options(), "no kernel is registered for it"),
        (Entry("", "Cast", 23), Options(),
         "no kernel is registered for version 23 of it, only for 6, 13, 19, 21"),
        (Entry("com.microsoft", "MatMulFpQ4", 1), Options(), "only compiled into full builds"),
        (Entry("com.microsoft", "FusedConv", 1), Options(contrib_ops=False),
         "only compiled with contrib operators"),
        (Entry("ai.onnx.ml", "Normalizer", 1), Options(ml_ops=False),
         "only compiled with ML operators"),
        (Entry("", "Optional", 15), Options(disabled_types=("optional",)),
         "only compiled with the type optional"),
        (Entry("com.microsoft.nchwc", "Conv", 1), Options(nchwc=False),
         "only registered on processors with the layout NCHWc (amd64)"),
        (Entry("com.microsoft.nchwc", "Conv", 1), Options(contrib_ops=False),
         "only compiled with contrib operators"),
        (Entry("com.microsoft", "SGDOptimizer", 1), Options(),
         "only compiled with training operators"),
        (Entry("com.microsoft", "TransposeMatMul", 1), Options(),
         TIED),
    ],
)  # fmt: skip
def test_what_a_real_tree_does_not_build_is_found(
    real: Tables, entry: Entry, how: Options, why: str
) -> None:
    needed = Closure((entry,))
    (found,) = cover(needed, needed, real, how)
    assert found.reason == why


def test_a_replaced_type_line_is_found_in_a_real_tree(real: Tables) -> None:
    config = (
        'ai.onnx;13;ReduceProd{"inputs": {"0": ["int64_t"]}}\n'
        'ai.onnx;18;ReduceProd{"inputs": {"0": ["float"]}}\n'
    )
    with pytest.raises(errors.ClosureIncomplete, match="the kernel for int64_t is dropped"):
        prove(need("ReduceProd", 13, at(0, "int64_t")), as_built(config), real, Options())
    merged = as_built(render(parse(config), types=True))
    prove(need("ReduceProd", 13, at(0, "int64_t")), merged, real, Options())


def test_a_misspelt_operator_is_a_stranger_in_a_real_tree(real: Tables) -> None:
    odd = Closure((Entry("", "Rleu", 14), Entry("com.microsft", "Gelu", 1), Entry("", "Relu", 23)))
    assert [str(each) for each in strangers(odd, real.registrations)] == [
        "ai.onnx;23;Relu: no CPU kernel: the highest opset of ai.onnx that is known is 22",
        "ai.onnx;14;Rleu: no CPU kernel: ai.onnx has no operator Rleu (did you mean Relu?)",
        f"com.microsft;1;Gelu: no CPU kernel: {UNKNOWN}",
    ]


def test_a_real_tree_is_read_and_covered_within_a_second(ort_source: Path) -> None:
    began = time.process_time()
    prove(parse(X64), as_built(X64), load(ort_source), Options())
    assert time.process_time() - began < 1
