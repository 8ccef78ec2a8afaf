"""What target files say of precisions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import config, errors
from edge.config.precision import LOSSY_DB
from edge.parity import Tolerance
from edge.registry import Registry


def target(**changes: Any) -> config.Target:
    found = Registry(Path("/nonexistent")).target("android", config.ProjectFile(), "tests")
    return config.check(config.Target, {**found.model_dump(), **changes}, "tests")


def test_the_sources_own_precision_is_held_to_the_targets_tolerance() -> None:
    wanted = target(tolerance={"max_abs": 0.5})
    assert wanted.tolerance_of("source").max_abs == 0.5


def test_a_lossy_precision_has_a_limit_on_noise_of_its_own() -> None:
    assert target().tolerance_of("int8").sqnr_db == LOSSY_DB["int8"]
    said = target(tolerances={"int8": {"sqnr_db": 15}})
    assert said.tolerance_of("int8").model_dump(exclude_none=True) == {
        "floor": 1e-3,
        "sqnr_db": 15.0,
    }
    assert said.tolerance_of("fp16").sqnr_db == LOSSY_DB["fp16"]


def test_a_limit_on_elements_comes_on_top_of_that_on_noise() -> None:
    found = target(tolerances={"int8": {"max_abs": 1}}).tolerance_of("int8")
    assert (found.max_abs, found.max_rel, found.sqnr_db) == (1, None, LOSSY_DB["int8"])


def test_the_sources_own_tolerance_has_one_place() -> None:
    with pytest.raises(errors.ConfigError, match="tolerances"):
        target(tolerances={"source": {"max_abs": 1}})


@pytest.mark.parametrize(
    ("choice", "sqnr_db"), [({"min_sqnr": 33.0}, 33.0), ({"max_drop": 0.01}, 0.0), ({}, 20.0)]
)
def test_what_the_user_limits_the_loss_by_replaces_our_own_idea(
    choice: dict[str, float], sqnr_db: float
) -> None:
    wanted = target(precision="auto", choice=choice)
    assert wanted.tolerance_of("int8").sqnr_db == sqnr_db
    assert target(precision="int8", choice=choice).tolerance_of("int8").sqnr_db == 20.0


@pytest.mark.parametrize("precision", config.PRECISIONS)
def test_every_tolerance_is_one_that_parity_takes(precision: config.Precision) -> None:
    assert not Tolerance(**target().tolerance_of(precision).model_dump()).exact


@pytest.mark.parametrize(
    ("releases", "version", "broken"),
    [
        (">=1.28,<1.32", "1.29.0", True),
        (">=1.28,<1.32", "1.32.0", False),
        (">=1.28,<1.32", "1.27.3", False),
        ("==1.29.0", "1.29.0", True),
        ("<1.22", "1.21.0", True),
        ("<1.22", "1.22.0", False),
    ],
)
def test_a_broken_precision_is_one_of_its_releases(
    releases: str, version: str, *, broken: bool
) -> None:
    row = {"precision": "int4-weights", "releases": releases, "why": "it does not load"}
    wanted = target(broken=[row], runtime={"name": "onnxruntime-android", "version": version})
    assert wanted.why_broken("int4-weights") == ("it does not load" if broken else "")
    assert wanted.why_broken("int8") == ""


@pytest.mark.parametrize("releases", ["", "1.28", ">=x", ">=1.28;<1.32", ">=1.2.3.4"])
def test_releases_that_could_not_be_compared_are_refused(releases: str) -> None:
    row = {"precision": "fp16", "releases": releases, "why": "x"}
    with pytest.raises(errors.ConfigError, match=r"broken\.0\.releases"):
        target(broken=[row])


@pytest.mark.parametrize(
    ("said", "figure"),
    [("2 MB", 2_000_000), ("2MiB", 2**21), ("1.5 kB", 1500), ("800 B", 800), (17, 17)],
)
def test_sizes_have_units(said: object, figure: int) -> None:
    assert config.check(config.Choice, {"max_size": said}, "x").max_size == figure


@pytest.mark.parametrize(("said", "figure"), [("5 ms", 5_000_000), ("250us", 250_000), (7, 7)])
def test_times_have_units(said: object, figure: int) -> None:
    assert config.check(config.Choice, {"max_p50": said}, "x").max_p50 == figure


@pytest.mark.parametrize(
    "said", ["2 ms", "MB", "2", "-2 MB", "2 MB 3", 0, -1, True, "9" * 400 + " GB"]
)
def test_what_is_no_size_is_said(said: object) -> None:
    with pytest.raises(errors.ConfigError, match="max_size"):
        config.check(config.Choice, {"max_size": said}, "x")


@given(st.text(max_size=12))
def test_any_text_is_a_size_or_an_error(text: str) -> None:
    try:
        found = config.check(config.Choice, {"max_size": text}, "x").max_size
    except errors.ConfigError:
        return
    assert found is not None
    assert found > 0


def test_a_candidate_is_named_once() -> None:
    with pytest.raises(errors.ConfigError, match="twice"):
        target(choice={"candidates": ["fp16", "fp16"]})


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(errors.ConfigError, match="precision"):
        target(precision="int7")
