"""Engines of TensorRT-RTX, really built on this host: the same bytes twice, refusals in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge import errors, process, samples
from edge.convert.rtx_engine import ENGINE, rtx_engine
from edge.convert.tensorrt_profiles import FILE, tensorrt_profiles
from tests import models
from tests.convert import small_models
from tests.rtx import need_rtx

pytestmark = pytest.mark.usefixtures("rtx")
RANGES = {"batch": [1, 2, 8]}
Make = Callable[..., tuple[bytes, dict[str, Any]]]


@pytest.fixture
def rtx() -> None:
    need_rtx()


@pytest.fixture
def mlp_profiles(tmp_path: Path) -> Path:
    models.save(models.mlp(), tmp_path / "mlp.onnx")
    case = {"x": np.ones((2, 4), np.float32)}
    samples.write(tmp_path / "golden", [(case, {})])
    (tmp_path / "profiles").mkdir()
    tensorrt_profiles.function(
        tmp_path / "profiles",
        model=tmp_path / "mlp.onnx",
        golden=tmp_path / "golden" / samples.INDEX,
        ranges=RANGES,
    )
    return tmp_path / "profiles" / FILE


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Build a model's engine in this process; bytes and facts."""
    count = iter(range(9))

    def build(model: Path, profiles: Path, *capabilities: str) -> tuple[bytes, dict[str, Any]]:
        out = tmp_path / f"engine-{next(count)}"
        out.mkdir()
        facts = rtx_engine.function(
            out, model=model, profiles=profiles, compute_capabilities=list(capabilities)
        )
        assert facts is not None
        return (out / ENGINE).read_bytes(), facts

    return build


def none(folder: Path) -> Path:
    """No profile at all."""
    path = folder / "none.json"
    path.write_text("[]")
    return path


def test_the_same_model_gives_the_same_bytes(
    make: Make, mlp_profiles: Path, tmp_path: Path
) -> None:
    model = tmp_path / "mlp.onnx"
    (one, facts), (other, _) = make(model, mlp_profiles), make(model, mlp_profiles)
    assert one == other
    assert one.startswith(b"vtrt")
    assert facts["layers"] > 0
    assert facts["compute_capabilities"] == []


def test_other_weights_give_another_engine(make: Make, mlp_profiles: Path, tmp_path: Path) -> None:
    models.save(models.mlp(scale=2.0), tmp_path / "other.onnx")
    one, _ = make(tmp_path / "mlp.onnx", mlp_profiles)
    assert one != make(tmp_path / "other.onnx", mlp_profiles)[0]


def test_the_order_of_compute_capabilities_says_nothing(
    make: Make, mlp_profiles: Path, tmp_path: Path
) -> None:
    model = tmp_path / "mlp.onnx"
    one, facts = make(model, mlp_profiles, "12.0", "8.6")
    assert facts["compute_capabilities"] == ["8.6", "12.0"]
    assert one == make(model, mlp_profiles, "8.6", "12.0")[0]
    assert one != make(model, mlp_profiles, "8.9")[0]


@pytest.mark.process
def test_two_processes_give_the_same_bytes(make: Make, mlp_profiles: Path, tmp_path: Path) -> None:
    out = tmp_path / "apart"
    out.mkdir()
    arguments = {"out": out, "model": tmp_path / "mlp.onnx", "profiles": mlp_profiles}
    process.run_python(rtx_engine.address, {**arguments, "compute_capabilities": []}, timeout=300)
    assert (out / ENGINE).read_bytes() == make(tmp_path / "mlp.onnx", mlp_profiles)[0]


def test_fp16_comes_from_the_model(make: Make, tmp_path: Path) -> None:
    """The network is strongly typed: a model in fp16 gives an engine in fp16, and a smaller one."""
    for name, kind in (("single", np.float32), ("half", np.float16)):
        onnx.save(wide(kind), tmp_path / f"{name}.onnx")
    single, half = (
        len(make(tmp_path / f"{name}.onnx", none(tmp_path))[0]) for name in ("single", "half")
    )
    assert single - half > 400_000


def wide(kind: Any) -> onnx.ModelProto:
    """x[1, 512] -> MatMul[512, 512] -> y, all of one type."""
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    weights = np.random.default_rng(1).standard_normal((512, 512))
    return small_models.model(
        [onnx.helper.make_node("MatMul", ["x", "w"], ["y"])],
        [small_models.value("x", [1, 512], number)],
        [small_models.value("y", [1, 512], number)],
        [small_models.constant("w", weights, kind)],
    )


# ------------------------------------------------------------------------------ refusals
def refusal(make: Make, *arguments: Any) -> errors.EdgeError:
    with pytest.raises(errors.UsageError) as caught:
        make(*arguments)
    assert "\n" not in caught.value.message
    return caught.value


def test_a_dynamic_model_without_a_profile(make: Make, mlp_profiles: Path, tmp_path: Path) -> None:
    error = refusal(make, tmp_path / "mlp.onnx", none(tmp_path))
    assert isinstance(error, errors.ModelRefused)
    assert "no optimization profile has been defined" in error.message
    assert 'dims = "bound"' in error.remedy


def test_an_operator_that_the_parser_does_not_have(make: Make, tmp_path: Path) -> None:
    node = onnx.helper.make_node("Det", ["x"], ["y"], name="determinant")
    made = small_models.model(
        [node], [small_models.value("x", [2, 3, 3])], [small_models.value("y", [2])]
    )
    onnx.save(made, tmp_path / "det.onnx")
    error = refusal(make, tmp_path / "det.onnx", none(tmp_path))
    assert "cannot parse the model: Det determinant" in error.message


def test_turing_has_no_fp32_products(make: Make, mlp_profiles: Path, tmp_path: Path) -> None:
    error = refusal(make, tmp_path / "mlp.onnx", mlp_profiles, "7.5")
    assert "SM75" in error.message
    assert 'precision = "fp16"' in error.remedy


def test_a_compute_capability_that_cannot_be_built_for(
    make: Make, mlp_profiles: Path, tmp_path: Path
) -> None:
    error = refusal(make, tmp_path / "mlp.onnx", mlp_profiles, "9.0")
    assert isinstance(error, errors.ConfigError)
    assert "8.6" in error.remedy


def test_a_profile_that_contradicts_the_model(
    make: Make, mlp_profiles: Path, tmp_path: Path
) -> None:
    entries = json.loads(mlp_profiles.read_text())
    entries[0]["most"] = [8, 5]
    mlp_profiles.write_text(json.dumps(entries))
    error = refusal(make, tmp_path / "mlp.onnx", mlp_profiles)
    assert "profile" in error.message.lower()


def test_a_refusal_does_not_carry_an_earlier_ones_words(
    make: Make, mlp_profiles: Path, tmp_path: Path
) -> None:
    refusal(make, tmp_path / "mlp.onnx", none(tmp_path))
    assert "SM75" in refusal(make, tmp_path / "mlp.onnx", mlp_profiles, "7.5").message
    make(tmp_path / "mlp.onnx", mlp_profiles)


def test_a_file_that_is_no_model(make: Make, tmp_path: Path) -> None:
    (tmp_path / "bad.onnx").write_bytes(b"\x08\x07rubbish")
    assert "cannot parse the model" in refusal(make, tmp_path / "bad.onnx", none(tmp_path)).message
