"""The provider's options and its cache key."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.convert.coreml_provider import (
    Options,
    cache_key,
    checked,
    coreml_version,
    is_cache_key,
)

DEFAULTS = {
    "AllowLowPrecisionAccumulationOnGPU": "0",
    "EnableOnSubgraphs": "0",
    "MLComputeUnits": "ALL",
    "ModelFormat": "MLProgram",
    "ProfileComputePlan": "0",
    "RequireStaticInputShapes": "0",
    "SpecializationStrategy": "Default",
}


def test_an_app_that_says_nothing() -> None:
    assert checked({}) == Options()
    assert Options().provider_options() == DEFAULTS


def test_every_option_comes_back_as_it_was_given() -> None:
    given_ = {
        "AllowLowPrecisionAccumulationOnGPU": "1",
        "EnableOnSubgraphs": "1",
        "MLComputeUnits": "CPUAndNeuralEngine",
        "ModelCacheDirectory": "Library/Caches/models",
        "ModelFormat": "NeuralNetwork",
        "ProfileComputePlan": "1",
        "RequireStaticInputShapes": "1",
        "SpecializationStrategy": "FastPrediction",
    }
    options = checked(given_)
    assert options.provider_options() == given_
    assert not options.mlprogram


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("MLComputeUnits", ("ALL", "CPUOnly", "CPUAndNeuralEngine", "CPUAndGPU")),
        ("ModelFormat", ("MLProgram", "NeuralNetwork")),
        ("SpecializationStrategy", ("Default", "FastPrediction")),
        ("RequireStaticInputShapes", ("0", "1")),
    ],
)
def test_every_value_that_the_provider_knows(name: str, values: tuple[str, ...]) -> None:
    for value in values:
        assert checked({name: value}).provider_options()[name] == value


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("ModelFormats", "MLProgram", "ModelFormat"),
        ("ModelFormat", "mlprogram", "MLProgram"),
        ("MLComputeUnits", "GPU", "known: ALL, CPUOnly"),
        ("SpecializationStrategy", "Fast", "FastPrediction"),
        # The provider would take these for "0" without a word.
        ("RequireStaticInputShapes", "true", "known: 0, 1"),
        ("EnableOnSubgraphs", "", "known: 0, 1"),
    ],
)
def test_what_the_provider_would_throw_on_or_swallow(name: str, value: str, remedy: str) -> None:
    with pytest.raises(errors.ConfigError, match=name) as raised:
        checked({name: value})
    assert remedy in raised.value.remedy


@pytest.mark.parametrize(
    ("ios", "version"),
    [("13", 3), ("14", 4), ("15.1", 5), ("16.0", 6), ("17", 7), ("18.2.1", 8), ("26.0", 8)],
)
def test_core_ml_by_the_release_of_ios(ios: str, version: int) -> None:
    assert coreml_version(ios) == version


@pytest.mark.parametrize("ios", ["12.4", "", "new"])
def test_releases_without_the_provider(ios: str) -> None:
    with pytest.raises(errors.ConfigError, match="does not run on iOS"):
        coreml_version(ios)


@pytest.mark.parametrize(
    ("key", "valid"),
    [("a", True), ("A9" * 32, True), ("a" * 65, False), ("", False), ("a_b", False),
     ("a-b", False), ("ä", False), ("a\n", False), ("٣", False)],
)  # fmt: skip
def test_valid_keys(key: str, *, valid: bool) -> None:
    assert is_cache_key(key) is valid


@given(st.binary(max_size=8), st.binary(max_size=8))
def test_keys_are_valid_and_differ_as_the_models_do(first: bytes, second: bytes) -> None:
    one, two = (hashlib.sha256(data).hexdigest() for data in (first, second))
    assert is_cache_key(cache_key(one))
    assert (cache_key(one) == cache_key(two)) == (one == two)
    assert cache_key(one) != one
