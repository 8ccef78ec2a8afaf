"""Closures of artifacts that ONNX Runtime's own converter makes, with its right values."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from edge import errors, process
from edge.closure import Closure, from_json
from edge.closure.proof import gates, missing
from edge.closure.text import as_built, parse, render
from edge.convert import operator_closure as oc
from tests.convert import small_models

pytestmark = pytest.mark.process

Read = Callable[..., Closure]


@pytest.fixture(scope="session")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of all small models in ORT format, for arm or amd64, both styles."""
    root = tmp_path_factory.mktemp("closures")
    small_models.save_all(root / "onnx")

    def convert(platform: str) -> Path:
        out = root / platform
        if not out.exists():
            words = [sys.executable, "-P", "-m", "onnxruntime.tools.convert_onnx_models_to_ort"]
            words += [str(root / "onnx"), "--output_dir", str(out), "--target_platform", platform]
            process.run([*words, "--optimization_style", "Fixed", "Runtime"], timeout=120)
        return out

    return convert


@pytest.fixture
def fixed(converted: Callable[[str], Path]) -> Read:
    return lambda name, platform="arm": oc.read(converted(platform) / f"{name}.ort")[0]


def text(closure: Closure) -> list[str]:
    return render(closure, types=True).splitlines()


FLOAT = '{"inputs": {"0": ["float"]}}'


# ------------------------------------------------------------------ what differs from the source
def test_a_convolution_is_in_a_layout_of_its_own_on_amd64(fixed: Read) -> None:
    amd64 = fixed("conv_relu", "amd64")
    assert text(amd64) == ["com.microsoft.nchwc;1;Conv,ReorderOutput"]
    gates(amd64, platform="linux-x64", ort_version="1.32.0")
    with pytest.raises(errors.ClosureIncomplete, match=r"com\.microsoft\.nchwc Conv .*android"):
        gates(amd64, platform="android", ort_version="1.32.0")


def test_conv_and_relu_become_one_operator(fixed: Read) -> None:
    arm = fixed("conv_relu")
    assert text(arm) == ["com.microsoft;1;FusedConv"]
    gates(arm, platform="android", ort_version="1.32.0")


def test_a_pattern_becomes_gelu(fixed: Read) -> None:
    assert text(fixed("gelu")) == ["com.microsoft;1;Gelu"]


def test_the_style_runtime_keeps_the_pattern(converted: Callable[[str], Path]) -> None:
    found, _ = oc.read(converted("arm") / "gelu.with_runtime_opt.ort")
    assert text(found) == [
        "ai.onnx;13;Erf",
        f"ai.onnx;14;Add{FLOAT},Div{FLOAT},Mul{FLOAT}",
    ]
    assert {e.node for e in found.entries if e.operator == "Erf"} == {"erf"}


UINT8_IN, UINT8_OUT = '{"inputs": {"0": ["uint8_t"]}}', '{"outputs": {"0": ["uint8_t"]}}'
REPLAYED = {
    "conv_relu": [
        f"ai.onnx;11;Conv{FLOAT}",
        f"ai.onnx;14;Relu{FLOAT}",
        "com.microsoft;1;FusedConv",
    ],
    "quantized_conv": [
        "ai.onnx;10;QLinearConv",
        f"ai.onnx;11;Conv{FLOAT}",
        f"ai.onnx;13;DequantizeLinear{UINT8_IN},QuantizeLinear{UINT8_OUT}",
    ],
}


@pytest.mark.parametrize(("name", "expected"), REPLAYED.items())
def test_the_style_runtime_needs_what_a_replay_puts_in_too(
    converted: Callable[[str], Path], name: str, expected: list[str]
) -> None:
    found, reason = oc.read(converted("arm") / f"{name}.with_runtime_opt.ort")
    assert text(found) == expected
    assert reason == ""


