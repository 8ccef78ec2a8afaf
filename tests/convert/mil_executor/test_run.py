"""The executor: what it computes, where it finds overflow, and what it says that it cannot do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge import errors
from edge.convert import coremltools_library, mil_executor
from edge.convert.mil_executor import registry
from tests.convert.onnx_to_mil.programs import values


class Builder:
    """coremltools', which is imported with the first operation, not where tests are collected."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # what pytest asks of any object where it looks for fixtures
            raise AttributeError(name)
        return getattr(coremltools_library.builder(), name)


mb = Builder()


def program(build: Any, *shape: int, target: str = "iOS17") -> Any:
    """x of ``shape`` -> ``build(x)``."""
    ct = coremltools_library.module()

    @mb.program(input_specs=[mb.TensorSpec(shape)], opset_version=getattr(ct.target, target))  # type: ignore[untyped-decorator]
    def made(x: Any) -> Any:
        return build(x)

    return made


def run(build: Any, x: Any, **options: Any) -> Any:
    found = mil_executor.run(program(build, *x.shape), {"x": x}, **options)
    (array,) = found.outputs.values()
    return array, found


# ------------------------------------------------------------- against coremltools' own inference
X = values(2, 3, 4)
GRID = values(1, 8, 4, 6)
INTS = np.array([[3, -1, 2], [0, 5, -7]], np.int32)
INFERRED: dict[str, dict[str, Any]] = {
    **{kind: {"x": X} for kind in (
        "abs", "atan", "ceil", "cos", "cosh", "erf", "exp", "exp2", "floor", "round", "sign", "sin",
        "sinh", "square", "tan", "tanh", "relu", "relu6", "sigmoid", "softplus", "softsign")},
    **{kind: {"x": np.abs(X) + 0.1} for kind in ("sqrt", "log", "rsqrt", "inverse")},
    **{kind: {"x": X / 4} for kind in ("acos", "asin", "atanh")},
    **{kind: {"x": X, "y": values(3, 1, seed=1)} for kind in (
        "add", "sub", "mul", "real_div", "maximum", "minimum", "less", "less_equal", "greater",
        "greater_equal", "equal", "not_equal", "floor_div", "mod")},
    "pow": {"x": np.abs(X), "y": values(4, seed=1)},
    "leaky_relu": {"x": X, "alpha": 0.2},
    "elu": {"x": X, "alpha": 0.7},
    "prelu": {"x": X[None], "alpha": np.array([0.1, 0.2], np.float32)},
    "sigmoid_hard": {"x": X, "alpha": 0.3, "beta": 0.4},
    "gelu": {"x": X, "mode": "EXACT"},
    "softmax": {"x": X, "axis": 1},
    "clip": {"x": X, "alpha": -0.3, "beta": 0.4},
    "threshold": {"x": X, "alpha": 0.1},
    **{kind: {"x": X, "axes": [0, 2], "keep_dims": keep} for keep in (True, False) for kind in (
        "reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "reduce_prod", "reduce_l1_norm",
        "reduce_l2_norm", "reduce_sum_square", "reduce_log_sum_exp")},
    "reduce_argmax": {"x": X, "axis": 1, "keep_dims": False},
    "reduce_argmin": {"x": X, "axis": 2, "keep_dims": True},
    "topk": {"x": X, "k": 2, "axis": 1, "ascending": True},
    "transpose": {"x": X, "perm": [2, 0, 1]},
    "reshape": {"x": X, "shape": [4, -1]},
    "squeeze": {"x": X[:1], "axes": [0]},
    "expand_dims": {"x": X, "axes": [0, 2]},
    "concat": {"values": (X, X + 1), "axis": 1},
    "stack": {"values": (X, X + 1), "axis": 1},
    "split": {"x": X, "split_sizes": [1, 2], "axis": 1},
    "tile": {"x": X, "reps": [1, 2, 1]},
    "fill": {"shape": [2, 3], "value": 2.5},
    "reverse": {"x": X, "axes": [1]},
    "slice_by_index": {"x": X, "begin": [0, 1, 3], "end": [1, 3, 0], "stride": [1, 1, -1],
                       "begin_mask": [True, False, False], "end_mask": [True, False, False]},
    "slice_by_size": {"x": X, "begin": [0, 1, 1], "size": [2, -1, 2]},
    "band_part": {"x": X, "lower": 1, "upper": 0},
    "gather": {"x": X, "indices": np.array([2, 0], np.int32), "axis": 1},
    "gather_along_axis": {"x": INTS, "indices": np.array([[2, 0], [1, 1]], np.int32), "axis": 1},
    "select": {"cond": X > 0, "a": X, "b": X + 1},
    "cast": {"x": X * 3, "dtype": "int32"},
    "linear": {"x": X, "weight": values(5, 4, seed=1), "bias": values(5, seed=2)},
    "matmul": {"x": X, "y": values(2, 5, 4, seed=1), "transpose_y": True},
    "layer_norm": {"x": X, "axes": [2], "gamma": values(4, seed=1), "beta": values(4, seed=2),
                   "epsilon": 0.01},
    "range_1d": {"start": 1, "end": 9, "step": 3},
    "non_zero": {"x": INTS},
}  # fmt: skip


