"""Placement: what of a model ran where, from profiles that nobody vouches for."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors, placement
from edge.placement import Part
from tests.test_protocol import JSON

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


def node(name: str, provider: str, dur: Any = 0, index: str = "0") -> dict[str, Any]:
    arguments = {"op_name": "Conv", "provider": provider, "node_index": index}
    return {
        "cat": "Node", "ph": "X", "dur": dur, "name": f"{name}_kernel_time", "args": arguments,
    }  # fmt: skip


def read(*events: dict[str, Any]) -> dict[str, Part]:
    return placement.read(json.dumps(events).encode())


def test_nodes_are_counted_once_and_their_time_every_time() -> None:
    session = {"cat": "Session", "name": "model_loading", "dur": 999, "args": {}}
    found = read(
        session, node("a", CUDA, 3), node("b", CUDA, 5), node("a", CUDA, 4), node("a", CPU, 4, "7")
    )
    assert found == {CPU: Part(1, 4000, 1 / 3, 0.25), CUDA: Part(2, 12_000, 2 / 3, 0.75)}


def test_a_device_of_openvino_is_a_provider() -> None:
    assert read(node("a", "openvino:CPU", 2)) == {"openvino:CPU": Part(1, 2000, 1.0, 1.0)}


def test_the_time_of_a_loop_is_that_of_its_body() -> None:
    """onnxruntime tells a Loop's time with all that it ran, which it tells as well."""
    loop = node("l", CPU, 100)
    loop["args"]["op_name"] = "Loop"
    found = read(loop, node("a", CUDA, 60), node("b", CPU, 20))
    assert found == {CPU: Part(2, 20_000, 2 / 3, 0.25), CUDA: Part(1, 60_000, 1 / 3, 0.75)}
    loop["args"]["provider"] = "openvino:CPU"  # which tells no bodies
    assert read(loop)["openvino:CPU"].ns == 100_000


@pytest.mark.process
def test_nodes_take_no_longer_than_the_run(tmp_path: Path) -> None:
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    info, floats = helper.make_tensor_value_info, TensorProto.FLOAT
    body = helper.make_graph(
        [helper.make_node("MatMul", ["s", "s"], ["t"]), helper.make_node("Identity", ["c"], ["d"])],
        "body",
        [info("i", 7, []), info("c", 9, []), info("s", floats, [128, 128])],
        [info("d", 9, []), info("t", floats, [128, 128])],
    )
    weights = [
        numpy_helper.from_array(np.array(value), name)
        for name, value in (("n", np.int64(20)), ("go", np.bool_(1)))
    ]
    value = [info(name, floats, [128, 128]) for name in ("x", "y")]
    loop = helper.make_node("Loop", ["n", "go", "x"], ["y"], body=body)
    graph = helper.make_graph([loop], "loop", value[:1], value[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.enable_profiling = 1, True
    options.profile_file_prefix = str(tmp_path / "profile")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[CPU])
    session.run(None, {"x": np.zeros((128, 128), np.float32)})
    profile = Path(session.end_profiling()).read_bytes()
    (run,) = (event["dur"] for event in json.loads(profile) if event["name"] == "model_run")
    assert placement.read(profile)[CPU].ns <= run * 1000


def test_kernels_too_short_for_the_clock_count_as_nodes() -> None:
    found = read(node("a", CUDA), node("b", CUDA), node("c", CUDA), node("d", CPU))
    assert (found[CUDA].time_share, found[CPU].time_share) == (0.75, 0.25)


@pytest.mark.parametrize("dur", [None, "5", True, -1, 1e300, [5]])
def test_a_duration_that_is_none_is_no_time(dur: Any) -> None:
    assert read(node("a", CPU, dur), node("b", CPU, 1))[CPU].ns == 1000


@pytest.mark.parametrize("profile", [b"[]", b"{}", b"3", b'[1, {"args": 2}, {"args": {}}]'])
def test_a_profile_without_nodes_has_none(profile: bytes) -> None:
    assert placement.read(profile) == {}


@pytest.mark.parametrize("provider", ["", "a b", "\x1b[2J", "x" * 65, 3])
def test_what_is_no_name_is_no_provider(provider: Any) -> None:
    assert read(node("a", provider, 1)) == {}


@pytest.mark.parametrize("profile", [b"", b"[{", b"\xff\xfe\x00", b"[" * 100_000])
def test_a_broken_profile_is_a_failed_run(profile: bytes) -> None:
    with pytest.raises(errors.RunFailed, match="no JSON"):
        placement.read(profile)


def test_a_profile_has_a_size_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "MAX_PROFILE_BYTES", 3)
    with pytest.raises(errors.RunFailed, match="more than 3 bytes"):
        placement.read(b"[{}]")