CAST = 'Cast{"inputs": {"0": ["float"]}, "outputs": {"0": ["int32_t"]}}'
HALVES = '{"0": ["MLFloat16", "float"]}'
EXPANDED = {
    "hardswish": ["ai.onnx;6;HardSigmoid", f"ai.onnx;14;Mul{FLOAT}"],
    "mish_castlike": [
        "ai.onnx;1;Softplus",
        f"ai.onnx;13;{CAST},Tanh{FLOAT}",
        f"ai.onnx;14;Mul{FLOAT}",
    ],
    "local_function": ["com.microsoft;1;QuickGelu"],
    "half_sine": [
        f"ai.onnx;7;Sin{FLOAT}",
        f'ai.onnx;13;Cast{{"inputs": {HALVES}, "outputs": {HALVES}}}',
    ],
}


@pytest.mark.parametrize(("name", "expected"), EXPANDED.items())
def test_functions_expand_and_casts_come_in(fixed: Read, name: str, expected: list[str]) -> None:
    assert text(fixed(name)) == expected


def test_the_body_of_a_model_local_function_counts(converted: Callable[[str], Path]) -> None:
    found, _ = oc.read(converted("arm") / "local_function.with_runtime_opt.ort")
    assert text(found) == [f"ai.onnx;13;Sigmoid{FLOAT}", f"ai.onnx;14;Mul{FLOAT}"]


def test_branches_and_bodies_count(fixed: Read) -> None:
    branches = fixed("if_branches")
    assert text(branches) == [f"ai.onnx;7;Sin{FLOAT}", f"ai.onnx;13;Exp{FLOAT}", "ai.onnx;16;If"]
    assert {e.operator: e.node for e in branches.entries}["Exp"] == "in_then_branch"
    int32 = '{"inputs": {"0": ["int32_t"]}}'
    assert text(fixed("loop_body")) == [
        f"ai.onnx;14;Add{int32},Mul{int32}",
        "ai.onnx;16;Identity,Loop",
    ]


def test_one_hot_has_a_triple(fixed: Read) -> None:
    assert text(fixed("one_hot")) == [
        'ai.onnx;11;OneHot{"custom": [["int64_t", "float", "int64_t"]]}'
    ]


@pytest.mark.parametrize(("name", "number"), [("int4", 22), ("uint4", 21)])
def test_four_bit_weights_are_read_without_their_types(
    converted: Callable[[str], Path], name: str, number: int
) -> None:
    # The runtime's own converter dies on them ("KeyError: 22") and leaves no configuration.
    found, reason = oc.read(converted("arm") / f"{name}.ort")
    assert reason == f"types of ai.onnx DequantizeLinear are not read: KeyError {number}"
    assert text(found) == [f"ai.onnx;14;Add{FLOAT}", "ai.onnx;21;DequantizeLinear"]
    assert found.four_bit == (name,)
    with pytest.raises(errors.ModelRefused, match=name):
        gates(found, platform="ios", ort_version="1.31.1")


def test_one_node_without_types_takes_them_from_all_nodes_of_its_operator(
    converted: Callable[[str], Path],
) -> None:
    # In the style Runtime, so that the uint8 weights are not folded.
    found, reason = oc.read(converted("arm") / "int4_and_uint8.with_runtime_opt.ort")
    assert {e.types for e in found.entries if e.operator == "DequantizeLinear"} == {None}
    assert reason == "types of ai.onnx DequantizeLinear are not read: KeyError 22"


