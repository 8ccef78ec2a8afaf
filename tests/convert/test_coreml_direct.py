"""Core ML packages straight from PyTorch, TensorFlow and Keras, against the frameworks."""

from __future__ import annotations

import importlib
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge.convert import coreml_run
from edge.convert.mil_package import PACKAGE
from edge.sources import coreml_direct
from edge.sources.coreml_from_tensorflow import ROUTE
from edge.sources.coreml_from_torch import EXPORT, TRACE
from edge.step import Step
from tests.convert import coreml_direct_setup as direct
from tests.convert.coreml_direct_setup import Source
from tests.convert.coreml_setup import content, need_coremltools
from tests.convert.golden_setup import drawn
from tests.sources import tensorflow_models, torch_models

pytestmark = [
    pytest.mark.process,
    # coremltools leaves the folder that it writes weights to for Python to remove.
    pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
]
Made = tuple[Path, dict[str, dict[str, Any]]]
NETS, OWN = "tests.coreml_nets", "tests.convert.coreml_torch_nets"


# ----------------------------------------------------------------------------------------- PyTorch
def by_torch(folder: Path, file: str, name: str, cases: Sequence[dict[str, Any]]) -> Source:
    """A network of one of the tests' modules, copied as a user's own file, with golden samples."""
    torch, module = torch_models.library(), importlib.import_module(file)
    source = folder / f"{file.rpartition('.')[2]}.py"
    shutil.copyfile(str(module.__file__), source)
    net, golden = getattr(module, name)(), []
    for case in cases:
        with torch.no_grad():
            given = net(*(torch.from_numpy(value) for value in case.values()))
        named = given if isinstance(given, dict) else {"y": given}
        golden.append((case, {key: value.numpy() for key, value in named.items()}))
    said = [
        {"name": key, "dtype": value.dtype.name, "shape": list(value.shape)}
        for key, value in cases[0].items()
    ]
    options = torch_models.options(*said, outputs=list(golden[0][1]))
    return Source(name, source, f"{source.stem}:{name}", golden, options)


def ports_case(seed: int) -> dict[str, Any]:
    generator = np.random.default_rng(seed)
    return {
        "index": generator.integers(0, 10, (2, 5)),
        "on": generator.random((2, 5)) > 0.3,
        "k": np.array(generator.random(), np.float32),
    }


def spoiled(source: Source) -> Source:
    """Other outputs for the second sample, as of a model whose branch a route did not see."""
    first, (case, outputs) = source.golden
    other = {**outputs, "y": outputs["y"] + 1}
    return replace(source, name="spoiled", golden=[first, (case, other)])


@pytest.fixture(scope="module")
def pytorch(tmp_path_factory: pytest.TempPathFactory) -> Made:
    need_coremltools()
    folder = tmp_path_factory.mktemp("torch")
    from tests.coreml_nets import INPUTS

    known = [
        by_torch(folder, NETS, name, [{"x": drawn(seed, *INPUTS[name])} for seed in (0, 1)])
        for name in ("cnn", "encoder", "lstm")
    ]
    two = [{"x": np.full((2, 3), value, np.float32)} for value in (0.5, -0.5)]
    ports = by_torch(folder, OWN, "ports", [ports_case(1), ports_case(2)])
    sources = [
        *known,
        *(by_torch(folder, OWN, name, two) for name in ("branch", "scripted", "number")),
        *(ports, spoiled(ports)),
        by_torch(folder, OWN, "opaque", [{"x": drawn(0, 3, 3)}]),
        replace(known[0], name="old", how={"release": "8.3"}),
    ]
    return folder, direct.made("coreml_torch", folder, sources)


@pytest.mark.parametrize(
    ("name", "route"),
    [
        *(("cnn", EXPORT), ("encoder", EXPORT), ("lstm", TRACE)),
        *(("ports", EXPORT), ("scripted", TRACE)),
    ],
)
def test_a_module_is_converted_and_right(pytorch: Made, name: str, route: str) -> None:
    folder, facts = pytorch
    assert (facts[name]["refused"], facts[name]["route"]) == ("", route)
    assert facts[name]["tried"][route] == ""
    figures, count = facts[name]["figures"], sum(facts[name]["operations"].values())
    assert (figures["bytes"], figures["operations"]) == (facts[name]["bytes"], count)
    assert figures["why_not"] == ""
    assert float(figures["sqnr_db"]) > 90
    golden = coreml_run.Golden(folder / name / "golden")
    assert golden.judge(direct.head(folder, name).parent).db > 100


