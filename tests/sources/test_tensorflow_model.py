"""The TensorFlow source: what ONNX Runtime computes is what TensorFlow computes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from edge import errors, graph, process, samples
from edge.job import tool_versions
from edge.sources import tensorflow_model
from tests.sources import tensorflow_models as models

SOURCES = {
    "keras": ("digits.keras", ""),
    "h5": ("digits.h5", ""),
    "saved_model": ("exported/saved_model.pb", ""),
    "factory": ("digits_factory.py", "digits_factory:digits"),
}


@pytest.fixture(scope="module", autouse=True)
def _tensorflow() -> Iterator[None]:
    with models.started():
        yield


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the trained model in every form."""
    return models.train_digits(tmp_path_factory.mktemp("digits"))


def export(out: Path, source: Path, factory: str = "", **said: Any) -> dict[str, Any]:
    """The facts of the export, which are those of the file that it wrote."""
    out.mkdir()
    facts = tensorflow_model.export_tensorflow.function(
        out, source=source, factory=factory, options=models.options(**said)
    )
    assert facts is not None
    model = onnx.load(out / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert [path.name for path in out.iterdir()] == ["model.onnx"]
    assert graph.facts(model).items() <= facts.items()
    return facts


def from_model(out: Path, model: Any, **said: Any) -> dict[str, Any]:
    """Export a Keras model through its ``.keras`` file, which lies beside ``out``."""
    return export(out, models.saved(model, out.with_suffix(".keras")), **said)


def difference(model: Path, source: Path, feed: dict[str, Any], **said: Any) -> list[float]:
    """Largest difference of each output, TensorFlow's against ONNX Runtime's; same types."""
    factory = said.pop("factory", "")
    run = tensorflow_model.runner(source, factory, models.options(**said))
    wanted = run(feed)
    got = ort.InferenceSession(str(model)).run(None, feed)
    assert [(a.dtype, a.shape) for a in wanted] == [(a.dtype, a.shape) for a in got]
    return [float(np.abs(a.astype(np.float64) - b).max()) for a, b in zip(wanted, got, strict=True)]


@pytest.mark.parametrize("kind", SOURCES)
def test_a_trained_cnn_computes_the_same_from_every_form(
    kind: str, digits: Path, tmp_path: Path
) -> None:
    name, factory = SOURCES[kind]
    facts = export(tmp_path / "out", digits / name, factory)
    output = "output_0" if kind == "saved_model" else "digit"
    assert facts["inputs"] == [{"name": "image", "dtype": "float32", "shape": ["batch", 8, 8, 1]}]
    assert facts["outputs"] == [{"name": output, "dtype": "float32", "shape": ["batch", 10]}]
    assert (facts["source_kind"], facts["opset"]) == (kind, 18)
    assert facts["exporter"].startswith("tf2onnx ")
    pixels, labels = models.images()
    model = tmp_path / "out" / "model.onnx"
    for batch in (1, 297):
        feed = {"image": pixels[-batch:]}
        assert difference(model, digits / name, feed, factory=factory)[0] < 1e-5
    (scores,) = ort.InferenceSession(str(model)).run(None, {"image": pixels[1500:]})
    assert float((scores.argmax(1) == labels[1500:]).mean()) > 0.85


def test_golden_samples_are_tensorflows_own(digits: Path, tmp_path: Path) -> None:
    import keras

    pixels, _ = models.images()
    cases: list[Any] = [({"image": pixels[n : n + 2]}, {}) for n in (0, 2, 4)]
    samples.write(tmp_path / "cases", cases)
    (tmp_path / "out").mkdir()
    spec = {"name": "image", "dtype": "float32", "shape": [2, 8, 8, 1], "range": None}
    facts = tensorflow_model.tensorflow_golden.function(
        tmp_path / "out",
        source=digits / "digits.keras",
        factory="",
        options=models.options(),
        cases=tmp_path / "cases" / samples.INDEX,
        inputs=[{**spec, "constant": None}],
        names=["scores"],
    )
    assert facts == {"samples": 3, "not_finite": []}
    model = keras.models.load_model(digits / "digits.keras")
    for (fed, _), case in zip(cases, samples.cases(tmp_path / "out", "output"), strict=True):
        wanted = np.asarray(model(fed["image"], training=False))
        np.testing.assert_array_equal(case["scores"], wanted)


def test_two_inputs_and_two_outputs_keep_their_order_and_names(tmp_path: Path) -> None:
    shapes = [
        {"name": "sequence", "dtype": "float32", "shape": ["users", "steps", 3]},
        {"name": "context", "dtype": None, "shape": ["users", 4]},
    ]
    facts = from_model(tmp_path / "out", models.two_in_two_out(), inputs=shapes)
    assert [(each["name"], each["shape"]) for each in facts["inputs"]] == [
        ("sequence", ["users", "steps", 3]),
        ("context", ["users", 4]),
    ]
    assert [(each["name"], each["shape"]) for each in facts["outputs"]] == [
        ("sum", ["users", 6]),
        ("projected", ["users", 6]),
    ]
    generator = np.random.default_rng(3)
    for users, steps in ((1, 1), (3, 7)):
        feed = {
            "sequence": generator.random((users, steps, 3), np.float32),
            "context": generator.random((users, 4), np.float32),
        }
        model = tmp_path / "out" / "model.onnx"
        assert max(difference(model, tmp_path / "out.keras", feed)) < 1e-5


def test_unnamed_dimensions_get_names_and_given_sizes_are_fixed(tmp_path: Path) -> None:
    facts = from_model(
        tmp_path / "out",
        models.two_in_two_out(),
        inputs=[{"name": "context", "dtype": None, "shape": [2, 4]}],
        outputs=["fused", "plain"],
    )
    shapes = {each["name"]: each["shape"] for each in facts["inputs"] + facts["outputs"]}
    assert shapes["sequence"] == ["batch", "sequence_dim1", 3]
    assert shapes["context"] == [2, 4]
    assert shapes["plain"] == [2, 6]
    assert "fused" in shapes


def test_signatures_are_chosen_by_name(tmp_path: Path) -> None:
    source = models.two_signatures(tmp_path / "saved")
    with pytest.raises(errors.UsageError, match="double, score"):
        export(tmp_path / "none", source)
    with pytest.raises(errors.UsageError, match="no signature 'scores'") as caught:
        export(tmp_path / "wrong", source, signature="scores")
    assert "score" in caught.value.remedy
    feed = {"x": np.random.default_rng(1).random((5, 3), np.float32)}
    for name, ports in (
        ("double", [("y", "float32")]),
        ("score", [("high", "int64"), ("low", "float32")]),
    ):
        facts = export(tmp_path / name, source, signature=name)
        assert [(each["name"], each["dtype"]) for each in facts["outputs"]] == ports
        model = tmp_path / name / "model.onnx"
        assert max(difference(model, source, feed, signature=name)) == 0


def test_a_factory_may_give_a_function(tmp_path: Path) -> None:
    (tmp_path / "functions_of_a_factory.py").write_text(
        "import tensorflow as tf\n"
        "class Module(tf.Module):\n"
        "    def __init__(self):\n"
        "        self.weights = tf.Variable(tf.random.normal((4, 3)))\n"
        "    @tf.function\n"
        "    def scale(self, x, times=2):\n"
        "        for _ in tf.range(tf.shape(x)[0]):\n"
        "            x = x + 1.0\n"
        "        return x @ self.weights * times\n"
    )
    source, factory = tmp_path / "functions_of_a_factory.py", "functions_of_a_factory:Module"
    with pytest.raises(errors.UsageError, match="scale cannot be traced") as caught:
        export(tmp_path / "none", source, factory)
    assert "[model.inputs.NAME]" in caught.value.remedy
    said = {"inputs": [{"name": "x", "dtype": "float32", "shape": ["n", 4]}]}
    facts = export(tmp_path / "out", source, factory, **said)
    assert facts["outputs"] == [{"name": "output_0", "dtype": "float32", "shape": ["n", 3]}]
    # The weights that the factory makes are the same ones in both steps.
    feed = {"x": np.ones((3, 4), np.float32)}
    found = difference(tmp_path / "out" / "model.onnx", source, feed, factory=factory, **said)
    assert found[0] < 1e-5


def test_unread_inputs_and_outputs_that_are_inputs_stay(tmp_path: Path) -> None:
    import keras

    x, unread = keras.Input((4,), name="x"), keras.Input((2,), name="unread")
    dense = keras.layers.Dense(2, name="d")
    model = keras.Model([x, unread], [dense(x), dense(x * 2), x])
    facts = from_model(tmp_path / "out", model)
    assert [each["name"] for each in facts["inputs"]] == ["x", "unread"]
    assert [each["name"] for each in facts["outputs"]] == ["d", "d_1", "x_1"]
    feed = {"x": np.ones((2, 4), np.float32), "unread": np.ones((2, 2), np.float32)}
    assert max(difference(tmp_path / "out/model.onnx", tmp_path / "out.keras", feed)) < 1e-6


@pytest.mark.process
def test_two_processes_write_the_same_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = models.saved(models.two_in_two_out(), tmp_path / "two.keras")
    found = []
    for seed in ("1", "2"):  # tf2onnx goes through sets of strings
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        out = tmp_path / seed
        out.mkdir()
        facts = process.run_python(
            tensorflow_model.export_tensorflow.address,
            {"out": out, "source": source, "factory": "", "options": models.options()},
            timeout=300,
        )
        found.append((facts, (out / "model.onnx").read_bytes()))
    assert found[0] == found[1]


# What is refused, in words


def test_operators_without_onnx_form_are_named(tmp_path: Path) -> None:
    import tensorflow as tf

    made = models.module(
        lambda x: {"y": tf.linalg.svd(x, compute_uv=False)}, tf.TensorSpec([3, 3], tf.float32)
    )
    source = models.save_module(made, tmp_path / "saved")
    with pytest.raises(errors.ModelRefused, match=r"no ONNX form for the operators Svd$"):
        export(tmp_path / "out", source)


def test_text_and_sparse_inputs_are_refused_by_name(tmp_path: Path) -> None:
    import keras
    import tensorflow as tf

    made = models.module(
        lambda words: {"y": tf.strings.length(words)}, tf.TensorSpec([None], tf.string, "words")
    )
    with pytest.raises(errors.ModelRefused, match="words is a string tensor"):
        export(tmp_path / "text", models.save_module(made, tmp_path / "saved"))
    sparse = keras.Input((5,), sparse=True, name="rows")
    with pytest.raises(errors.ModelRefused, match="rows is a sparse tensor"):
        from_model(tmp_path / "sparse", keras.Model(sparse, keras.layers.Dense(2)(sparse)))


def test_ragged_inputs_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ragged_factory.py").write_text(
        "import tensorflow as tf\n"
        "@tf.function(input_signature=[tf.RaggedTensorSpec([None, None], tf.float32)])\n"
        "def total(rows):\n"
        "    return tf.reduce_sum(rows, 1)\n"
        "def make():\n"
        "    return total\n"
    )
    with pytest.raises(errors.ModelRefused, match="is a ragged tensor"):
        export(tmp_path / "out", tmp_path / "ragged_factory.py", "ragged_factory:make")