@given(st.binary() | JSON.map(lambda value: json.dumps([value, {"args": value}]).encode()))
def test_any_profile_is_counted_or_refused(profile: bytes) -> None:
    with suppress(errors.RunFailed):
        assert all(part.nodes > 0 for part in placement.read(profile).values())


EVENTS = st.lists(
    st.builds(
        node,
        st.sampled_from("abcd"),
        st.sampled_from([CPU, CUDA, "openvino:CPU"]),
        st.integers(0, 10**6) | st.floats() | st.none(),
        st.sampled_from("01"),
    )
)


@given(EVENTS)
def test_shares_are_parts_of_one(events: list[dict[str, Any]]) -> None:
    found = read(*events)
    if found:
        assert sum(part.node_share for part in found.values()) == pytest.approx(1)
        assert sum(part.time_share for part in found.values()) == pytest.approx(1)
    assert all(part.ns >= 0 for part in found.values())


# ------------------------------------------------------------------------------- what is required
HALF = {CPU: Part(1, 75, 0.5, 0.75), CUDA: Part(1, 25, 0.5, 0.25)}


def test_the_least_shares_must_both_be_met() -> None:
    placement.require(HALF, CUDA, 0.5, 0.25)
    for least in ((0.51, 0.0), (0.0, 0.26), (1.0, 1.0)):
        with pytest.raises(errors.RunFailed) as caught:
            placement.require(HALF, CUDA, *least)
        assert caught.value.exit_code == 4
        assert "1 nodes (50%, 25% of their time) on CUDAExecutionProvider" in caught.value.message


@pytest.mark.parametrize("least", [0.0, 1.0])
def test_a_provider_that_ran_nothing_is_always_a_failure(least: float) -> None:
    with pytest.raises(errors.RunFailed, match="nodes ran like this: none"):
        placement.require({}, CUDA, least, least)


def test_compute_units_are_no_part_of_a_providers_name() -> None:
    found = {"CoreMLExecutionProvider": Part(1, 90, 0.5, 0.9), CPU: Part(1, 10, 0.5, 0.1)}
    placement.require(found, "CoreMLExecutionProvider:CPUAndGPU", 0.5, 0.9)
    with pytest.raises(errors.RunFailed, match="CoreMLExecutionProvider:CPUAndGPU was to run"):
        placement.require(found, "CoreMLExecutionProvider:CPUAndGPU", 0.6, 0.9)


def test_a_device_is_part_of_openvinos_name() -> None:
    found = {"openvino:CPU": Part(1, 90, 1.0, 1.0)}
    placement.require(found, "openvino:CPU", 1.0, 1.0)
    with pytest.raises(errors.RunFailed, match="openvino:GPU ran no node"):
        placement.require(found, "openvino:GPU", 0.0, 0.0)


def test_records_keep_nodes_and_shares() -> None:
    assert placement.to_json(HALF)[CUDA] == {
        "nodes": 1, "ns": 25, "node_share": 0.5, "time_share": 0.25,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("provider", "may"),
    [(CPU, False), ("openvino:GPU", False), ("tensorrt", False), (CUDA, True),
     ("OpenVINOExecutionProvider", True), ("DmlExecutionProvider", True),
     ("CoreMLExecutionProvider:CPUOnly", True), ("coreml:ALL", False)],
)  # fmt: skip
def test_nodes_fall_back_under_onnxruntime_alone(provider: str, may: bool) -> None:
    assert placement.can_fall_back(provider) == may
