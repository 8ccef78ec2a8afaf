"""What the runners of CUDA and TensorRT bundles are told."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import config, errors
from edge.convert import tensorrt_options as module
from edge.convert.profiles import derive
from edge.convert.tensorrt_options import (
    cuda_options,
    plan_options,
    rtx_options,
    tensorrt_options,
)
from edge.job import PENDING, PendingFacts
from edge.model import Port
from tests.convert import fake_job

PROFILES = [
    each.to_json()
    for each in derive([Port("x", "float32", ("n", 4))], [{"x": (2, 4)}], {"n": [1, 2, 8]})
]


def told(*kinds: str, **changes: Any) -> dict[str, str]:
    target = fake_job.target("tensorrt").model_copy(update=changes)
    return tensorrt_options(
        target, "source", "a" * 64, {"profiles": PROFILES, "kinds": list(kinds)}
    )


def test_tf32_is_off_unless_the_target_says_otherwise() -> None:
    target = fake_job.target("cuda")
    assert cuda_options(target) == {"provider.use_tf32": "0"}
    on = target.model_copy(update={"cuda": config.Cuda(options={"use_tf32": "1"})})
    assert cuda_options(on) == {"provider.use_tf32": "1"}


def switched(table: str, name: str, value: object) -> str:
    """What the runner is told of an option that a target file gives."""
    said = {table: {"options": {name: value}}}
    target = config.check(config.Target, {**fake_job.target(table).model_dump(), **said}, "test")
    options = cuda_options(target) if table == "cuda" else told(tensorrt=target.tensorrt)
    return options[f"provider.{name}"]


@pytest.mark.parametrize("value", [True, 1, "1", "True", "true"])
def test_switches_are_what_their_reader_takes(value: object) -> None:
    """The provider takes 1, onnxruntime's Python package True alone for TensorRT."""
    assert switched("cuda", "use_tf32", value) == "1"
    assert switched("tensorrt", "trt_bf16_enable", value) == "True"


@pytest.mark.parametrize("value", [False, 0, "0", "False", "false"])
def test_switches_that_are_off(value: object) -> None:
    assert switched("cuda", "prefer_nhwc", value) == "0"
    assert switched("tensorrt", "trt_dump_subgraphs", value) == "False"


@pytest.mark.parametrize("value", ["yes", "2", 2, "", "on"])
@pytest.mark.parametrize(
    ("table", "name"), [("cuda", "use_tf32"), ("tensorrt", "trt_sparsity_enable")]
)
def test_a_switch_that_is_neither_on_nor_off(table: str, name: str, value: object) -> None:
    with pytest.raises(errors.ConfigError, match=f"{table}.options.{name} = .* neither on nor off"):
        switched(table, name, value)


def test_numbers_may_be_tomls_own() -> None:
    assert switched("cuda", "gpu_mem_limit", 1 << 31) == "2147483648"
    assert switched("tensorrt", "trt_builder_optimization_level", 5) == "5"
    with pytest.raises(errors.ConfigError, match="options"):
        switched("cuda", "gpu_mem_limit", 1.5)


def test_a_graph_and_a_least_share_are_the_runners() -> None:
    changes = {
        "cuda": config.Cuda(graph=True),
        "placement": config.Placement(least_nodes=0.95),
    }
    options = cuda_options(fake_job.target("cuda").model_copy(update=changes))
    assert options["runner.cuda_graph"] == "1"
    assert options["runner.least_nodes"] == "0.9500"


def test_profiles_precision_and_key() -> None:
    options = told("fp16")
    assert options["provider.trt_profile_min_shapes"] == "x:1x4"
    assert options["provider.trt_profile_opt_shapes"] == "x:2x4"
    assert options["provider.trt_profile_max_shapes"] == "x:8x4"
    assert options["provider.trt_fp16_enable"] == "True"
    assert len(options["runner.engine_key"]) == 64
    assert "provider.trt_int8_enable" in told("int8")
    assert "provider.trt_fp16_enable" not in told()


@given(st.sampled_from(module.TENSORRT), st.sampled_from(["0", "1"]))
def test_every_option_is_in_the_key(name: str, value: str) -> None:
    options = told(tensorrt=config.TensorRt(options={name: value}))
    switch = name in module.SWITCHES["tensorrt"]
    assert options[f"provider.{name}"] == (str(value == "1") if switch else value)
    assert options["runner.engine_key"] != told()["runner.engine_key"]


def test_another_release_of_onnx_runtime_is_another_key() -> None:
    """It may cut the graph into other parts, and calls them the same."""
    runtime = fake_job.target("tensorrt").runtime.model_copy(update={"version": "1.32.0"})
    assert told(runtime=runtime)["runner.engine_key"] != told()["runner.engine_key"]


