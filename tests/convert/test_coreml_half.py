"""Half precision of a saved package, against half precision of the ONNX file that it came from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from edge.convert.coreml_half import coreml_half
from edge.convert.mil_package import PACKAGE
from tests.convert.coreml_setup import Setup, content, parsed
from tests.convert.golden_setup import drawn

pytestmark = [
    # coremltools leaves the folder that it writes weights to for Python to remove.
    pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def net(gain: float) -> onnx.ModelProto:
    """A product between two others; with a gain of 1e4 its middle is beyond half precision."""
    text = (
        'g (float[3,4] "in/x", int64[3] index) => (float[3,4] y)'
        '{ a = Gather <axis = 0> ("in/x", index) h = MatMul(a, w) big = Mul(h, h)'
        "  soft = Sqrt(big) y = Mul(soft, small) }"
    )
    return parsed(text, w=drawn(1, 4, 4) * gain, small=drawn(2, 4) / gain)


def halved(setup: Setup, head: Path, name: str) -> dict[str, Any]:
    facts = coreml_half.function(
        setup.place(name), package=head, golden=setup.golden,
        minimum_deployment_target="iOS16", goal=40.0,
    )  # fmt: skip
    assert facts is not None
    return facts


@pytest.mark.parametrize("gain", [1.0, 1e4])
def test_it_is_what_is_made_of_the_onnx_file(tmp_path: Path, gain: float) -> None:
    import numpy as np

    case = {"in/x": drawn(3, 3, 4), "index": np.array([2, 0, 1])}
    setup = Setup(tmp_path / "m", net(gain), [case])
    facts, wanted = halved(setup, setup.plain(), "half-of-package"), setup.half(goal=40.0)
    assert bool(facts["fp32"]) == (gain > 1)
    assert facts["sqnr_db"] > 40
    for same in ("inputs", "outputs", "operations", "specification_version", "fp32", "why"):
        assert facts[same] == wanted[same]
    again = halved(setup, setup.folder / "plain" / PACKAGE / "Manifest.json", "again")
    assert again == facts
    packages = (setup.folder / name / PACKAGE for name in ("half-of-package", "again"))
    first, second = map(content, packages)
    assert first == second