@pytest.mark.parametrize("kind", INFERRED)
def test_operations_give_what_coremltools_infers_from_constants(kind: str) -> None:
    """An oracle of Apple's for the small operations: the value that a constant operation has."""
    inferred: list[Any] = []

    def build(x: Any) -> Any:
        made = getattr(mb, kind)(**INFERRED[kind])
        inferred.extend(made if isinstance(made, list | tuple) else [made])
        return mb.identity(x=x)

    function = program(build, 1).functions["main"]
    assert all(var.val is not None for var in inferred), f"coremltools infers no {kind}"
    op = inferred[0].op
    arguments = dict.fromkeys(op.input_spec.input_types) | {
        name: tuple(each.val for each in var) if isinstance(var, list | tuple) else var.val
        for name, var in op.inputs.items()
        if var is not None
    }
    found = registry.operations()[kind]({**arguments, "op": kind})
    for var, array in zip(inferred, found if isinstance(found, tuple) else (found,), strict=True):
        np.testing.assert_allclose(np.asarray(array, np.float64), var.val, rtol=2e-5, atol=1e-6)
    assert function is not None


# ---------------------------------------------------------------------------------- running it
def test_overflow_in_half_precision_is_found_where_it_begins() -> None:
    def build(x: Any) -> Any:
        squared = mb.mul(x=x, y=x, name="squared")
        return mb.sub(x=squared, y=squared, name="difference")

    array, found = run(build, np.array([300.0, 1.0], np.float32), half=True)
    assert found.odd == [("squared", "mul")]
    assert np.isnan(array[0])
    array, found = run(build, np.array([300.0, 1.0], np.float32))
    assert found.odd == []
    assert array.tolist() == [0, 0]


def test_a_logarithm_adds_its_epsilon_first() -> None:
    """As MIL documents it; the frontend gives 0, and ONNX's -inf is the result."""
    zero = np.zeros(1, np.float32)
    array, found = run(lambda x: mb.log(x=x), zero)
    np.testing.assert_allclose(array, [-103.28], atol=0.01)
    assert found.odd == []
    array, found = run(lambda x: mb.log(x=x, epsilon=0.0, name="y"), zero)
    assert (array.tolist(), found.odd) == ([-np.inf], [("y", "log")])


def test_half_precision_rounds_weights_too() -> None:
    array, _ = run(lambda x: mb.mul(x=x, y=np.float32(1.0001)), np.ones(1, np.float32), half=True)
    assert array.tolist() == [1.0]


def test_a_program_in_fp16_is_rounded_once_an_operation() -> None:
    def build(x: Any) -> Any:
        return mb.cast(x=mb.mul(x=mb.cast(x=x, dtype="fp16"), y=np.float16(3)), dtype="fp32")

    array, _ = run(build, np.array([0.1], np.float32))
    assert array.dtype == np.float32
    assert array[0] == np.float32(np.float16(np.float32(np.float16(0.1)) * 3))


def test_branches_and_loops() -> None:
    def build(x: Any) -> Any:
        total = mb.reduce_sum(x=x)
        chosen = mb.cond(
            pred=mb.greater(x=total, y=0.0),
            _true_fn=lambda: mb.mul(x=x, y=2.0),
            _false_fn=lambda: mb.mul(x=x, y=-1.0),
        )
        return mb.while_loop(
            _cond=lambda value: mb.less(x=mb.reduce_max(x=value), y=50.0),
            _body=lambda value: mb.add(x=value, y=value),
            loop_vars=(chosen,),
        )

    array, _ = run(build, np.array([1.0, 2.0], np.float32))
    assert array.tolist() == [32, 64]
    array, _ = run(build, np.array([-1.0, -2.0], np.float32))
    assert array.tolist() == [32, 64]


def test_an_unknown_operation_is_unverified_and_never_a_guess(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    registry.operations()
    monkeypatch.delitem(registry._FOUND, "relu")
    with pytest.raises(mil_executor.Unverified, match="does not know the operation relu"):
        run(lambda x: mb.relu(x=x), X)


@pytest.mark.parametrize(
    "build",
    [
        lambda x: mb.max_pool(x=x, kernel_sizes=[2, 2], pad_type="valid", ceil_mode=True),
        lambda x: mb.resize_bilinear(
            x=x, target_size_height=3, target_size_width=3, sampling_mode="OFFSET_CORNERS"
        ),
    ],
)
def test_a_mode_that_is_not_known_is_unverified(build: Any) -> None:
    with pytest.raises(mil_executor.Unverified):
        run(build, GRID)


def test_an_index_outside_is_a_failed_run() -> None:
    def build(x: Any) -> Any:
        return mb.gather(x=values(3), indices=mb.cast(x=x, dtype="int32"), axis=0)

    with pytest.raises(errors.RunFailed, match="gather"):
        run(build, np.array([5.0], np.float32))


def test_what_is_no_package_is_refused(tmp_path: Any) -> None:
    with pytest.raises(errors.ModelRefused, match="cannot be read"):
        mil_executor.load(tmp_path / "none.mlpackage")
