"""Binding inputs, and which release reads what."""

from __future__ import annotations

import pytest

from edge import errors, model
from edge.config import InputSpec, ModelSpec
from edge.model import Port

PORTS = (Port("x", "float32", ("batch", 3, None)), Port("n", "int64", ("batch",)))


def spec(**fields: object) -> ModelSpec:
    return ModelSpec.model_validate({"source": "m.onnx", **fields})


def test_a_symbol_is_bound_once_for_all_inputs() -> None:
    bound = model.bind(PORTS, spec(dims={"batch": 2}, inputs={"x": {"shape": [2, 3, 8]}}))
    assert [each.shape for each in bound] == [(2, 3, 8), (2,)]


def test_an_unbound_symbol_names_input_and_remedy() -> None:
    with pytest.raises(errors.ConfigError, match=r"dimension 0 of input x") as caught:
        model.bind(PORTS, spec())
    assert "--dim batch=N" in caught.value.remedy


def test_an_unknown_dimension_needs_a_shape() -> None:
    with pytest.raises(errors.ConfigError, match=r"dimension 2 of input x") as caught:
        model.bind(PORTS, spec(dims={"batch": 1}))
    assert caught.value.remedy.startswith("a shape for the input x of model model")


@pytest.mark.parametrize("shape", [(2, 4, 8), (2, 3), (2, 3, 8, 1), (5, 3, 8)])
def test_a_shape_that_contradicts_the_model_is_refused(shape: tuple[int, ...]) -> None:
    said = spec(dims={"batch": 2}, inputs={"x": InputSpec(shape=shape)})
    with pytest.raises(errors.ConfigError, match=r"does not fit"):
        model.bind(PORTS, said)


def test_unknown_names_are_said_with_the_nearest() -> None:
    with pytest.raises(errors.ConfigError, match=r"dims\.bach") as caught:
        model.bind(PORTS, spec(dims={"bach": 1}))
    assert caught.value.remedy == "did you mean 'batch'?"
    with pytest.raises(errors.ConfigError, match=r"inputs\.y"):
        model.bind(PORTS, spec(inputs={"y": {}}))


def test_another_dtype_is_said() -> None:
    with pytest.raises(errors.ConfigError, match="is float32, the project says int8"):
        model.bind(PORTS, spec(inputs={"x": {"dtype": "int8", "shape": [1, 3, 1]}}))


@pytest.mark.parametrize(
    ("release", "highest"), [("1.21.0", (22, 10)), ("1.29.0", (26, 13)), ("1.32.0", (28, 14))]
)
def test_the_releases_limits(release: str, highest: tuple[int, int]) -> None:
    assert model.limits(release) == highest


def test_an_unknown_release_decides_itself() -> None:
    assert model.limits("9.9.9") == model.NO_LIMIT


def test_a_symbol_in_a_declared_shape_is_bound_by_dims() -> None:
    """Exporters are told the names; a model that calls the dimension otherwise is bound too."""
    found = model.bind(
        (model.Port("x", "float32", ("s0", 4)),),
        spec(inputs={"x": {"shape": ["batch", 4]}}, dims={"batch": 2}),
    )
    assert found[0].shape == (2, 4)


def test_a_symbol_that_nothing_binds_is_said() -> None:
    with pytest.raises(errors.ConfigError, match="dimension 0 of input x"):
        model.bind(
            (model.Port("x", "float32", ("batch", 4)),), spec(inputs={"x": {"shape": ["batch", 4]}})
        )


@pytest.mark.parametrize(
    ("dtype", "said"),
    [
        ("int64", {"constant": 2.9}),
        ("int8", {"range": [-5, 300]}),
        ("uint8", {"range": [-1, 5]}),
        ("uint8", {"range": [0.2, 0.8]}),
    ],
)
def test_values_that_the_dtype_does_not_have_are_refused(dtype: str, said: object) -> None:
    with pytest.raises(errors.ConfigError, match="is no value of it"):
        model.bind((Port("x", dtype, (1,)),), spec(inputs={"x": said}))


def test_whole_floats_are_values_of_integers() -> None:
    (bound,) = model.bind((Port("x", "uint8", (1,)),), spec(inputs={"x": {"range": [0.0, 255.0]}}))
    assert bound.range == (0.0, 255.0)


def test_an_input_beyond_memory_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="would hold 8589934588 bytes"):
        model.bind((Port("x", "float32", ("n",)),), spec(dims={"n": 2**31 - 1}))
