"""Options of ONNX Runtime's providers for NVIDIA GPUs: known names, and what a target gives.

The names are those that onnxruntime-gpu 1.31.1 reads, found in its
``libonnxruntime_providers_cuda.so`` and ``libonnxruntime_providers_tensorrt.so``. An unknown name
is an error on the device alone, and there first of all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from edge import config, errors
from edge.convert.tensorrt_key import engine_key
from edge.convert.tensorrt_profiles import shape_options
from edge.job import PENDING

CUDA = (
    "arena_extend_strategy",
    "cudnn_conv1d_pad_to_nc1d",
    "cudnn_conv_algo_search",
    "cudnn_conv_use_max_workspace",
    "device_id",
    "do_copy_in_default_stream",
    "enable_skip_layer_norm_strict_mode",
    "fuse_conv_bias",
    "gpu_mem_limit",
    "prefer_nhwc",
    "sdpa_kernel",
    "tunable_op_enable",
    "tunable_op_max_tuning_duration_ms",
    "tunable_op_tuning_enable",
    "use_ep_level_unified_stream",
    "use_tf32",
)
TENSORRT = (
    "device_id",
    "trt_auxiliary_streams",
    "trt_bf16_enable",
    "trt_build_heuristics_enable",
    "trt_builder_optimization_level",
    "trt_context_memory_sharing_enable",
    "trt_detailed_build_log",
    "trt_dla_core",
    "trt_dla_enable",
    "trt_dump_ep_context_model",
    "trt_dump_subgraphs",
    "trt_engine_hw_compatible",
    "trt_ep_context_embed_mode",
    "trt_ep_context_file_path",
    "trt_extra_plugin_lib_paths",
    "trt_force_sequential_engine_build",
    "trt_force_timing_cache",
    "trt_fp16_enable",
    "trt_int8_enable",
    "trt_layer_norm_fp32_fallback",
    "trt_max_partition_iterations",
    "trt_max_workspace_size",
    "trt_min_subgraph_size",
    "trt_op_types_to_exclude",
    "trt_preview_features",
    "trt_sparsity_enable",
    "trt_tactic_sources",
    "trt_weight_stripped_engine_enable",
)
# Those that are on or off. CUDA's are parsed by the provider, which takes 1 and True; TensorRT's
# by the Python package, which takes True and False alone and throws at 1 (onnxruntime-gpu 1.31.1,
# onnxruntime_pybind_state.cc: "should be 'True' or 'False'").
SWITCHES: Mapping[str, frozenset[str]] = {
    "cuda": frozenset(
        {
            "cudnn_conv1d_pad_to_nc1d",
            "cudnn_conv_use_max_workspace",
            "do_copy_in_default_stream",
            "enable_skip_layer_norm_strict_mode",
            "fuse_conv_bias",
            "prefer_nhwc",
            "tunable_op_enable",
            "tunable_op_tuning_enable",
            "use_ep_level_unified_stream",
            "use_tf32",
        }
    ),
    "tensorrt": frozenset(
        {
            *(name for name in TENSORRT if name.endswith("_enable")),
            "trt_detailed_build_log",
            "trt_dump_ep_context_model",
            "trt_dump_subgraphs",
            "trt_engine_hw_compatible",
            "trt_force_sequential_engine_build",
            "trt_force_timing_cache",
            "trt_layer_norm_fp32_fallback",
        }
    ),
}
WORDS: Mapping[str, tuple[str, str]] = {"cuda": ("0", "1"), "tensorrt": ("False", "True")}
OFF, ON = ("0", "False", "false"), ("1", "True", "true")
# Options that are said elsewhere, and where.
ELSEWHERE = {
    "enable_cuda_graph": "graph of [cuda]",
    "trt_cuda_graph_enable": "graph of [cuda]",
    "trt_engine_cache_enable": "the runner's --cache",
    "trt_engine_cache_path": "the runner's --cache",
    "trt_engine_cache_prefix": "the runner's --cache",
    "trt_timing_cache_enable": "the runner's --cache",
    "trt_timing_cache_path": "the runner's --cache",
    "trt_profile_min_shapes": "[tensorrt.profiles]",
    "trt_profile_opt_shapes": "[tensorrt.profiles]",
    "trt_profile_max_shapes": "[tensorrt.profiles]",
    "trt_int8_calibration_table_name": 'precision = "int8", which calibrates',
    "trt_int8_use_native_calibration_table": 'precision = "int8", which calibrates',
}
# By what the model holds, in a network that is weakly typed, as the provider's are: without them
# fp16 tensors and Q/DQ pairs have no kernels.
ENABLED = {"fp16": "trt_fp16_enable", "int8": "trt_int8_enable"}


def cuda_options(target: config.Target) -> dict[str, str]:
    """What the runner of a CUDA bundle is told.

    TF32, which rounds products of fp32 to 10 bits and is on by default, is off unless the target
    says otherwise: the precision is the model's.
    """
    given = _checked("cuda", target.cuda.options, CUDA)
    options = {"use_tf32": "0", **given}
    return {
        **{f"provider.{name}": value for name, value in options.items()},
        **_runner(target),
    }


def tensorrt_options(
    target: config.Target,
    precision: config.Precision,
    model_sha256: str,
    facts: Mapping[str, Any],
) -> dict[str, str]:
    """What the runner of a bundle for the TensorRT provider is told.

    ``facts`` are those of ``tensorrt_profiles``, with None for what is not known yet.
    ``runner.engine_key`` is what engines on the device are kept under.
    """
    _refuse_unread(target, "cuda.options", "tensorrt.builder", "tensorrt.compute_capabilities")
    given = _checked("tensorrt", target.tensorrt.options, TENSORRT)
    profiles = facts["profiles"]
    options = {**_enabled(given, facts["kinds"] or ()), **given, **shape_options(profiles)}
    key = PENDING
    if model_sha256 != PENDING and profiles is not None:
        key = engine_key(model_sha256, profiles, precision, options, _release(target))
    return {
        **{f"provider.{name}": value for name, value in options.items()},
        **_runner(target),
        "runner.engine_key": key,
    }


def plan_options(target: config.Target) -> dict[str, str]:
    """What the runner of a native plan is told; ``tensorrt.options`` are its builder's."""
    _refuse_unread(target, "cuda.options")
    return _graph(target)


