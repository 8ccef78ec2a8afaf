"""Half precision where it is good enough, single precision where it overflows or is too noisy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge import process
from edge.convert import mil_executor
from edge.convert.coreml_fp16 import ALL, half_operations
from edge.convert.coreml_run import Golden, Judged
from edge.convert.golden_sqnr import HIGHEST_DB
from edge.convert.mil_package import PACKAGE
from tests.convert.coreml_setup import Setup, content, parsed
from tests.convert.golden_setup import drawn

# coremltools leaves the folder that it writes weights to for Python to remove.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Implicitly cleaning up:ResourceWarning",
    "ignore::pytest.PytestUnraisableExceptionWarning",
)


def chain(scale: float, back: float) -> onnx.ModelProto:
    """x[1, 8] -> product, Tanh, twice times ``scale``, twice times ``back``, Sigmoid -> y[1, 8]."""
    return parsed(
        """g (float[1,8] x) => (float[1,8] y) {
            p = MatMul(x, w) t = Tanh(p) k = Mul(t, s) a = Abs(k) l = Mul(a, s) r = Relu(l)
            m = Mul(r, b) o = Cos(m) n = Mul(m, b) q = Add(n, o) y = Sigmoid(q)
        }""",
        w=drawn(1, 8, 8),
        s=np.array(scale, np.float32),
        b=np.array(back, np.float32),
    )


def test_a_model_that_fits_is_all_half_precision(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", chain(2.0, 0.5), [{"x": drawn(2, 1, 8)}])
    facts = setup.half(40)
    assert (facts["fp32"], facts["why"]) == ([], "")
    assert facts["sqnr_db"] > 50
    assert len(half_operations(setup.folder / "half" / PACKAGE)) >= 5


def test_what_overflows_keeps_single_precision_with_its_readers_alone(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", chain(600.0, 0.005), [{"x": drawn(2, 1, 8)}])
    facts = setup.half(30)
    assert facts["fp32"] == ["l", "r", "m"]
    assert facts["why"] == "l overflows in half precision"
    assert facts["sqnr_db"] > 30
    assert half_operations(setup.folder / "half" / PACKAGE) == [
        "p",
        "t",
        "k",
        "a",
        "o",
        "n",
        "q",
        "y",
    ]
    judged = Golden(setup.golden.parent).judge(setup.folder / "half" / PACKAGE)
    assert judged.odd == ()


def test_without_it_the_same_model_is_not_right(tmp_path: Path) -> None:
    """What the search is for: the package as coremltools makes it overflows, and says nothing."""
    setup = Setup(tmp_path / "m", chain(600.0, 0.005), [{"x": drawn(2, 1, 8)}])
    judged = Golden(setup.golden.parent).judge(setup.plain("fp16").parent)
    assert judged.odd
    assert judged.db < 20


def test_infinity_of_the_source_is_no_overflow(tmp_path: Path) -> None:
    made = parsed("""g (float[1,8] x, float[1,8] one) => (float[1,8] y, float[1,8] z) {
        r = Relu(x) y = Div(one, r) z = Neg(x)
    }""")
    case = {"x": drawn(2, 1, 8), "one": np.ones((1, 8), np.float32)}
    setup = Setup(tmp_path / "m", made, [case])
    facts = setup.half(40)
    assert (facts["fp32"], facts["why"]) == ([], "")
    assert facts["sqnr_db"] > 40


def test_noise_is_met_by_parts_of_the_program_and_then_by_all_of_it(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", chain(2.0, 0.5), [{"x": drawn(2, 1, 8)}])
    before = setup.half(40)["sqnr_db"]
    more = setup.half(before + 1, "more")
    assert more["sqnr_db"] >= before + 1
    assert len(more["fp32"]) > 0
    assert more["why"].startswith(f"half precision has {before} dB, and ")
    every = setup.half(110, "all")
    assert (every["fp32"], every["sqnr_db"] > 110) == ([ALL], True)
    assert half_operations(setup.folder / "all" / PACKAGE) == []


def test_what_the_executor_does_not_know_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*_words: Any, **_more: Any) -> Any:
        raise mil_executor.Unverified("s: the executor does not know the operation sigmoid")

    setup = Setup(tmp_path / "m", chain(600.0, 0.005), [{"x": drawn(2, 1, 8)}])
    monkeypatch.setattr(mil_executor, "run", unknown)
    facts = setup.half(40)
    assert (facts["fp32"], facts["sqnr_db"]) == ([], None)
    assert Judged(None).db == HIGHEST_DB


@pytest.mark.process
def test_another_process_gives_the_same_bytes(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", chain(600.0, 0.005), [{"x": drawn(2, 1, 8)}])
    facts = setup.half(30)
    out = tmp_path / "another-folder"
    out.mkdir()
    again = process.run_python(
        "edge.convert.coreml_fp16:coreml_fp16.function",
        {"out": out, "model": setup.model, "golden": setup.golden,
         "minimum_deployment_target": "iOS16", "goal": 30.0},
        timeout=300,
    )  # fmt: skip
    assert again == facts
    made = content(out)
    assert made == content(setup.folder / "half")
    assert not [name for name, data in made.items() if str(tmp_path).encode() in data]
    assert list(made) == [f"{PACKAGE}/Data/com.apple.CoreML/model.mlmodel",
                          f"{PACKAGE}/Data/com.apple.CoreML/weights/weight.bin",
                          f"{PACKAGE}/Manifest.json"]  # fmt: skip
