"""Profiles: derived from samples and ranges, refused where TensorRT would, proven on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto as T
from onnx import helper

from edge import errors, graph, samples
from edge.convert import profiles
from edge.convert.profiles import derive, from_json, strings
from edge.convert.tensorrt_profiles import FILE, shape_options, tensorrt_profiles
from edge.model import Port, ports
from tests import models
from tests.convert import small_models

X = Port("x", "float32", ("batch", 4))
STATIC = Port("s", "int64", (2, 2))


# ------------------------------------------------------------------------ what is derived
def test_a_symbol_spans_the_sizes_of_the_samples() -> None:
    cases = [{"x": (3, 4), "s": (2, 2)}, {"x": (1, 4), "s": (2, 2)}, {"x": (8, 4), "s": (2, 2)}]
    x, static = derive([X, STATIC], cases, {})
    assert (x.least, x.usual, x.most) == ((1, 4), (3, 4), (8, 4))
    assert static.least == static.usual == static.most == (2, 2)
    assert (x.dynamic, static.dynamic) == (True, False)


def test_what_the_target_says_wins() -> None:
    (x,) = derive([X], [{"x": (3, 4)}], {"batch": [1, 4, 16]})
    assert (x.least, x.usual, x.most) == ((1, 4), (4, 4), (16, 4))


SIZE = st.integers(1, 50)


@given(st.lists(st.tuples(SIZE, SIZE), min_size=1, max_size=5))
def test_every_profile_is_in_order_and_holds_every_sample(sizes: list[tuple[int, int]]) -> None:
    ports = [Port("a", "float32", ("n", "m")), Port("b", "float32", ("m", 3, "n"))]
    cases = [{"a": (n, m), "b": (m, 3, n)} for n, m in sizes]
    a, b = found = derive(ports, cases, {})
    for case in cases:
        for each in found:
            shape = zip(each.least, case[each.name], each.most, strict=True)
            assert all(least <= size <= most for least, size, most in shape)
    # One name is one size, at every point.
    for point in profiles.POINTS:
        assert getattr(a, point) == (getattr(b, point)[2], getattr(b, point)[0])
    assert from_json(each.to_json() for each in found) == found
    assert from_json(json.loads(json.dumps([each.to_json() for each in found]))) == found


# -------------------------------------------------------------------------- what is refused
def refused(ports: list[Port], cases: list[Any], ranges: dict[str, list[int]]) -> errors.EdgeError:
    with pytest.raises(errors.UsageError) as caught:
        derive(ports, cases, ranges)
    return caught.value


def test_a_dimension_without_a_name_is_refused() -> None:
    error = refused([Port("x", "float32", (None, 3))], [{"x": (1, 3)}], {})
    assert "input x has the shape [?, 3]" in error.message
    assert 'dims = "bound"' in error.remedy


def test_one_name_with_two_sizes_is_refused() -> None:
    ports = [Port("a", "float32", ("n",)), Port("b", "float32", ("n",))]
    error = refused(ports, [{"a": (2,), "b": (3,)}], {})
    assert "'n' is 2 in input a and 3 in input b" in error.message


@pytest.mark.parametrize(
    ("ranges", "word"),
    [
        ({"batsh": [1, 2, 3]}, "no open dimension"),
        ({"batch": [4, 2, 8]}, "is not in order"),
        ({"batch": [0, 3, 8]}, "is not in order"),
        ({"batch": [4, 5, 8]}, "leaves out 3 to 3"),
        ({"batch": [1, 1, 2]}, "leaves out 3 to 3"),
    ],
)
def test_ranges_that_cannot_be(ranges: dict[str, list[int]], word: str) -> None:
    assert word in refused([X], [{"x": (3, 4)}], ranges).message


def test_a_range_that_is_misspelt_is_told() -> None:
    error = refused([X], [{"x": (3, 4)}], {"batsh": [1, 2, 3]})
    assert error.remedy == "did you mean 'batch'?"


def test_no_sample_no_size() -> None:
    assert "no golden sample" in refused([X], [], {}).message


# --------------------------------------------------------------------------- option strings
def test_strings_name_open_inputs_alone() -> None:
    found = derive([X, STATIC], [{"x": (3, 4), "s": (2, 2)}], {"batch": [1, 4, 16]})
    assert strings(found) == {"least": "x:1x4", "usual": "x:4x4", "most": "x:16x4"}
    assert shape_options([each.to_json() for each in found]) == {
        "trt_profile_min_shapes": "x:1x4",
        "trt_profile_opt_shapes": "x:4x4",
        "trt_profile_max_shapes": "x:16x4",
    }


def test_without_open_inputs_there_are_none() -> None:
    (static,) = derive([STATIC], [{"s": (2, 2)}], {})
    assert strings([static]) == shape_options([static.to_json()]) == {}


@pytest.mark.parametrize("name", ["x:0", "a,b", "a b", "it's"])
def test_names_that_shape_options_cannot_hold(name: str) -> None:
    found = derive([Port(name, "float32", ("n",))], [{name: (3,)}], {})
    with pytest.raises(errors.ModelRefused, match="cannot hold that name"):
        strings(found)


# --------------------------------------------------------------------------------- the step
def port(name: str, shape: list[Any], kind: int = T.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def run(folder: Path, model: onnx.ModelProto, case: dict[str, Any], ranges: Any) -> dict[str, Any]:
    path, out = folder / "model.onnx", folder / "out"
    onnx.save(model, path)
    out.mkdir()
    samples.write(folder / "golden", [(case, {})])
    facts = tensorrt_profiles.function(
        out, model=path, golden=folder / "golden" / samples.INDEX, ranges=ranges
    )
    assert facts is not None
    assert json.loads((out / FILE).read_text()) == facts["profiles"]
    return facts


def test_a_model_runs_at_all_three_points(tmp_path: Path) -> None:
    case = {"x": np.ones((2, 4), np.float32)}
    facts = run(tmp_path, models.mlp(), case, {"batch": [1, 2, 9]})
    assert facts["points"] == {
        "least": {"y": [1, 3]},
        "usual": {"y": [2, 3]},
        "most": {"y": [9, 3]},
    }
    assert facts["profiles"][0]["most"] == [9, 4]


@pytest.mark.parametrize(
    ("model", "kinds"),
    [
        (models.mlp(), []),
        (small_models.quantized_conv(), ["int8"]),
        (
            small_models.model(
                [helper.make_node("Add", ["x", "c"], ["y"])],
                [port("x", [4], T.FLOAT16)],
                [port("y", [4], T.FLOAT16)],
                [small_models.constant("c", np.ones(4), np.float16)],
            ),
            ["fp16"],
        ),
    ],
)
def test_what_the_model_holds_whatever_precision_was_asked_for(
    tmp_path: Path, model: onnx.ModelProto, kinds: list[str]
) -> None:
    """A source in fp16 needs fp16 of the provider as one that was converted does."""
    (given,) = ports(graph.facts(model)["inputs"])
    shape = [2 if isinstance(dim, str) else dim for dim in given.shape]
    case = {given.name: np.ones(shape, given.dtype)}  # type: ignore[arg-type]
    assert run(tmp_path, model, case, {})["kinds"] == kinds


def gather() -> onnx.ModelProto:
    """ids[n] index a table of 5 rows."""
    node = helper.make_node("Gather", ["table", "ids"], ["y"])
    table = small_models.constant("table", np.zeros((5, 2)))
    ids, y = port("ids", ["n"], T.INT64), port("y", ["n", 2])
    return small_models.model([node], [ids], [y], [table])


def test_inputs_stay_in_the_domain_of_the_samples(tmp_path: Path) -> None:
    """Random indices would leave the table; those of the sample are repeated."""
    facts = run(tmp_path, gather(), {"ids": np.array([4, 0, 3], np.int64)}, {"n": [1, 3, 40]})
    assert facts["points"]["most"] == {"y": [40, 2]}


def added(other: int) -> onnx.ModelProto:
    """x[n] + constant[other]: only n = other (or 1) can be added."""
    node = helper.make_node("Add", ["x", "c"], ["y"])
    constant = small_models.constant("c", np.ones(other))
    x, y = port("x", ["n"]), port("y", [other])
    return small_models.model([node], [x], [y], [constant])


def test_shape_inference_refuses_a_point(tmp_path: Path) -> None:
    case = {"x": np.ones(4, np.float32)}
    with pytest.raises(errors.ModelRefused, match=r"the least shapes .*x \[2\]") as caught:
        run(tmp_path, added(4), case, {"n": [2, 4, 4]})
    assert "tensorrt.profiles" in caught.value.remedy


def reshaped() -> onnx.ModelProto:
    """x[n] -> Reshape to [-1, 3]: it runs where 3 divides n, and shape inference does not say."""
    node = helper.make_node("Reshape", ["x", "shape"], ["y"])
    shape = small_models.constant("shape", [-1, 3], np.int64)
    x, y = port("x", ["n"]), port("y", ["m", 3])
    return small_models.model([node], [x], [y], [shape])


def test_a_point_that_does_not_run_is_refused(tmp_path: Path) -> None:
    case = {"x": np.ones(6, np.float32)}
    with pytest.raises(errors.ModelRefused, match="the most shapes of its profile"):
        run(tmp_path, reshaped(), case, {"n": [3, 6, 7]})


def test_a_point_beyond_memory_is_refused_before_it_is_taken(tmp_path: Path) -> None:
    case = {"x": np.ones((2, 4), np.float32)}
    with pytest.raises(errors.ConfigError, match="would hold 4294967296 bytes"):
        run(tmp_path, models.mlp(), case, {"batch": [1, 2, 2**28]})