def rtx_options(
    target: config.Target, precision: config.Precision, engine_sha256: str
) -> dict[str, str]:
    """What the runner of a TensorRT-RTX engine is told, which has no options of its own."""
    _refuse_unread(target, "cuda.options", "tensorrt.options", "tensorrt.builder")
    key = engine_sha256
    if key != PENDING:
        key = engine_key(engine_sha256, (), precision, {}, _release(target))
    return {**_graph(target), "runner.engine_key": key}


def _release(target: config.Target) -> str:
    return f"{target.runtime.name} {target.runtime.version}"


def _graph(target: config.Target) -> dict[str, str]:
    return {"runner.cuda_graph": "1"} if target.cuda.graph else {}


def _runner(target: config.Target) -> dict[str, str]:
    least = target.placement.least_nodes
    return {**_graph(target), **({"runner.least_nodes": f"{least:.4f}"} if least < 1 else {})}


def _enabled(given: Mapping[str, str], kinds: Sequence[str]) -> dict[str, str]:
    """The options that the model's types need; one that switches them off is refused."""
    names = [ENABLED[kind] for kind in kinds]
    for name in names:
        if given.get(name, "True") in OFF:
            raise errors.ConfigError(
                f"tensorrt.options.{name} = {given[name]!r}, and the model needs it on",
                remedy="leave it out, or choose another precision",
            )
    return dict.fromkeys(names, "True")


def _refuse_unread(target: config.Target, *keys: str) -> None:
    """A wish that nothing would read is an error, and not overruled without a word.

    Whole tables of engines that a target does not have are refused where it is read.
    """
    for key in keys:
        engine, name = key.split(".")
        said = getattr(target, engine)
        if getattr(said, name) != getattr(type(said)(), name):
            raise errors.ConfigError(
                f"target {target.name}: {target.provider} does not read {name} of [{engine}]",
                remedy="leave it out",
            )


def _checked(table: str, given: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    for name in given:
        if name in ELSEWHERE:
            raise errors.ConfigError(
                f"{table}.options.{name} is not said there", remedy=f"use {ELSEWHERE[name]}"
            )
        if name not in known:
            raise errors.ConfigError(
                f"{table}.options.{name}: onnxruntime-gpu has no such option",
                remedy=errors.did_you_mean(name, known),
            )
    return {name: _switched(table, name, value) for name, value in given.items()}


def _switched(table: str, name: str, value: str) -> str:
    """A value as what reads it takes it; a switch that is neither on nor off is refused."""
    if name not in SWITCHES[table]:
        return value
    if value not in (*OFF, *ON):
        raise errors.ConfigError(
            f"{table}.options.{name} = {value[:100]!r} is neither on nor off",
            remedy="say true or false",
        )
    return WORDS[table][value in ON]
