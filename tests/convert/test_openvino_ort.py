"""ONNX Runtime's OpenVINO provider: its options, its reasons, and that nothing else runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edge import errors
from edge.convert import runner_options
from edge.convert.run_ort_openvino import _nodes, provider_options, reason, run_ort_openvino
from tests import models
from tests.golden import golden

# Recorded from onnxruntime-openvino 1.24.1: silero_vad.onnx as it is published.
SILERO = """[ONNXRuntimeError] : 1 : FAIL : Exception during initialization: /onnxruntime\
/onnxruntime/core/providers/openvino/backends/basic_backend.cc:136 onnxruntime::openvino_ep\
::BasicBackend \
[OpenVINO-EP] Exception while Loading Network for graph OpenVINOExecutionProvider_OpenVINO-EP-\
subgraph_13_0: Exception from src/inference/src/cpp/core.cpp:114:
Exception from src/inference/src/dev/plugin.cpp:53:
Check '!shape.rank().is_dynamic()' failed at src/plugins/intel_cpu/src/node.cpp:106:
Unexpected: CPU plug-in doesn't support Parameter operation with dynamic rank. Operation name: \
If_0_else_branch__Inline_0__/decoder/If_output_0



"""
FALLBACK = (
    "[ONNXRuntimeError] : 1 : FAIL : This session contains graph nodes that are assigned to the "
    "default CPU EP, but fallback to CPU EP has been explicitly disabled by the user."
)


def test_openvinos_own_reason_is_told() -> None:
    assert reason(RuntimeError(SILERO)) == (
        "Unexpected: CPU plug-in doesn't support Parameter operation with dynamic rank. Operation "
        "name: If_0_else_branch__Inline_0__/decoder/If_output_0"
    )


def test_onnx_runtimes_reason_is_told_where_openvino_said_nothing() -> None:
    assert reason(RuntimeError(FALLBACK)) == FALLBACK


def test_properties_go_into_one_option_that_options_tsv_can_hold(tmp_path: Path) -> None:
    made = provider_options({"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"})
    assert made["device_type"] == "CPU"
    assert json.loads(made["load_config"]) == {
        "CPU": {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    }
    told = {f"provider.{name}": value for name, value in made.items()}
    runner_options.options_file.function(tmp_path, options=told)


def profile(folder: Path, *providers: str) -> Path:
    events = [
        {"cat": "Node", "name": f"n{place}_kernel_time", "dur": 5,
         "args": {"provider": provider, "node_index": str(place)}}
        for place, provider in enumerate(providers)
    ]  # fmt: skip
    (folder / "profile.json").write_text(json.dumps(events))
    return folder / "profile.json"


def test_nodes_are_counted_by_provider(tmp_path: Path) -> None:
    path = profile(tmp_path, "OpenVINOExecutionProvider", "OpenVINOExecutionProvider")
    assert _nodes(path) == {"OpenVINOExecutionProvider": 2}
    assert not path.exists()


@pytest.mark.parametrize(
    ("providers", "said"),
    [
        (("CPUExecutionProvider",), "ran no node"),
        (("OpenVINOExecutionProvider", "CPUExecutionProvider"), "was to run 1 of the nodes"),
    ],
)
def test_a_node_elsewhere_is_a_failure(
    tmp_path: Path, providers: tuple[str, ...], said: str
) -> None:
    with pytest.raises(errors.RunFailed, match=f"OpenVINOExecutionProvider {said}"):
        _nodes(profile(tmp_path, *providers))


def test_plain_onnx_runtime_is_not_taken_for_it(tmp_path: Path) -> None:
    models.save(models.mlp(), tmp_path / "m.onnx")
    inputs = [{"name": "x", "dtype": "float32", "shape": [2, 4], "constant": None, "range": None}]
    golden(tmp_path / "golden", tmp_path / "m.onnx", inputs, count=1)
    (tmp_path / "out").mkdir()
    with pytest.raises(errors.ToolMissing, match=r"onnxruntime-openvino 1\.24\.1 is not in this"):
        run_ort_openvino.function(
            tmp_path / "out", model=tmp_path / "m.onnx",
            golden=tmp_path / "golden" / "samples.tsv", options={}, release="1.24.1",
        )  # fmt: skip
