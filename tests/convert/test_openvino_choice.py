"""Which of two IRs is kept, rule by rule, and by the step."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.convert import openvino_library as ov
from edge.convert.openvino_choice import Way, better, openvino_choice
from edge.convert.openvino_ir import openvino_ir
from tests import models
from tests.convert.golden_setup import drawn
from tests.convert.openvino_setup import F32, RELEASE, Setup, need_openvino

EVEN = Way(120.0, 1000, 10)


@pytest.mark.parametrize(
    ("framework", "kept", "why"),
    [
        (Way(120.0, 1000, 10), "canonical", "no clear difference in noise or bytes, as many"),
        (Way(120.0, 1000, 9), "framework", "9 operations, the other 10"),
        (Way(120.0, 1000, 11), "canonical", "10 operations, the other 11"),
        (Way(120.0, 989, 50), "framework", "989 bytes, the other 1000"),
        (Way(120.0, 991, 50), "canonical", "10 operations"),
        (Way(120.0, 1011, 2), "canonical", "1000 bytes, the other 1011"),
        (Way(120.0, 1009, 2), "framework", "2 operations"),
        (Way(160.0, 2000, 50), "canonical", "1000 bytes"),  # rounding is no difference
        (Way(math.inf, 1000, 10), "canonical", "no clear difference"),
        (Way(93.0, 500, 2), "canonical", "SQNR 100.0 dB, the other 93.0 dB"),
        (Way(95.0, 500, 2), "framework", "500 bytes"),
        (
            Way(160.0, 500, 2, "sample 0, 'y': max_abs"),
            "canonical",
            "not within tolerance: sample 0",
        ),
    ],
)
def test_the_rules(framework: Way, kept: str, why: str) -> None:
    found, said = better(EVEN, framework)
    assert found == kept
    assert why in said


def test_the_frameworks_own_is_kept_where_the_canonical_one_is_wrong() -> None:
    wrong = Way(10.0, 1, 1, "sample 0")
    assert better(wrong, EVEN)[0] == "framework"
    assert better(wrong, wrong)[0] == "canonical"  # the gate refuses it by name


WAYS = st.builds(
    Way,
    st.floats(-300, 300),
    st.integers(1, 10**9),
    st.integers(0, 10**5),
    st.sampled_from(["", "sample 0"]),
)


@given(WAYS, WAYS)
def test_no_way_that_is_right_loses_to_a_wrong_one(canonical: Way, framework: Way) -> None:
    kept = {"canonical": canonical, "framework": framework}[better(canonical, framework)[0]]
    assert kept.why_not == "" or (canonical.why_not and framework.why_not)


@given(WAYS)
def test_two_alike_are_the_canonical_one(way: Way) -> None:
    assert better(way, way)[0] == "canonical"


def longer(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with two operations more that change nothing and that no converter folds."""
    body = model.graph
    (last,) = (node for node in body.node if "y" in node.output)
    last.output[0] = "before"
    body.node.append(onnx.helper.make_node("Sinh", ["before"], ["sinh"]))
    body.node.append(onnx.helper.make_node("Asinh", ["sinh"], ["y"]))
    return model


def choose(setup: Setup, other: onnx.ModelProto, **tolerance: Any) -> dict[str, Any]:
    need_openvino()
    onnx.save(other, setup.folder / "other.onnx")
    out = setup.place("other")
    openvino_ir.function(out, model=setup.folder / "other.onnx", release=RELEASE)
    facts = openvino_choice.function(
        setup.place("chosen"), canonical=setup.ir(), framework=out / ov.IR, golden=setup.golden,
        properties=F32, tolerance=tolerance or {"max_abs": 1e-4}, release=RELEASE,
    )  # fmt: skip
    assert facts is not None
    kept = setup.ir().parent if facts["kept"] == "canonical" else out
    for name in (ov.IR, "model.bin"):
        assert (setup.folder / "chosen" / name).read_bytes() == (kept / name).read_bytes()
    return facts


def test_the_shorter_one_is_kept_whichever_it_is(tmp_path: Path) -> None:
    case = [{"x": drawn(0, 3, 4)}]
    facts = choose(Setup(tmp_path / "a", models.mlp(), case), longer(models.mlp()))
    assert facts["kept"] == "canonical"
    assert facts["framework"]["operations"] == facts["canonical"]["operations"] + 2
    assert (
        choose(Setup(tmp_path / "b", longer(models.mlp()), case), models.mlp())["kept"]
        == "framework"
    )


def test_one_that_computes_something_else_is_not_kept(tmp_path: Path) -> None:
    setup = Setup(tmp_path / "m", longer(models.mlp()), [{"x": drawn(0, 3, 4)}])
    facts = choose(setup, models.mlp(scale=1.5))
    assert facts["kept"] == "canonical"
    assert facts["framework"]["why_not"].startswith("sample 0, 'y': max_abs")


def test_one_that_does_not_run_on_the_samples_is_not_kept(tmp_path: Path) -> None:
    """A trace that took the batch of its example for a constant."""
    traced = models.mlp()
    for port in (*traced.graph.input, *traced.graph.output):
        port.type.tensor_type.shape.dim[0].dim_value = 2
    setup = Setup(tmp_path / "m", models.mlp(), [{"x": drawn(0, 3, 4)}])
    facts = choose(setup, traced)
    assert facts["kept"] == "canonical"
    assert "does not run on its samples" in facts["framework"]["why_not"]
    assert facts["framework"]["sqnr_db"] == "-inf"
