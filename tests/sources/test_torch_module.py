"""PyTorch sources: three kinds of files and every way in which a model must be refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import errors, graph, samples
from edge.model import BoundInput
from edge.sources import torch_module, torch_ports
from tests.sources import torch_models
from tests.sources.torch_models import X, export_file, onnx_outputs, options, refusal, saved

torch = torch_models.library()
pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning", "ignore:.*LeafSpec.*:FutureWarning"
)


@pytest.fixture
def export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Export what a factory returns; gives the facts and the file."""
    count = iter(range(100))

    def run(made: Any, *inputs: dict[str, Any], **more: Any) -> tuple[dict[str, Any], Path]:
        monkeypatch.setattr("edge.sources.factory.make", lambda source, factory: made)
        out = tmp_path / f"out{next(count)}"
        out.mkdir()
        settings = options(*inputs, **more)
        facts = torch_module.export_torch.function(
            out, source=tmp_path / "m.py", factory="m:make", options=settings
        )
        assert facts is not None
        return facts, out / "model.onnx"

    return run


# --- trained models, from every kind of source


@pytest.mark.parametrize("name", list(torch_models.MODELS))
def test_models_are_well_above_chance(name: str) -> None:
    images, numbers = torch_models.test_images(name)
    model = torch_models.trained(name)
    with torch.no_grad():
        found = model(torch.from_numpy(images)).argmax(1)
    assert (found.numpy() == numbers).mean() > 0.85


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        *((name, kind) for name in torch_models.MODELS for kind in ("factory", "program", "trace")),
        ("lstm", "script"),
    ],
)
def test_onnxruntime_gives_what_torch_gives(
    name: str, kind: str, tmp_path: Path, export: Any
) -> None:
    images, numbers = torch_models.test_images(name)
    # A name that is none of forward()'s: it is taken by order. The usual batch of a device, 1, must
    # not be taken for the only one: an exporter makes an LSTM's first state for it.
    said = {"name": "pixels", "dtype": None, "shape": ["batch", *images.shape[1:]]}
    more = {"outputs": ["logits"], "dims": {"batch": 1}}
    model = torch_models.trained(name)
    if kind == "factory":
        facts, path = export(model, said, **more)
    else:
        facts = export_file(saved(name, kind, tmp_path), tmp_path / "o", said, **more)
        path = tmp_path / "o" / "model.onnx"
    assert facts["inputs"] == [
        {"name": "pixels", "dtype": "float32", "shape": ["batch", *images.shape[1:]]}
    ]
    assert [port["name"] for port in facts["outputs"]] == ["logits"]
    assert facts["opset"] == 20
    assert facts["exporter"].startswith("torch.onnx.export 2.")
    assert facts["source_kind"] == (kind if kind in ("factory", "program") else "torchscript")
    assert "dynamo=False" not in facts["exporter"]
    assert ("TS2EPConverter" in facts["exporter_note"]) == (kind in ("trace", "script"))
    for count in (1, 7):
        with torch.no_grad():
            expected = model(torch.from_numpy(images[:count])).numpy()
        (actual,) = onnx_outputs(path, {"pixels": images[:count]})
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-5)
    (actual,) = onnx_outputs(path, {"pixels": images})
    assert (actual.argmax(1) == numbers).mean() > 0.85


def test_a_scripted_loop_takes_the_older_exporter(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(torch_models.Loop().eval()), tmp_path / "m.ts")
    facts = export_file(tmp_path / "m.ts", tmp_path / "o", X)
    assert facts["exporter"].endswith("(dynamo=False)")
    assert "prim::Loop" in facts["exporter_note"]
    x = np.random.default_rng(0).random((5, 8), np.float32)
    (actual,) = onnx_outputs(tmp_path / "o" / "model.onnx", {"x": x})
    expected = torch_models.Loop()(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-6)


def test_scripted_attention_is_refused_in_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = saved("transformer", "script", tmp_path)
    capfd.readouterr()
    error = refusal(export_file, path, tmp_path / "o", {**X, "shape": ["batch", 8, 8]})
    assert "the operator aten.is_autocast_enabled has no ONNX form" in error.message
    assert "torch.jit.trace" in error.remedy
    assert capfd.readouterr() == ("", "")


