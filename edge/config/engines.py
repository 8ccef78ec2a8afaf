"""What a target says of engines other than plain ONNX Runtime on the CPU."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from edge.config.fields import Dim, Strict

# Names of ONNX Runtime's execution providers, and of engines that are none: OpenVINO with its
# device, TensorRT, TensorRT for RTX, Core ML.
Provider = Literal[
    "CPUExecutionProvider",
    "CUDAExecutionProvider",
    "TensorrtExecutionProvider",
    "OpenVINOExecutionProvider",
    "DmlExecutionProvider",
    "openvino:CPU",
    "openvino:GPU",
    "openvino:NPU",
    "tensorrt",
    "tensorrt-rtx",
    "coreml",
]
Share = Annotated[float, Field(ge=0, le=1)]
OptionName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.]{0,99}$")]


def _option_text(value: Any) -> Any:
    """TOML's booleans and whole numbers as the text that options are."""
    return str(int(value)) if isinstance(value, int) else value


OptionValue = Annotated[
    str,
    Field(pattern=r"^[^\t\r\n]{0,4000}$"),
    BeforeValidator(_option_text, json_schema_input_type=str | bool | int),
]
ComputeCapability = Annotated[str, Field(pattern=r"^[0-9]{1,2}\.[0-9]$")]


class OpenVino(Strict):
    """How OpenVINO compiles and quantizes; names and values are OpenVINO's and NNCF's.

    ``inference_precision`` is always set: the default is bf16 or fp16 where a CPU has it, which
    moves recurrent models by up to 0.3 (snakers4/silero-vad#779). ``streams`` None: as ``hint``
    decides. ``cache``: compiled models are kept on the device. ``origin``: what the IR is made
    of, the canonical ONNX or the framework's own model; ``auto`` tries both.
    ``subset_size``: calibration samples that NNCF takes at most.
    """

    hint: Literal["LATENCY", "THROUGHPUT", "none"] = "LATENCY"
    streams: Annotated[int, Field(ge=1, le=1024)] | None = None
    inference_precision: Literal["f32", "f16", "bf16"] = "f32"
    cache: bool = True
    origin: Literal["auto", "canonical", "framework"] = "auto"
    preset: Literal["performance", "mixed"] = "mixed"
    subset_size: Annotated[int, Field(ge=1, le=100_000)] = 300


class Cuda(Strict):
    """``graph``: runs are captured as one CUDA graph. ``options``: provider options.

    Booleans of options may be TOML's own; a text is handed on as it is.
    """

    graph: bool = False
    options: dict[OptionName, OptionValue] = {}


class TensorRt(Strict):
    """How TensorRT builds engines.

    ``profiles``: least, usual and largest size of each symbolic dimension that stays open
    (``dims = "symbolic"``); a symbol without one has the size of the golden samples.
    ``compute_capabilities`` are what ahead-of-time engines are made for (none: TensorRT-RTX's
    own choice, Ampere and newer). ``builder`` makes native plans on a GPU host. ``options``:
    options of the provider.
    """

    profiles: dict[str, tuple[Dim, Dim, Dim]] = {}
    compute_capabilities: tuple[ComputeCapability, ...] = ()
    builder: Literal["trtexec", "python"] = "trtexec"
    options: dict[OptionName, OptionValue] = {}

    @model_validator(mode="after")
    def _ordered(self) -> TensorRt:
        for symbol, (least, usual, most) in self.profiles.items():
            if not least <= usual <= most:
                raise ValueError(f"the profile of {symbol} is not in order: least, usual, largest")
        return self


class CoreMl(Strict):
    """How Core ML packages are made and run; names and values are Apple's.

    ``minimum_deployment_target``: the oldest system that has to load them; 8-bit weights and
    lookup tables need iOS16, 4-bit weights with a scale a block iOS18. ``compute_units``: where
    they may run. ``palettize``: bits of a lookup table, which takes the place of scales:
    8 or 6 in ``int8-weights``, 4 in ``int4-weights``; the other one has scales under ``auto``, and
    is refused where it is asked for. ``native``: a bundle for another runtime
    (``ios``) has the package as well. ``origin``: what packages are made of, as for OpenVINO; here
    by default the canonical ONNX alone, whose package was as small or smaller for all networks
    tried but a GRU (docs/coreml.md), while ``auto`` makes and runs two.
    """

    minimum_deployment_target: Literal["iOS15", "iOS16", "iOS17", "iOS18"] = "iOS16"
    compute_units: Literal["ALL", "CPUOnly", "CPUAndGPU", "CPUAndNeuralEngine"] = "ALL"
    palettize: Literal[4, 6, 8] | None = None
    native: bool = True
    origin: Literal["auto", "canonical", "framework"] = "canonical"


class Placement(Strict):
    """The least share of nodes, and of their time, that the provider asked for must run."""

    least_nodes: Share = 1.0
    least_time: Share = 1.0
