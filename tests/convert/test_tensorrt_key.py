"""Keys of engines: another content is another key, whatever things are called."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hypothesis import assume, given
from hypothesis import strategies as st
from onnx import numpy_helper

from edge.convert.tensorrt_key import engine_key
from tests import models

NAMES = st.text(st.characters(min_codepoint=97, max_codepoint=122), min_size=1, max_size=6)
SHAPE = st.lists(st.integers(1, 9), min_size=1, max_size=3)
PROFILE = st.fixed_dictionaries({"name": NAMES, "least": SHAPE, "usual": SHAPE, "most": SHAPE})
MADE_OF = st.tuples(
    st.binary(max_size=8).map(lambda data: hashlib.sha256(data).hexdigest()),
    st.lists(PROFILE, max_size=3),
    st.sampled_from(["source", "fp16", "int8"]),
    st.dictionaries(NAMES, NAMES, max_size=4),
    st.sampled_from(["onnxruntime-gpu 1.31.1", "onnxruntime-gpu 1.32.0"]),
)


def saved(folder: Path, model: onnx.ModelProto) -> str:
    folder.mkdir()
    path = folder / "model.onnx"
    onnx.save(model, path)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_equal_names_and_other_weights_are_two_engines(tmp_path: Path) -> None:
    """Graph, nodes, tensors and file have the same names: what ONNX Runtime's own keys hold."""
    one, other = models.mlp(), models.mlp()
    weights = numpy_helper.to_array(other.graph.initializer[0]).copy()
    weights[0, 0] = np.nextafter(weights[0, 0], np.float32(9))
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    assert one.graph.name == other.graph.name
    assert [node.name for node in one.graph.node] == [node.name for node in other.graph.node]
    keys = [
        engine_key(saved(tmp_path / name, model), [], "source", {}, "tensorrt 10.16.1")
        for name, model in (("one", one), ("other", other))
    ]
    assert keys[0] != keys[1]


def test_equal_content_under_another_path_is_one_engine(tmp_path: Path) -> None:
    keys = {
        engine_key(saved(tmp_path / name, models.mlp()), [], "source", {}, "tensorrt 10.16.1")
        for name in ("a", "b")
    }
    assert len(keys) == 1


@given(MADE_OF, MADE_OF)
def test_another_ingredient_is_another_key(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    assert (engine_key(*one) == engine_key(*other)) == (one == other)


@given(MADE_OF, MADE_OF, st.integers(0, 4))
def test_each_ingredient_alone_changes_it(
    one: tuple[Any, ...], other: tuple[Any, ...], place: int
) -> None:
    assume(one[place] != other[place])
    changed = (*one[:place], other[place], *one[place + 1 :])
    assert engine_key(*one) != engine_key(*changed)


@given(MADE_OF)
def test_the_order_of_options_says_nothing(made_of: tuple[Any, ...]) -> None:
    model, profiles, precision, options, runtime = made_of
    reverse = dict(reversed(options.items()))
    key = engine_key(model, profiles, precision, reverse, runtime)
    assert key == engine_key(*made_of)
    assert len(key) == 64
    assert set(key) <= set("0123456789abcdef")