def test_a_model_that_gives_other_outputs_each_time_is_refused(tmp_path: Path) -> None:
    import tensorflow as tf

    # What Dropout with training=True is in a SavedModel; tf2onnx exports it as if it were off.
    made = models.module(
        lambda x: {"y": tf.nn.dropout(x, 0.5)}, tf.TensorSpec([None, 64], tf.float32, "x")
    )
    source = models.save_module(made, tmp_path / "saved")
    samples.write(tmp_path / "cases", [({"x": np.ones((1, 64), np.float32)}, {})])
    (tmp_path / "out").mkdir()
    with pytest.raises(errors.ModelRefused, match="other outputs each time"):
        tensorflow_model.tensorflow_golden.function(
            tmp_path / "out",
            source=source,
            factory="",
            options=models.options(),
            cases=tmp_path / "cases" / samples.INDEX,
            inputs=[{"name": "x", "constant": None}],
            names=["y"],
        )


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"inputs": [{"name": "imag", "dtype": None, "shape": None}]}, "no input 'imag'"),
        ({"inputs": [{"name": "image", "dtype": "int8", "shape": None}]}, "is float32"),
        ({"inputs": [{"name": "image", "dtype": None, "shape": [1, 8, 8]}]}, "does not fit"),
        ({"inputs": [{"name": "image", "dtype": None, "shape": [1, 9, 8, 1]}]}, "does not fit"),
        ({"inputs": [{"name": "image", "dtype": None, "shape": ["n", "h", 8, 1]}]}, "not fit"),
        ({"outputs": ["a", "b"]}, "the model has 1: digit"),
        ({"outputs": ["image"]}, "the model has 1: digit"),
        ({"signature": "serve"}, "has no signatures"),
    ],
)
def test_what_contradicts_the_model_is_a_usage_error(
    said: dict[str, Any], says: str, digits: Path, tmp_path: Path
) -> None:
    with pytest.raises(errors.UsageError, match=says):
        export(tmp_path / "out", digits / "digits.keras", **said)


