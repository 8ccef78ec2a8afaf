"""Which of two packages is kept by the step, and that two that disagree are told.

The rules themselves are in test_openvino_choice.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge.convert import mil_executor
from edge.convert.coreml_choice import coreml_canonical, coreml_choice
from edge.convert.coreml_package import HEAD
from edge.convert.mil_package import PACKAGE, mil_package
from tests.convert.coreml_setup import Setup, content, parsed
from tests.convert.golden_setup import drawn

pytestmark = [
    # coremltools leaves the folder that it writes weights to for Python to remove.
    pytest.mark.filterwarnings("ignore:Implicitly cleaning up:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
FP32 = {"minimum_deployment_target": "iOS16", "compute_precision": "fp32"}


def product(body: str = "y = Add(h, b)", scale: float = 1.0) -> onnx.ModelProto:
    text = f"g (float[3,4] x) => (float[3,4] y) {{ h = MatMul(x, w) {body} }}"
    return parsed(text, w=drawn(1, 4, 4) * np.float32(scale), b=drawn(2, 4))


LONGER = "k = Add(h, b) e = Exp(k) y = Log(e)"


def setup(folder: Path, canonical: onnx.ModelProto) -> Setup:
    return Setup(folder / "m", canonical, [{"x": drawn(seed, 3, 4)} for seed in (3, 4)])


def choose(given: Setup, other: onnx.ModelProto, **tolerance: Any) -> dict[str, Any]:
    onnx.save(other, given.folder / "other.onnx")
    out, kept = given.place("other"), given.place("kept")
    mil_package.function(out, model=given.folder / "other.onnx", options=FP32)
    heads = {"canonical": given.plain(), "framework": out / PACKAGE / HEAD}
    facts = coreml_choice.function(
        kept, **heads, golden=given.golden, tolerance=tolerance or {"max_abs": 1e-4}
    )
    assert facts is not None
    assert content(kept / PACKAGE) == content(heads[facts["kept"]].parent)
    return facts


def test_the_better_one_is_kept_whichever_it_is(tmp_path: Path) -> None:
    facts = choose(setup(tmp_path / "a", product()), product(LONGER))
    assert (facts["kept"], facts["disagreement"]) == ("canonical", "")
    facts = choose(setup(tmp_path / "b", product(LONGER)), product())
    assert (facts["kept"], facts["disagreement"]) == ("framework", "")
    assert facts["framework"]["operations"] < facts["canonical"]["operations"]
    # What the manifest has of any package.
    assert [port["onnx"] for port in facts["inputs"] + facts["outputs"]] == ["x", "y"]
    assert sum(facts["operations"].values()) == facts["framework"]["operations"]
    assert (facts["specification_version"], facts["bytes"]) == (7, facts["framework"]["bytes"])


def test_one_that_computes_something_else_is_not_kept_and_told(tmp_path: Path) -> None:
    facts = choose(setup(tmp_path, product(LONGER)), product(scale=1.5))
    assert facts["kept"] == "canonical"
    assert facts["framework"]["why_not"].startswith("sample 0, 'y': max_abs")
    assert facts["disagreement"].startswith("sample 0, 'y': max_abs")


def test_two_within_tolerance_may_disagree(tmp_path: Path) -> None:
    """Each is a little to another side of what is right."""
    given = setup(tmp_path, product(scale=0.99))
    right = setup(tmp_path / "right", product())
    given.golden.parent.rename(tmp_path / "old")
    right.golden.parent.rename(given.golden.parent)
    largest = max(float(np.abs(drawn(seed, 3, 4) @ drawn(1, 4, 4)).max()) for seed in (3, 4))
    facts = choose(given, product(scale=1.01), max_abs=0.015 * largest)
    assert facts["canonical"]["why_not"] == facts["framework"]["why_not"] == ""
    assert facts["disagreement"]


def test_what_cannot_be_run_is_not_proven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_words: Any, **_more: Any) -> Any:
        raise mil_executor.Unverified("y: the executor does not know the operation odd")

    monkeypatch.setattr(mil_executor, "run", unknown)
    facts = choose(setup(tmp_path, product(LONGER)), product())
    assert (facts["kept"], facts["disagreement"]) == ("canonical", "")
    for way in ("canonical", "framework"):
        assert facts[way]["why_not"].startswith("not proven: y: the executor does not know")
        assert facts[way]["sqnr_db"] == "-inf"


def test_what_the_frontend_refuses_is_told_and_no_failure(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    onnx.save(parsed("g (float[2,2] x) => (float y) { y = Det(x) }"), model)
    facts = coreml_canonical.function(tmp_path, model=model, options=FP32)
    assert facts is not None
    assert "Det" in facts["refused"]
    onnx.save(product(), model)
    (out := tmp_path / "out").mkdir()
    facts = coreml_canonical.function(out, model=model, options=FP32)
    assert facts is not None
    assert (facts["refused"], (out / PACKAGE / HEAD).is_file()) == ("", True)