def test_without_the_runtimes_reader_there_are_no_types(
    monkeypatch: pytest.MonkeyPatch, converted: Callable[[str], Path]
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime.tools.ort_format_model", None)
    found, reason = oc.read(converted("arm") / "prod_int64.ort")
    assert text(found) == ["ai.onnx;13;ReduceProd"]
    assert reason.startswith("ONNX Runtime's reader is not there: ")


def test_values_copied_too_often_are_left_without_types(
    monkeypatch: pytest.MonkeyPatch, converted: Callable[[str], Path]
) -> None:
    monkeypatch.setattr(oc, "MAX_SCOPES", 1)
    found, reason = oc.read(converted("arm") / "prod_int64.ort")
    assert text(found) == ["ai.onnx;13;ReduceProd"]
    assert reason == "too many values in nested graphs"


# --------------------------------------------------------------------------- the runtime's parser
def test_the_runtimes_parser_loses_a_kernel_that_ours_keeps(tmp_path: Path, fixed: Read) -> None:
    from onnxruntime.tools.reduced_build_config_parser import parse_config

    int64, real = fixed("prod_int64"), fixed("prod_float")
    two = tmp_path / "two.config"
    two.write_text("\n".join([*text(int64), *text(real)]))

    def kept(name: str) -> bool:
        kept_types = parse_config(str(two), enable_type_reduction=True)[1]
        return bool(kept_types.is_typed_registration_needed("ai.onnx", "ReduceProd", name))

    assert (kept("int64_t"), kept("float")) == (False, True)
    assert len(missing(int64, as_built(two.read_text()))) == 1
    two.write_text(render(parse(two.read_text()), types=True))
    assert (kept("int64_t"), kept("float"), kept("double")) == (True, True, False)
    assert missing(int64, as_built(two.read_text())) == ()


def test_the_configuration_is_the_one_of_the_runtimes_own_converter(
    tmp_path: Path, converted: Callable[[str], Path]
) -> None:
    for platform in ("arm", "amd64"):
        readable = [p for p in sorted(converted(platform).glob("*.ort")) if "int4" not in p.name]
        fixed_style = [path for path in readable if "with_runtime_opt" not in path.name]
        theirs = tmp_path / f"{platform}.config"
        _config_by_onnxruntime(fixed_style, theirs)
        ours = [oc.read(path)[0] for path in fixed_style]
        closures = {f"m{n}": _saved(tmp_path, n, each) for n, each in enumerate(ours)}
        out = tmp_path / f"out-{platform}"
        out.mkdir()
        oc.closure_config.function(out, platform="linux-x64", ort_version="1.32.0", **closures)
        lines = theirs.read_text().splitlines(keepends=True)
        assert (out / oc.CONFIG).read_text() == "".join(x for x in lines if x[0] != "#")


def _config_by_onnxruntime(files: list[Path], out: Path) -> None:
    from onnxruntime.tools.ort_format_model import create_config_from_models

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        create_config_from_models(files, out, enable_type_reduction=True)


def _saved(folder: Path, number: int, closure: Closure) -> Path:
    from edge.closure import to_json

    path = folder / f"{number}.json"
    path.write_text(to_json(closure))
    return path


# -------------------------------------------------------------------------------------- the steps
@pytest.fixture
def closure_files(tmp_path: Path, converted: Callable[[str], Path]) -> dict[str, Path]:
    """``closure.json`` of three models, made by the step in processes of their own."""
    made: dict[str, Path] = {}
    kernels = {
        "prod_int64": "ai.onnx;13;ReduceProd",
        "prod_float": "ai.onnx;18;ReduceProd",
        "one_hot": "ai.onnx;11;OneHot",
    }
    for name, kernel in kernels.items():
        out = tmp_path / name
        out.mkdir()
        facts = process.run_python(
            oc.operator_closure.address,
            {"out": out, "model": converted("arm") / f"{name}.ort"},
            timeout=120,
        )
        assert facts == {
            "operators": 1, "kernels": [kernel], "domains": ["ai.onnx"],
            "types_reduced": True, "reason": "",
        }  # fmt: skip
        made[f"m{len(made)}"] = out / "closure.json"
    return made


def test_the_steps_make_one_proven_configuration(
    tmp_path: Path, closure_files: dict[str, Path]
) -> None:
    out = tmp_path / "config"
    out.mkdir()
    arguments = {"out": out, "platform": "android", "ort_version": "1.32.0", **closure_files}
    facts = process.run_python(oc.closure_config.address, arguments, timeout=120)
    assert facts == {"operators": 2, "models": 3, "checked_by": ["edgewright", "onnxruntime"]}
    both = '{"inputs": {"0": ["float", "int64_t"]}}'
    assert (out / oc.CONFIG).read_bytes().decode().splitlines() == [
        'ai.onnx;11;OneHot{"custom": [["int64_t", "float", "int64_t"]]}',
        f"ai.onnx;13;ReduceProd{both}",
        f"ai.onnx;18;ReduceProd{both}",
    ]
    union = from_json((out / "closure.json").read_text())
    assert union == oc.union_files(closure_files.values())
    assert [e.node for e in union.entries] == ["y", "reduceprod", "reduceprod"]


def test_the_same_inputs_give_the_same_bytes_in_any_order(
    tmp_path: Path, closure_files: dict[str, Path]
) -> None:
    written = []
    turned = dict(zip(closure_files, reversed(closure_files.values()), strict=True))
    for number, inputs in enumerate((closure_files, turned)):
        out = tmp_path / str(number)
        out.mkdir()
        oc.closure_config.function(out, platform="ios", ort_version="1.32.0", **inputs)
        written.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert written[0] == written[1]
    assert set(written[0]) == {oc.CONFIG, oc.CLOSURE}
    assert b"\r" not in written[0][oc.CONFIG]


def test_a_configuration_without_types_keeps_every_type(
    tmp_path: Path, closure_files: dict[str, Path]
) -> None:
    oc.closure_config.function(
        tmp_path, platform="ios", ort_version="1.32.0", types=False, **closure_files
    )
    assert (tmp_path / oc.CONFIG).read_text() == (
        "ai.onnx;11;OneHot\nai.onnx;13;ReduceProd\nai.onnx;18;ReduceProd\n"
    )


def test_a_gate_ends_the_step(tmp_path: Path, fixed: Read) -> None:
    closure = _saved(tmp_path, 0, fixed("conv_relu", "amd64"))
    with pytest.raises(errors.ClosureIncomplete, match="browser has no kernel for"):
        oc.closure_config.function(tmp_path, platform="browser", ort_version="1.32.0", m0=closure)


def test_a_damaged_closure_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"cannot read .*nothing\.json"):
        oc.union_files([tmp_path / "nothing.json"])
    (tmp_path / "bad.json").write_bytes(b"\xff")
    with pytest.raises(errors.ConfigError, match=r"cannot read .*bad\.json"):
        oc.union_files([tmp_path / "bad.json"])