def test_what_torch_export_leaves_whole_is_traced(pytorch: Made) -> None:
    """coremltools 9.0 has no rule for ``lstm.input``; a trace of what was exported has its own."""
    facts = pytorch[1]["lstm"]
    assert "Unsupported fx node lstm" in facts["tried"][EXPORT]
    assert facts["operations"]["lstm"] == 2
    assert "while_loop" not in facts["operations"]


def test_ports_are_those_of_the_canonical_model(pytorch: Made) -> None:
    facts = pytorch[1]["ports"]
    told = {p["onnx"]: (p["dtype"], p["held"], p["shape"], p["scalar"]) for p in facts["inputs"]}
    assert told == {
        "index": ("int64", "int32", [2, 5], False),
        "on": ("bool", "int32", [2, 5], False),
        "k": ("float", "float32", [1], True),
    }
    told = {p["onnx"]: (p["dtype"], p["held"], p["shape"], p["scalar"]) for p in facts["outputs"]}
    assert told == {
        "y": ("float", "float32", [2, 5, 4], False),
        "best": ("int64", "int32", [2, 5], False),
        "any": ("bool", "int32", [2, 5, 4], False),
        "total": ("double", "float32", [1], True),
        "same": ("int64", "int32", [2, 5], False),
        "again": ("float", "float32", [2, 5, 4], False),
    }
    assert len({port["name"] for port in (*facts["inputs"], *facts["outputs"])}) == 9


@pytest.mark.parametrize(
    ("name", "exported", "traced"),
    [
        (
            "branch",
            "data-dependent",
            "depends on its data: Converting a tensor to a Python boolean",
        ),
        ("number", "", "depends on its data: Converting a tensor to a Python"),
    ],
)
def test_a_trace_that_holds_for_one_sample_is_refused(
    pytorch: Made, name: str, exported: str, traced: str
) -> None:
    """Its first sample goes one way, the second the other."""
    folder, facts = pytorch
    tried = facts[name]["tried"]
    assert exported in tried[EXPORT]
    assert traced in tried[TRACE]
    assert tried[EXPORT] in facts[name]["refused"]
    assert tried[TRACE] in facts[name]["refused"]
    assert str(folder) not in facts[name]["refused"]  # it goes into the manifest
    assert not (folder / name / "out" / PACKAGE).exists()


def test_a_branch_of_torchscript_stays_one(pytorch: Made) -> None:
    """Its samples go both ways, and the package with them."""
    facts = pytorch[1]["scripted"]
    assert "Only torch.Tensor attr handled yet" in facts["tried"][EXPORT]
    assert facts["operations"]["cond"] == 1


def test_the_golden_samples_have_the_last_word(pytorch: Made) -> None:
    folder, facts = pytorch
    assert facts["spoiled"]["wrong"] == [EXPORT, TRACE]
    assert facts["spoiled"]["tried"][EXPORT].startswith("sample 1, 'y': max_abs")
    assert not (folder / "spoiled" / "out" / PACKAGE).exists()


def test_what_coremltools_lacks_is_a_reason_and_no_failure(pytorch: Made) -> None:
    facts = pytorch[1]
    assert "eigh" in facts["opaque"]["refused"]
    assert "for coremltools 8.3, and 9.0 is installed" in facts["old"]["refused"]
    assert facts["old"]["tried"] == {}


@pytest.mark.slow
def test_another_process_gives_the_same_bytes_without_a_path(pytorch: Made, tmp_path: Path) -> None:
    folder = pytorch[0]
    from tests.coreml_nets import INPUTS

    names = ("encoder", "lstm")
    cases = {name: [{"x": drawn(seed, *INPUTS[name])} for seed in (0, 1)] for name in names}
    direct.made("coreml_torch", tmp_path, [by_torch(tmp_path, NETS, n, cases[n]) for n in names])
    for name in names:
        first, second = (content(direct.head(each, name).parent) for each in (folder, tmp_path))
        assert first == second
        assert all(str(folder).encode() not in data for data in first.values())


# -------------------------------------------------------------------------------------- TensorFlow
def by_tensorflow(name: str, source: Path, model: Any, cases: Sequence[dict[str, Any]]) -> Source:
    """A saved model with the outputs of the one that was saved."""
    import tensorflow as tf

    golden = []
    for case in cases:
        given = model([tf.constant(value) for value in case.values()])
        listed = given if isinstance(given, list) else [given]
        golden.append((case, {f"y{n}": value.numpy() for n, value in enumerate(listed)}))
    return Source(name, source, "", golden, tensorflow_models.options())