def test_outputs_that_samples_cannot_hold_are_refused(tmp_path: Path) -> None:
    import tensorflow as tf

    made = models.module(
        lambda x: {"half": tf.cast(x, tf.bfloat16)}, tf.TensorSpec([None], tf.float32, "x")
    )
    with pytest.raises(errors.ModelRefused, match="half is a bfloat16 tensor"):
        export(tmp_path / "out", models.save_module(made, tmp_path / "saved"))


def test_samples_that_do_not_fit_are_a_failed_run(digits: Path) -> None:
    run = tensorflow_model.runner(digits / "digits.keras", "", models.options())
    with pytest.raises(errors.RunFailed, match="does not run the model"):
        run({"image": np.ones((1, 7, 8, 1), np.float32)})


def test_a_missing_library_is_named_with_its_extra(
    digits: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tf2onnx", None)
    with pytest.raises(errors.ToolMissing, match="tf2onnx") as caught:
        export(tmp_path / "out", digits / "digits.keras")
    assert caught.value.remedy == "pip install 'edgewright[tensorflow]'"


def test_the_key_holds_the_installed_tensorflow() -> None:
    found = tool_versions(tensorflow_model.export_tensorflow.tools, {})
    assert any(name.startswith(("tensorflow", "tf-nightly")) for name in found)
