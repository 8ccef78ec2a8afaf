"""A framework's MIL program under the canonical model's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge import errors
from edge.convert import mil_executor
from edge.convert.coreml_saved import save
from edge.convert.mil_package import convert_program
from edge.convert.onnx_to_mil import convert
from edge.sources import coreml_ports
from tests.convert.coreml_setup import need_coremltools, parsed

pytestmark = [
    # coremltools leaves the folder that it writes weights to for Python to remove.
    pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
INPUTS = "float[2,3] x"


def ports(folder: Path, text: str) -> coreml_ports.Ports:
    need_coremltools()
    onnx.save(parsed(text), folder / "like.onnx")
    return coreml_ports.of(folder / "like.onnx")


def program(body: str, outputs: str) -> Any:
    """As a frontend gives it: with inputs that have their names, and outputs that have not."""
    return convert(parsed(f"g ({INPUTS}) => ({outputs}) {{ {body} }}")).program


def run(folder: Path, made: Any, found: coreml_ports.Ports) -> dict[str, Any]:
    """Outputs of the saved package for ones."""
    inputs, outputs = ([port.to_json() for port in side] for side in (found.inputs, found.outputs))
    packed = convert_program(made, target="iOS16", precision="fp32")
    save(packed, inputs, outputs, folder / "p.mlpackage")
    ran = mil_executor.run(
        mil_executor.load(folder / "p.mlpackage"), {"x": np.ones((2, 3), np.float32)}
    )
    return ran.outputs


def test_outputs_are_named_and_what_bore_the_name_makes_way(tmp_path: Path) -> None:
    """``b`` is an operation inside, an output's name in the canonical model, and not its value."""
    wanted = ports(tmp_path, f"g ({INPUTS}) => (float[2,3] b, float[2,3] a) {{ }}")
    made = program(
        "b = Exp(x) first = Neg(b) second = Abs(b)", "float[2,3] first, float[2,3] second"
    )
    found = coreml_ports.fit(made, wanted)
    assert [port.name for port in found.outputs] == ["b", "a"]
    outputs = run(tmp_path, made, found)
    np.testing.assert_allclose(outputs["b"], -np.exp(np.ones((2, 3))), rtol=1e-6)
    np.testing.assert_allclose(outputs["a"], np.exp(np.ones((2, 3))), rtol=1e-6)


def test_an_output_that_is_an_input_or_given_twice_is_one_of_its_own(tmp_path: Path) -> None:
    names = ("same", "one", "two")
    told = ", ".join(f"float[2,3] {name}" for name in names)
    wanted = ports(tmp_path, f"g ({INPUTS}) => ({told}) {{ }}")
    made = program("y = Neg(x)", "float[2,3] y")
    function = made.functions["main"]
    function.set_outputs([function.inputs["x"], *(2 * list(function.outputs))])
    found = coreml_ports.fit(made, wanted)
    outputs = run(tmp_path, made, found)
    assert {name: float(outputs[name][0, 0]) for name in names} == {
        "same": 1.0, "one": -1.0, "two": -1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("like", "why"),
    [
        ("g (float[2,3] x) => (float[2,3] y, float[2,3] z) { }", "has 1 outputs, .* model 2"),
        ("g (float[2,3] z) => (float[2,3] y) { }", "made the inputs x of z"),
        ("g (float[3,2] x) => (float[2,3] y) { }", "'x' has the shape"),
        ("g (int32[2,3] x) => (float[2,3] y) { }", "'x' is fp32, no int32"),
        ("g (float[2,3] x) => (int64[2,3] y) { }", "'y' is fp32, no int32"),
    ],
)
def test_what_does_not_fit_the_canonical_model_is_refused(
    tmp_path: Path, like: str, why: str
) -> None:
    wanted = ports(tmp_path, like)
    with pytest.raises(errors.ModelRefused, match=why):
        coreml_ports.fit(program("y = Neg(x)", "float[2,3] y"), wanted)


@pytest.mark.parametrize(
    ("like", "why"),
    [
        ("g (float[n,3] x) => (float[n,3] y) { }", "'x' has no fixed shape"),
        (
            "g (float[1,1,1,1,1,1] x) => (float y) { }",
            "'x' has 6 dimensions, Core ML has at most 5",
        ),
        ("g (string[2] x) => (float y) { }", "'x' is a string"),
    ],
)
def test_what_core_ml_does_not_hold_is_refused(tmp_path: Path, like: str, why: str) -> None:
    with pytest.raises(errors.ModelRefused, match=why):
        ports(tmp_path, like)


def test_inputs_by_other_names_are_refused(tmp_path: Path) -> None:
    wanted = ports(tmp_path, "g (float[1] a, float[1] b) => (float[1] y) { }")
    assert [port.onnx for port in wanted.ordered(["b", "a"])] == ["b", "a"]
    with pytest.raises(errors.ModelRefused, match="has the inputs a, the canonical model a, b"):
        wanted.ordered(["a"])