def convolutions(folder: Path) -> list[Source]:
    """One Keras CNN, as a file of Keras and as an exported SavedModel."""
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    image = keras.Input((8, 8, 1), name="image")
    y = layers.MaxPooling2D()(layers.BatchNormalization()(layers.Conv2D(8, 3)(image)))
    cnn = keras.Model(image, layers.Dense(10, activation="softmax")(layers.Flatten()(y)))
    images = [{"image": drawn(seed, 1, 8, 8, 1)} for seed in (0, 1)]
    cnn.export(folder / "exported", verbose=False)
    saved = tensorflow_models.saved(cnn, folder / "cnn.keras")
    return [
        by_tensorflow("cnn", saved, lambda x: cnn(x[0]), images),
        by_tensorflow("exported", folder / "exported/saved_model.pb", lambda x: cnn(x[0]), images),
    ]


def recurrent(folder: Path) -> Source:
    import keras
    from keras import layers

    row = keras.Input((6, 8), name="row")
    lstm = keras.Model(row, layers.LSTM(5)(row))
    cases = [{"row": drawn(0, 1, 6, 8)}]
    saved = tensorflow_models.saved(lstm, folder / "lstm.keras")
    return by_tensorflow("lstm", saved, lambda x: lstm(x[0]), cases)


def attention(folder: Path) -> Source:
    import keras
    from keras import layers

    keras.utils.set_random_seed(0)
    ids = keras.Input((6,), dtype="int32", name="ids")
    read = layers.Embedding(20, 16)(ids)
    read = layers.LayerNormalization()(layers.MultiHeadAttention(2, 8)(read, read))
    encoder = keras.Model(ids, [layers.Dense(3)(read), read])
    cases = [{"ids": np.arange(6, dtype=np.int32).reshape(1, 6)}]
    saved = tensorflow_models.saved(encoder, folder / "encoder.keras")
    return by_tensorflow("encoder", saved, lambda x: encoder(x[0]), cases)


def two_ways(folder: Path) -> Source:
    """A branch that depends on data, and a sample for each of its sides."""
    import tensorflow as tf

    way = tensorflow_models.module(
        lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: x + 1, lambda: x - 1),
        tf.TensorSpec([2, 3], tf.float32, name="x"),
    )
    cases = [{"x": np.full((2, 3), value, np.float32)} for value in (0.5, -0.5)]
    saved = tensorflow_models.save_module(way, folder / "way")
    return by_tensorflow("way", saved, lambda x: way.serve(x[0]), cases)


@pytest.fixture(scope="module")
def tensorflow(tmp_path_factory: pytest.TempPathFactory) -> Made:
    need_coremltools()
    folder = tmp_path_factory.mktemp("tensorflow")
    with tensorflow_models.started(), tensorflow_models.quiet():
        sources = [convolutions(folder)[0], recurrent(folder), two_ways(folder)]
    return folder, direct.made("coreml_tensorflow", folder, sources)


def right(made: Made, name: str) -> dict[str, Any]:
    """Facts of a package that is right."""
    folder, facts = made
    assert (facts[name]["refused"], facts[name].get("route")) == ("", ROUTE)
    golden = coreml_run.Golden(folder / name / "golden")
    assert golden.judge(direct.head(folder, name).parent).db > 80
    return facts[name]


@pytest.mark.parametrize("name", ["cnn", "way"])
def test_keras_and_tensorflow_are_converted_and_right(tensorflow: Made, name: str) -> None:
    """A branch of TensorFlow's graph stays one, and each sample goes its own way."""
    facts = right(tensorflow, name)
    assert ("cond" in facts["operations"]) == (name == "way")


@pytest.mark.slow
def test_more_of_keras_is_converted_and_right(tmp_path: Path) -> None:
    need_coremltools()
    with tensorflow_models.started(), tensorflow_models.quiet():
        sources = [convolutions(tmp_path)[1], attention(tmp_path)]
    made = tmp_path, direct.made("coreml_tensorflow", tmp_path, sources)
    for source in sources:
        right(made, source.name)


def test_a_keras_lstm_is_refused_by_name(tensorflow: Made) -> None:
    """coremltools 9.0 cannot read the loop of Keras 3 ("Less", in its frontend's ops.py)."""
    assert tensorflow[1]["lstm"]["tried"] == {ROUTE: "IndexError: list index out of range"}


def test_every_step_is_found_by_its_frameworks_title() -> None:
    from edge.sources.frameworks import FRAMEWORKS

    titles = {each.title for each in FRAMEWORKS.values()}
    assert set(coreml_direct.DIRECT) <= titles
    assert all(isinstance(step, Step) for step in coreml_direct.DIRECT.values())
