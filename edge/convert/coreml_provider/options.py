"""Options of ONNX Runtime's CoreML execution provider, and the key of its cache.

Names and values as release 1.29.0 checks them (``coreml_options.cc``,
``coreml_execution_provider.cc``, ``model/host_utils.h``; see docs/coreml-provider.md). Flags are
"1" or not: the provider takes any other value for "0" without a word, so only these two are
accepted here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args, get_type_hints

from edge import errors

RELEASE = "1.29.0"
# Entry of the model's metadata_props; without it the provider takes a hash of the model's path,
# which an app's update does not change: a stale cache.
CACHE_KEY = "COREML_CACHE_KEY"
VALID_CACHE_KEY = re.compile(r"[0-9A-Za-z]{1,64}", re.ASCII)
# Core ML's versions by iOS release; ML Programs need 5.
COREML_OF_IOS = {13: 3, 14: 4, 15: 5, 16: 6, 17: 7, 18: 8}
MLPROGRAM_COREML = 5

ModelFormat = Literal["MLProgram", "NeuralNetwork"]
ComputeUnits = Literal["ALL", "CPUOnly", "CPUAndNeuralEngine", "CPUAndGPU"]
Strategy = Literal["Default", "FastPrediction"]


@dataclass(frozen=True)
class Options:
    """The provider's options; the defaults are those of an app that has nothing to say.

    The provider's own default format is NeuralNetwork, which takes fewer operators and no fp16.
    ``model_cache_directory`` is known on the device only: the app gives it.
    """

    model_format: ModelFormat = "MLProgram"
    compute_units: ComputeUnits = "ALL"
    require_static_input_shapes: bool = False
    enable_on_subgraphs: bool = False
    specialization_strategy: Strategy = "Default"
    profile_compute_plan: bool = False
    allow_low_precision_accumulation_on_gpu: bool = False
    model_cache_directory: str = ""

    @property
    def mlprogram(self) -> bool:
        """Whether partitions become ML Programs."""
        return self.model_format == "MLProgram"

    def provider_options(self) -> dict[str, str]:
        """What the app passes: names and values as the provider reads them, sorted."""
        given = {NAMES[each.name]: getattr(self, each.name) for each in fields(self)}
        said = {name: FLAGS.get(value, value) for name, value in given.items()}
        return {name: said[name] for name in sorted(said) if said[name]}


FLAGS = {False: "0", True: "1"}
NAMES = {
    "model_format": "ModelFormat",
    "compute_units": "MLComputeUnits",
    "require_static_input_shapes": "RequireStaticInputShapes",
    "enable_on_subgraphs": "EnableOnSubgraphs",
    "specialization_strategy": "SpecializationStrategy",
    "profile_compute_plan": "ProfileComputePlan",
    "allow_low_precision_accumulation_on_gpu": "AllowLowPrecisionAccumulationOnGPU",
    "model_cache_directory": "ModelCacheDirectory",
}
FIELDS = {name: field for field, name in NAMES.items()}


def checked(given: Mapping[str, str]) -> Options:
    """Options from the provider's own names and values.

    Raises :class:`errors.ConfigError` for a name or value that the provider would throw on, and
    for a flag that it would take for "0".
    """
    hints = get_type_hints(Options)
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in FIELDS:
            raise errors.ConfigError(
                f"the CoreML provider has no option {name!r}",
                remedy=errors.did_you_mean(name, list(FIELDS)),
            )
        found[FIELDS[name]] = _value(name, value, hints[FIELDS[name]])
    return Options(**found)


def _value(name: str, value: str, kind: Any) -> str | bool:
    if kind is str:
        return value
    known = ("0", "1") if kind is bool else get_args(kind)
    if value not in known:
        raise errors.ConfigError(
            f"the CoreML provider's option {name} cannot be {value!r}",
            remedy=errors.did_you_mean(value, known),
        )
    return value == "1" if kind is bool else value


def coreml_version(ios: str) -> int:
    """The Core ML version of an iOS release such as "15.1"; later ones are 8 to this provider.

    Raises :class:`errors.ConfigError` for a release that has no provider (before iOS 13).
    """
    major = int(match[0]) if (match := re.match(r"\d+", ios)) else 0
    if major < min(COREML_OF_IOS):
        raise errors.ConfigError(
            f"the CoreML provider does not run on iOS {ios!r}", remedy="name iOS 13 or later"
        )
    return COREML_OF_IOS.get(major, max(COREML_OF_IOS.values()))


def is_cache_key(key: str) -> bool:
    """Whether the provider uses the key: 1 to 64 ASCII letters and digits.

    Any other is logged and dropped. Its own message says "less than 64"; it compares with more.
    """
    return VALID_CACHE_KEY.fullmatch(key) is not None


def cache_key(model_sha256: str) -> str:
    """The value of COREML_CACHE_KEY for a model: 64 hexadecimal digits.

    The provider adds format and static shapes to the folder's name itself, but neither the model
    nor the release that converts it: both are in the key. ``model_sha256`` is that of the model
    before the key is written into it.
    """
    return hashlib.sha256(f"onnxruntime {RELEASE} {model_sha256}".encode()).hexdigest()