def test_golden_samples_are_those_of_the_module(tmp_path: Path, export: Any) -> None:
    model = torch_models.trained("transformer")
    images, _ = torch_models.test_images("transformer")
    shape = list(images[:3].shape)
    facts, _ = export(model, {"name": "rows", "dtype": "float32", "shape": shape})
    samples.write(tmp_path / "in", [({"rows": images[:3]}, {})])
    made = torch_module.torch_golden.function(
        tmp_path / "golden",
        source=tmp_path / "m.py",
        factory="m:make",
        options=options({"name": "rows", "dtype": "float32", "shape": shape}),
        cases=tmp_path / "in" / samples.INDEX,
        inputs=[BoundInput("rows", "float32", tuple(shape)).to_json()],
        names=["output"],
    )
    assert made == {"samples": 1, "not_finite": []}
    (case,) = samples.cases(tmp_path / "golden", "output")
    with torch.no_grad():
        expected = model(torch.from_numpy(images[:3])).numpy()
    np.testing.assert_allclose(case["output"], expected, rtol=0, atol=1e-5)
    assert facts["outputs"] == [{"name": "output", "dtype": "float32", "shape": [3, 10]}]
    assert case["output"].dtype.name == "float32"


# --- training mode, randomness, weights


def test_training_mode_is_refused_by_name(export: Any) -> None:
    said = {"name": "image", "dtype": "float32", "shape": [2, 1, 8, 8]}
    error = refusal(export, torch_models.Cnn(), said)
    assert error.message == "model.features.1, model.drop are in training mode"
    assert error.remedy == "call model.eval() in the factory"


def test_a_nested_dropout_that_is_on_is_refused(export: Any) -> None:
    model = torch_models.Nested().eval()
    model.get_submodule("body.1.1").train()
    error = refusal(export, model, X)
    assert error.message == "model.body.1.1 is in training mode"


def test_functional_dropout_is_refused_with_its_line(export: Any) -> None:
    error = refusal(export, torch_models.Hidden().eval(), X)
    assert "draws random numbers" in error.message
    assert re.search(r"torch_models\.py:\d+ \(`return F\.dropout", error.message)


def test_functional_batch_norm_in_training_mode_is_refused(export: Any) -> None:
    error = refusal(export, torch_models.HiddenNorm().eval(), X)
    assert "changes its own mean" in error.message


@pytest.mark.parametrize("kind", ["program", "torchscript"])
def test_training_mode_in_a_file_is_refused(kind: str, tmp_path: Path) -> None:
    model, example = torch_models.Nested(), torch.rand(2, 8)
    if kind == "program":
        path = tmp_path / "m.pt2"
        torch.export.save(torch.export.export(model, (example,)), path)
    else:
        path = tmp_path / "m.pt"
        torch.jit.save(torch.jit.script(model), path)
    error = refusal(export_file, path, tmp_path / "o", {**X, "shape": [2, 8]})
    assert "training mode" in error.message
    assert "model.eval() before torch." in error.remedy


def test_nan_weights_are_refused_by_name(export: Any) -> None:
    model = torch_models.Small().eval()
    with torch.no_grad():
        model.fc.bias[1] = float("nan")
    assert refusal(export, model, X).message == "the parameter fc.bias holds NaN"


def test_infinite_weights_are_refused_where_they_reach_an_output(export: Any) -> None:
    model = torch_models.Small().eval()
    with torch.no_grad():
        model.fc.bias[1] = float("inf")
    assert "fc.bias holds infinity" in refusal(export, model, X).message
    masked = torch_models.Masked().eval()
    _, path = export((masked, torch.rand(8, 8)))
    example = np.random.default_rng(0).random((8, 8), np.float32)
    (actual,) = onnx_outputs(path, {"x": example})
    np.testing.assert_allclose(actual, masked(torch.from_numpy(example)), rtol=0, atol=1e-5)


def test_weights_elsewhere_are_refused(export: Any) -> None:
    with torch.device("meta"):
        model = torch_models.Small().eval()
    assert "fc.weight is on the meta device" in refusal(export, model, X).message


def test_lazy_modules_are_refused(export: Any) -> None:
    model = torch.nn.Sequential(torch.nn.LazyLinear(3)).eval()
    assert "0.weight has no shape yet" in refusal(export, model, X).message


