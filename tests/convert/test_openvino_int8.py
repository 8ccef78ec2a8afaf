"""8 bits by NNCF: small, as accurate as asked for, and clear about what cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import errors, process, samples
from edge.convert import openvino_library as ov
from edge.convert.openvino_int8 import QUANTIZER, openvino_int8
from edge.samples import INDEX
from tests import models
from tests.convert.openvino_setup import RELEASE, Setup, need_openvino
from tests.convert.trained_digits import digits


@pytest.fixture(autouse=True)
def _openvino() -> None:
    need_openvino("nncf")


@pytest.fixture
def trained(tmp_path: Path) -> Setup:
    data = digits()
    setup = Setup(tmp_path / "digits", data.model, [{"x": data.test[n : n + 50]} for n in (0, 50)])
    calibrate: list[Any] = [({"x": data.train[n : n + 8]}, {}) for n in range(0, 240, 8)]
    samples.write(setup.folder / "cases", calibrate)
    return setup


def arguments(setup: Setup, *goals: float, **more: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "model": setup.ir(), "cases": setup.folder / "cases" / INDEX, "golden": setup.golden,
        "preset": "mixed", "subset_size": 300, "goals": list(goals), "release": RELEASE,
    }  # fmt: skip
    return {**plain, **more}


def int8(setup: Setup, *goals: float, out: str = "out", **more: Any) -> dict[str, Any]:
    facts = openvino_int8.function(setup.place(out), **arguments(setup, *goals, **more))
    assert facts is not None
    return facts


def test_a_trained_network_in_8_bits_is_a_third_and_as_good(trained: Setup) -> None:
    facts = int8(trained, 20.0)
    assert facts["sqnr_db"] == facts["sqnr_all_db"] > 20
    assert facts["calibration_samples"] == 30
    before, after = ((trained.folder / n / "model.bin").stat().st_size for n in ("ir", "out"))
    assert after < before / 3
    assert f'type="{QUANTIZER}"' in (trained.folder / "out" / ov.IR).read_text()
    assert trained.run(trained.folder / "out" / ov.IR)["worst"]["y"] < 0.3


def test_operations_are_given_back_until_the_goal_is_reached(trained: Setup) -> None:
    every = int8(trained, 20.0, out="every")
    goal = every["sqnr_db"] + 1
    some = int8(trained, goal, out="some")
    assert some["sqnr_all_db"] == every["sqnr_db"]
    assert some["sqnr_db"] >= goal
    assert 0 < some["quantizers"] < every["quantizers"]


def test_the_first_goal_that_can_be_reached_is(trained: Setup) -> None:
    every = int8(trained, 20.0, out="every")
    second = int8(trained, 200.0, 20.0, out="second")
    assert second == every
    assert (trained.folder / "every" / "model.bin").read_bytes() == (
        trained.folder / "second" / "model.bin"
    ).read_bytes()


def test_a_goal_out_of_reach_fails_with_the_figure(trained: Setup) -> None:
    with pytest.raises(
        errors.ParityFailed, match=r"does not reach an SQNR of 200 dB .* it is \d"
    ) as e:
        int8(trained, 200.0)
    assert "calibrate on more" in e.value.remedy
    assert not list((trained.folder / "out").iterdir())


def test_without_samples_it_says_what_to_give(trained: Setup) -> None:
    samples.write(trained.folder / "cases", [])
    with pytest.raises(errors.UsageError, match="no samples to calibrate on"):
        int8(trained, 20.0)


def test_nothing_to_quantize_is_no_8_bit_model(tmp_path: Path) -> None:
    case = {"x": np.array([1, 2, 3, 4], np.float32)}
    setup = Setup(tmp_path / "m", models.logarithm(), [case])
    samples.write(setup.folder / "cases", [(case, {})])
    with pytest.raises(errors.ModelRefused, match="nothing to quantize"):
        int8(setup, 20.0)


@pytest.mark.process
def test_two_processes_give_the_same_bytes(trained: Setup, tmp_path: Path) -> None:
    """Also where operations are given back."""
    made = []
    for name in ("first", "another-folder"):
        out = tmp_path / name
        out.mkdir()
        facts = process.run_python(
            "edge.convert.openvino_int8:openvino_int8.function",
            {"out": out, **arguments(trained, 40.0)},
            timeout=300,
        )
        made.append((facts, {path.name: path.read_bytes() for path in sorted(out.iterdir())}))
        assert str(tmp_path).encode() not in made[-1][1][ov.IR]
    assert made[0] == made[1]
    assert made[0][0]["sqnr_all_db"] < 40 <= made[0][0]["sqnr_db"]