@pytest.mark.parametrize(("kind", "name"), module.ENABLED.items())
def test_what_the_model_needs_cannot_be_switched_off(kind: str, name: str) -> None:
    """A network with fp16 tensors or Q/DQ has no kernels without the option."""
    for value, good in (("1", True), ("True", True), ("0", False), ("False", False)):
        wish = config.TensorRt(options={name: value})
        assert told(tensorrt=wish)[f"provider.{name}"] == str(good)
        if good:
            assert told(kind, tensorrt=wish)[f"provider.{name}"] == "True"
            continue
        with pytest.raises(errors.ConfigError, match=f"{name} = 'False', and the model needs it"):
            told(kind, tensorrt=wish)


def unread(target: config.Target) -> None:
    """All that bundles of these recipes are told; none is asked for."""
    made = {
        "tensorrt": lambda: tensorrt_options(
            target, "source", "a" * 64, {"profiles": PROFILES, "kinds": []}
        ),
        "tensorrt-plan": lambda: plan_options(target),
        "tensorrt-rtx": lambda: rtx_options(target, "source", "a" * 64),
    }
    made[target.name]()


OPTION = {"device_id": "0"}


@pytest.mark.parametrize(
    ("name", "changes", "key"),
    [
        ("tensorrt", {"cuda": config.Cuda(options=OPTION)}, "options of [cuda]"),
        ("tensorrt", {"tensorrt": config.TensorRt(builder="python")}, "builder of [tensorrt]"),
        (
            "tensorrt",
            {"tensorrt": config.TensorRt(compute_capabilities=("8.6",))},
            "compute_capabilities of [tensorrt]",
        ),
        ("tensorrt-plan", {"cuda": config.Cuda(options=OPTION)}, "options of [cuda]"),
        ("tensorrt-rtx", {"cuda": config.Cuda(options=OPTION)}, "options of [cuda]"),
        ("tensorrt-rtx", {"tensorrt": config.TensorRt(options=OPTION)}, "options of [tensorrt]"),
        ("tensorrt-rtx", {"tensorrt": config.TensorRt(builder="python")}, "builder of [tensorrt]"),
    ],
)
def test_keys_that_nothing_reads_are_refused(name: str, changes: dict[str, Any], key: str) -> None:
    target = fake_job.target(name)
    unread(target)
    with pytest.raises(errors.ConfigError, match="does not read") as caught:
        unread(target.model_copy(update=changes))
    assert caught.value.message.endswith(key)


def test_engines_may_be_captured_as_graphs_too() -> None:
    changes = {"cuda": config.Cuda(graph=True)}
    plan = fake_job.target("tensorrt-plan")
    assert plan_options(plan) == {}
    assert plan_options(plan.model_copy(update=changes)) == {"runner.cuda_graph": "1"}
    rtx = rtx_options(fake_job.target("tensorrt-rtx").model_copy(update=changes), "fp16", "a" * 64)
    assert rtx["runner.cuda_graph"] == "1"
    assert len(rtx["runner.engine_key"]) == 64


def test_what_placement_says_is_not_in_the_key() -> None:
    """It is judged after the run; engines are the same."""
    placed = told(placement=config.Placement(least_nodes=0.5))
    assert placed["runner.engine_key"] == told()["runner.engine_key"]


def test_an_ep_context_is_passed_through() -> None:
    said = {"trt_dump_ep_context_model": "1", "trt_ep_context_embed_mode": "0"}
    options = told(tensorrt=config.TensorRt(options=said))
    assert options["provider.trt_dump_ep_context_model"] == "True"
    assert options["provider.trt_ep_context_embed_mode"] == "0"


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("trt_engine_cache_path", "--cache"),
        ("trt_profile_min_shapes", "[tensorrt.profiles]"),
        ("trt_cuda_graph_enable", "[cuda]"),
        ("trt_min_subgraph_sise", "did you mean 'trt_min_subgraph_size'?"),
    ],
)
def test_options_that_are_not_said_there(name: str, remedy: str) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        told(tensorrt=config.TensorRt(options={name: "1"}))
    assert remedy in caught.value.remedy
    assert f"tensorrt.options.{name}" in caught.value.message


def test_a_dry_run_says_that_it_does_not_know() -> None:
    target = fake_job.target("tensorrt")
    known = {"profiles": PROFILES, "kinds": []}
    assert tensorrt_options(target, "source", PENDING, known)["runner.engine_key"] == PENDING
    assert rtx_options(fake_job.target("tensorrt-rtx"), "source", PENDING) == {
        "runner.engine_key": PENDING
    }
    unknown = tensorrt_options(target, "source", "a" * 64, PendingFacts())
    assert unknown["runner.engine_key"] == unknown["provider.trt_profile_min_shapes"] == PENDING


def test_tables_have_no_option_twice() -> None:
    for table in (module.CUDA, module.TENSORRT):
        assert list(table) == sorted(set(table))
        assert not set(table) & set(module.ELSEWHERE)
