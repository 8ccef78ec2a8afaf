"""An engine of TensorRT-RTX ahead of time: built here, without a GPU, for GPUs that are named.

The network is strongly typed: fp16 comes from the fp16 model. TF32, which rounds fp32 products to
10 bits, is off. Two builds give the same bytes: no kernel is timed on a GPU here, and see
:func:`edge.convert.rtx_builder.with_fresh_memory`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors
from edge.convert import rtx_builder, tensorrt_profiles
from edge.convert.profiles import Profile
from edge.convert.rtx_builder import Session
from edge.step import Facts, step

if TYPE_CHECKING:
    import tensorrt_rtx as trt

ENGINE = "engine.rtx"
MAGIC = b"vtrt"
# What an engine runs on that was built for no GPU by name (NVIDIA's documentation of
# TensorRT-RTX, "CPU-Only AOT"; Turing has to be asked for).
LEAST = "8.0"
_MEMBER = re.compile(r"SM([0-9]+)([0-9])")


@step(version=1, tools=("onnx", "numpy", "tensorrt-rtx"), timeout=3600, extra="rtx")
def rtx_engine(out: Path, *, model: Path, profiles: Path, compute_capabilities: list[str]) -> Facts:
    """``engine.rtx`` of a model with the profiles of ``tensorrt_profiles``.

    ``compute_capabilities`` like "8.6" are the GPUs that it is built for; without any, TensorRT's
    own choice: Ampere and newer. Facts: ``tensorrt_rtx`` (release), ``compute_capabilities``,
    ``layers``, ``warnings`` (the first 20 messages, each once).

    Raises :class:`errors.ModelRefused` with TensorRT's own first reason, and
    :class:`errors.ConfigError` for a compute capability that this release cannot build for.
    """
    data, facts = rtx_builder.with_fresh_memory(
        lambda: _built(model.read_bytes(), tensorrt_profiles.read(profiles), compute_capabilities)
    )
    (out / ENGINE).write_bytes(data)
    return facts


def _built(
    data: bytes, profiles: Sequence[Profile], capabilities: list[str]
) -> tuple[bytes, Facts]:
    """The engine of a serialized model, and the step's facts."""
    session = Session()
    members = _members(capabilities)
    if not session.parser.parse(data):
        raise session.refused("parse")
    layers = session.network.num_layers
    config = _config(session, members)
    _add_profiles(session, config, profiles)
    made = session.builder.build_serialized_network(session.network, config)
    if made is None:
        raise session.refused("build")
    engine = bytes(made)
    if not engine.startswith(MAGIC):
        raise errors.StepFailed("TensorRT-RTX gave something that is no engine")
    warned = [rtx_builder.line(text) for kind, text in session.log.messages if kind == "WARNING"]
    return engine, {
        "tensorrt_rtx": rtx_builder.version(),
        "compute_capabilities": sorted(capabilities, key=float),
        "layers": layers,
        "warnings": list(dict.fromkeys(warned))[:20],
    }


def _members(capabilities: Sequence[str]) -> list[Any]:
    """The builder's names of compute capabilities: "12.0" is SM120."""
    import tensorrt_rtx as trt

    members = trt.ComputeCapability.__members__
    known = {f"{m[1]}.{m[2]}": members[name] for name in members if (m := _MEMBER.fullmatch(name))}
    for each in capabilities:
        if each not in known:
            raise errors.ConfigError(
                f"TensorRT-RTX {rtx_builder.version()} builds no engine for the compute "
                f"capability {each}",
                remedy=f"tensorrt.compute_capabilities: {', '.join(sorted(known, key=float))}",
            )
    return [known[each] for each in sorted(capabilities, key=float)]


def _config(session: Session, members: Sequence[Any]) -> trt.IBuilderConfig:
    import tensorrt_rtx as trt

    config = session.builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)
    if members:
        config.num_compute_capabilities = len(members)
    for place, member in enumerate(members):
        if not config.set_compute_capability(member, place):
            raise session.refused(f"be set to {member.name} for")
    return config


def _add_profiles(session: Session, config: trt.IBuilderConfig, found: Sequence[Profile]) -> None:
    """One profile over all open inputs; a model without any needs none."""
    open_ones = {each.name: each for each in found if each.dynamic}
    inputs = {session.network.get_input(n).name for n in range(session.network.num_inputs)}
    if not open_ones:
        return
    profile = session.builder.create_optimization_profile()
    for name in sorted(inputs & set(open_ones)):
        each = open_ones[name]
        try:
            profile.set_shape(name, each.least, each.usual, each.most)
        except ValueError as error:
            raise session.refused(f"hold the profile of {name} of") from error
    if config.add_optimization_profile(profile) < 0:
        raise session.refused("hold the profiles of")