def test_more_than_two_gigabytes_are_refused_before_the_export(export: Any) -> None:
    model = torch_models.Small().eval()
    model.register_buffer("table", torch.zeros(1).expand(2**29))
    error = refusal(export, model, X)
    assert "hold 2147483792 bytes" in error.message


@pytest.mark.parametrize(
    ("dtype", "says"),
    [(torch.float64, "whose parameters are 2 of float64"), (torch.bfloat16, "2 of bfloat16")],
)
def test_types_that_onnxruntime_has_no_kernels_for(dtype: Any, says: str, export: Any) -> None:
    model = torch_models.Within(torch.nn.Conv2d(1, 2, 3), dtype).eval()
    error = refusal(export, (model, torch.rand(1, 1, 8, 8)))
    assert "onnxruntime's CPU provider cannot run the model" in error.message
    assert says in error.message
    assert "module.float()" in error.remedy


def test_bfloat16_at_the_border_is_refused(export: Any) -> None:
    model = torch_models.Returns(lambda x, y: y.bfloat16()).eval()
    assert "which neither numpy nor samples can hold" in refusal(export, model, X).message
    error = refusal(export, (model, torch.rand(2, 8).bfloat16()))
    assert "the input 'x' has the type bfloat16" in error.message


# --- inputs


def test_shapes_that_nothing_says_are_asked_for(export: Any) -> None:
    error = refusal(export, torch_models.Sum().eval(), {"name": "x", "dtype": None, "shape": [2]})
    assert error.message == "forward() also needs y"
    error = refusal(export, torch_models.Sum().eval())
    assert error.message == "nothing says the shape of the input x, y"
    assert '[model.inputs.x]\nshape = ["batch", 3, 224, 224]\ndtype = "float32"' in error.remedy


def test_example_inputs_are_enough(export: Any) -> None:
    facts, _ = export((torch_models.Sum().eval(), {"x": torch.rand(2, 3), "y": torch.rand(2, 3)}))
    assert [(port["name"], port["shape"]) for port in facts["inputs"]] == [
        ("x", [2, 3]), ("y", [2, 3]),
    ]  # fmt: skip


def test_an_input_that_forward_does_not_have(export: Any) -> None:
    two = ({"name": name, "dtype": None, "shape": [2]} for name in ("x", "z"))
    assert "input 'z'" in refusal(export, torch_models.Sum().eval(), *two).message


def test_equal_names_are_equal_dimensions(export: Any) -> None:
    said = [{"name": name, "dtype": None, "shape": ["n", 8]} for name in ("x", "y")]
    facts, _ = export(torch_models.Sum().eval(), *said)
    assert [port["shape"] for port in facts["inputs"]] == [["n", 8], ["n", 8]]
    said[1]["shape"] = ["m", 8]
    error = refusal(export, torch_models.Sum().eval(), *said)
    assert "dimension 0 of the input 'y' (m) must be equal to n" in error.message


@pytest.mark.parametrize("kind", ["factory", "program"])
def test_a_dimension_that_is_fixed_is_said(kind: str, tmp_path: Path, export: Any) -> None:
    if kind == "factory":
        error = refusal(export, torch_models.FixedBatch().eval(), X)
    else:
        program = torch.export.export(torch_models.Small().eval(), (torch.rand(2, 8),))
        torch.export.save(program, tmp_path / "m.pt2")
        error = refusal(export_file, tmp_path / "m.pt2", tmp_path / "o", X)
    assert "dimension 0 of the input 'x' was to be free (batch)" in error.message
    assert "for 2 only" in error.message


def test_wrong_shapes_give_the_users_line(export: Any) -> None:
    error = refusal(export, torch_models.Small().eval(), {**X, "shape": [2, 9]})
    assert "does not run on inputs of shape [2, 9]" in error.message
    assert "torch_models.py" in error.message


def test_an_opset_below_is_made_or_told(export: Any) -> None:
    facts, _ = export(torch_models.Small().eval(), X, opset=18)
    assert facts["opset"] == 18