@pytest.mark.parametrize("name", ["model.ort", "model.onnx"])
def test_a_damaged_artifact_is_one_clear_error_of_the_step(
    tmp_path: Path, converted: Callable[[str], Path], name: str
) -> None:
    whole = (converted("arm") / "if_branches.ort").read_bytes()
    (tmp_path / name).write_bytes(whole[: len(whole) // 2])
    arguments = {"out": tmp_path, "model": tmp_path / name}
    with pytest.raises(errors.ModelRefused) as caught:
        process.run_python(oc.operator_closure.address, arguments, timeout=120)
    assert "\n" not in caught.value.message
    assert caught.value.remedy


def test_an_operator_that_does_not_exist_is_refused(
    tmp_path: Path, converted: Callable[[str], Path]
) -> None:
    whole = (converted("arm") / "if_branches.ort").read_bytes()
    assert whole.count(b"\x03\0\0\0Exp\0") == 1
    path = tmp_path / "model.ort"
    path.write_bytes(whole.replace(b"\x03\0\0\0Exp\0", b"\x03\0\0\0Exq\0"))
    with pytest.raises(errors.ModelRefused, match=r"has no operator Exq .did you mean Exp"):
        oc.read(path)


def test_types_that_point_nowhere_are_one_clear_error(
    tmp_path: Path, converted: Callable[[str], Path]
) -> None:
    # The types of values: our own reader does not follow them, the runtime's does.
    whole = (converted("arm") / "one_hot.ort").read_bytes()
    path, damaged = tmp_path / "model.ort", 0
    for at in range(8, len(whole) - 4, 4):
        path.write_bytes(whole[:at] + b"\xff\xff\xff\x7f" + whole[at + 4 :])
        try:
            oc.read(path)
        except errors.ModelRefused as error:
            damaged += "its types are damaged" in error.message
    assert damaged > 0
