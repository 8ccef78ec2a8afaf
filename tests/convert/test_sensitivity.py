"""The search for nodes that stay in float, on made-up costs."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge import errors
from edge.convert import sensitivity
from edge.convert.sensitivity import choose

NODES = tuple(f"n{i}" for i in range(200))


class Model:
    """Noises that add up, and pairs that are quiet only together."""

    def __init__(self, noise: dict[str, float], pairs: dict[str, str] | None = None) -> None:
        self.noise, self.pairs, self.asked = noise, pairs or {}, 0

    def measure(self, quantized: tuple[str, ...]) -> float:
        self.asked += 1
        total = sum(self.noise.get(node, 1e-6) for node in quantized)
        for one, other in self.pairs.items():
            total += 1.0 if (one in quantized) != (other in quantized) else 0.0
        return math.inf if not total else -10 * math.log10(total)


def test_within_the_limit_is_one_run() -> None:
    model = Model({})
    found = choose(NODES, model.measure, 30.0, {})
    assert (found.quantized, found.kept, found.runs, model.asked) == (NODES, {}, 1, 1)
    assert found.db == found.all_db


@pytest.mark.parametrize("place", [0, 1, 77, 198, 199])
def test_one_sensitive_node_is_found_alone(place: int) -> None:
    model = Model({NODES[place]: 0.1})
    found = choose(NODES, model.measure, 30.0, {})
    assert list(found.kept) == [NODES[place]]
    assert found.kept[NODES[place]] == pytest.approx(10.0, abs=0.1)
    assert found.all_db == pytest.approx(10.0, abs=0.1)
    assert found.db >= 30.0
    assert found.runs == model.asked <= 40


def test_several_sensitive_nodes_are_found() -> None:
    wanted = {NODES[i]: 0.01 for i in (3, 4, 90, 150)}
    found = choose(NODES, Model(wanted).measure, 30.0, {})
    assert set(found.kept) == set(wanted)


def test_no_more_is_reverted_than_the_limit_asks() -> None:
    noise = {NODES[i]: 10.0**-i for i in range(1, 6)}
    found = choose(NODES, Model(noise).measure, 25.0, {})
    assert list(found.kept) == ["n1", "n2"]


def test_nodes_that_are_quiet_only_together_end_on_one_side() -> None:
    model = Model({"n8": 0.02, "n9": 0.02, "n100": 0.05}, {"n8": "n9"})
    found = choose(NODES, model.measure, 20.0, {})
    assert ("n8" in found.kept) == ("n9" in found.kept)
    assert found.db >= 20.0


def test_large_weights_come_back_where_they_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without runs for ranking a whole block is reverted; its innocent weights come back."""
    monkeypatch.setattr(sensitivity, "RANKING_RUNS", 0)
    model = Model({"n11": 0.1})
    found = choose(NODES, model.measure, 30.0, {"n10": 1000, "n11": 1000})
    assert "n11" in found.kept
    assert "n9" in found.kept
    assert "n10" not in found.kept


def test_of_equally_noisy_nodes_the_light_one_is_reverted() -> None:
    model = Model({"n1": 0.0006, "n2": 0.0006})
    found = choose(NODES[:8], model.measure, 30.0, {"n1": 10_000, "n2": 10, "n3": 10_000})
    assert list(found.kept) == ["n2"]


@pytest.mark.parametrize("noise", [1.0, math.inf])
def test_beyond_reach_is_a_gate_that_says_the_nearest(noise: float) -> None:
    model = Model(dict.fromkeys(NODES, noise))
    with pytest.raises(errors.ParityFailed, match=r"SQNR of 30 dB .*nearest is .* dB") as caught:
        choose(NODES, model.measure, 30.0, {})
    assert caught.value.exit_code == 1
    assert model.asked <= sensitivity.RANKING_RUNS + 20


def test_one_node_is_no_search() -> None:
    with pytest.raises(errors.ParityFailed, match=r"10\.0 dB with 1 of 1 nodes"):
        choose(("n0",), Model({"n0": 0.1}).measure, 30.0, {})


@settings(max_examples=60)
@given(
    exponents=st.lists(st.floats(-9, 1), min_size=2, max_size=120),
    limit=st.floats(-10, 60),
    sizes=st.dictionaries(st.integers(0, 119), st.integers(0, 10**6), max_size=20),
)
def test_what_is_chosen_was_measured_within_the_limit(
    exponents: list[float], limit: float, sizes: dict[int, int]
) -> None:
    nodes = NODES[: len(exponents)]
    model = Model({node: 10.0**e for node, e in zip(nodes, exponents, strict=True)})
    weights = {NODES[i]: size for i, size in sizes.items()}
    try:
        found = choose(nodes, model.measure, limit, weights)
    except errors.ParityFailed:
        assert model.measure(nodes) < limit
        return
    runs = model.asked
    assert found.runs == runs <= sensitivity.RANKING_RUNS + 20 + sensitivity.LAST_TRIES
    assert model.measure(found.quantized) == found.db >= limit
    assert found.quantized
    assert {*found.quantized, *found.kept} == set(nodes)
    assert not set(found.quantized) & set(found.kept)
    assert list(found.quantized) == sorted(found.quantized, key=NODES.index)
