"""ORT-format files have one spelling, and it says the same as the converter's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge import process
from edge.convert import ort_canonical, ort_format, run_model

pytestmark = pytest.mark.process
OPTIONS = {"style": "Fixed", "target_platform": "arm", "level": "all"}


@pytest.fixture(scope="module")
def magika() -> Path:
    from edge.sources.locate import locate

    return locate("pkg:magika/models/standard_v3_3/model.onnx", Path()).path


@pytest.fixture(scope="module")
def converted(magika: Path, tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """What the converter itself writes, in two processes."""
    found = []
    for name in ("a", "b"):
        work = tmp_path_factory.mktemp(name)
        (work / "model.onnx").write_bytes(magika.read_bytes())
        ort_format._convert(work, "Fixed", "arm", "all")
        found.append((work / "out" / "model.ort").read_bytes())
    return found


def test_two_conversions_have_the_same_bytes(converted: list[bytes]) -> None:
    first, second = (ort_canonical.canonical(data) for data in converted)
    assert first[1]
    assert first == second


def test_the_step_gives_the_same_bytes_in_two_processes(magika: Path, tmp_path: Path) -> None:
    made = []
    for name in ("one", "other-place"):
        out = tmp_path / name
        out.mkdir()
        arguments = {"out": out, "model": magika, **OPTIONS}
        facts = process.run_python(ort_format.ort_format.address, arguments, timeout=120)
        assert facts["one_spelling"] is True
        made.append((out / "model.ort").read_bytes())
    assert made[0] == made[1]


def test_the_content_is_untouched(converted: list[bytes], tmp_path: Path) -> None:
    outputs = []
    inputs = {"bytes": np.arange(2048, dtype=np.int32).reshape(1, 2048) % 257}
    for number, data in enumerate((converted[0], ort_canonical.canonical(converted[0])[0])):
        path = tmp_path / f"{number}.ort"
        path.write_bytes(data)
        session = run_model.open_session(path, level="disabled")
        outputs.append(run_model.run_session(session, inputs)["target_label"])
    np.testing.assert_array_equal(outputs[0], outputs[1])


def test_it_is_its_own_canonical_form(converted: list[bytes]) -> None:
    once, _ = ort_canonical.canonical(converted[0])
    again, changed = ort_canonical.canonical(once)
    # The resolver now lies behind everything else: nothing is left to move.
    assert again == once
    assert not changed


def test_the_weights_keep_their_alignment(converted: list[bytes]) -> None:
    once, _ = ort_canonical.canonical(converted[0])
    # flatbuffers aligns by the distance from the end, so the old end decides.
    tail = converted[0][-4096:]
    assert (once.index(tail) + len(tail)) % ort_canonical.ALIGNMENT == 0