# --- outputs


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda x, y: y, ["output"]),
        (lambda x, y: (x, y), ["output_0", "output_1"]),
        (lambda x, y: (y, y), ["output_0", "output_1"]),
        (lambda x, y: {"b": y, "a": (y * 2, None, [y * 3])}, ["b", "a_0", "a_2_0"]),
        (lambda x, y: {"x": y, "add": y * 2}, ["x_out", "add"]),
        (lambda x, y: torch_models.Found(logits=y), ["logits"]),
        (lambda x, y: torch_models.ModelOutput(logits=y, hidden=x), ["logits", "hidden"]),
    ],
)
def test_outputs_are_flattened_in_order(
    make: Any, names: list[str], tmp_path: Path, export: Any
) -> None:
    model = torch_models.Returns(make).eval()
    facts, path = export(model, X)
    assert [port["name"] for port in facts["outputs"]] == names
    x = np.random.default_rng(0).random((3, 8), np.float32)
    expected = torch_module.runner(tmp_path / "m.py", "m:make", options(X))({"x": x})
    actual = onnx_outputs(path, {"x": x})
    assert len(actual) == len(expected)
    for one, two in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, two, rtol=0, atol=1e-6)
        assert one.dtype == two.dtype


@pytest.mark.parametrize("name", ["relu", "linear", "0.weight", "val_0"])
def test_output_names_that_the_exporter_uses_itself(name: str, export: Any) -> None:
    """pytorch #158094: ``Duplicate definition of name (embedding)``."""
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
    facts, path = export(model.eval(), X, outputs=[name])
    assert [port["name"] for port in facts["outputs"]] == [name]
    x = np.random.default_rng(0).random((3, 8), np.float32)
    with torch.no_grad():
        expected = model(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(onnx_outputs(path, {"x": x})[0], expected, rtol=0, atol=1e-6)


def test_output_names_that_do_not_fit(export: Any) -> None:
    model = torch_models.Small().eval()
    assert "the name of another input" in refusal(export, model, X, outputs=["x"]).message
    error = refusal(export, model, X, outputs=["a", "b"])
    assert error.message == "the project names 2 outputs, the model gives 1: output"


@pytest.mark.parametrize("value", [3, "hello", object()])
def test_outputs_that_are_no_tensors(value: Any, export: Any) -> None:
    model = torch_models.Returns(lambda x, y: {"a": y, "n": value}).eval()
    assert refusal(export, model, X).message.startswith("the output n is of type ")


# --- what cannot be exported


@pytest.mark.parametrize(
    ("make", "says", "code"),
    [
        (torch_models.Branch, "control flow depends on its data", "if x.sum() > 0:"),
        (torch_models.Custom, "custom operator edgetest.twice has no", "return twice(x) + 1"),
        (torch_models.Eigen, "operator aten._linalg_eigh has no", "return torch.linalg.eigh"),
    ],
)
def test_what_onnx_cannot_say_is_named_with_its_line(
    make: Any, says: str, code: str, export: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    error = refusal(export, make().eval(), X)
    assert says in error.message
    assert re.search(r"torch_models\.py:\d+ \(`" + re.escape(code), error.message)
    assert capfd.readouterr() == ("", "")


def test_torch_cond_becomes_an_if(export: Any) -> None:
    _, path = export(torch_models.Cond().eval(), X)
    assert "If" in {node.op_type for node in graph.read(path).graph.node}
    for sign in (1, -1):
        x = np.full((3, 8), sign, np.float32)
        np.testing.assert_array_equal(onnx_outputs(path, {"x": x})[0], x + sign)


def test_a_branch_on_a_size_that_tracing_fixed_comes_out(export: Any) -> None:
    with pytest.raises(errors.StepFailed, match="gives another 'output' than the PyTorch module"):
        export(torch_models.Sizes().eval(), X)


def test_a_factory_that_returns_something_else(export: Any) -> None:
    assert "returned a dict, no nn.Module" in refusal(export, {"a": 1}).message


def test_larger_examples_keep_to_the_values_that_were_given() -> None:
    one = torch_ports.Input("i", "i", ("n", 2), torch.tensor([[0, 5], [7, 3]]))
    (larger,) = torch_ports.other_sizes([one])
    assert larger.shape == (3, 2)
    assert larger.min() >= 0
    assert larger.max() <= 7
    assert larger.dtype == torch.int64
