"""Target, project and device files: TOML in, frozen and checked values out.

Unknown keys are errors that name the file, the key path and the nearest known key. The JSON
Schemas that ``edge schema`` prints come from the same models, so nothing is kept twice.
"""

from edge.config.devices import DevicesFile, DeviceSpec
from edge.config.engines import CoreMl, Cuda, OpenVino, Placement, Provider, TensorRt
from edge.config.fields import BundlePath, Dim, Level, Name, Sha256, Strict
from edge.config.precision import (
    PRECISIONS,
    Broken,
    Choice,
    Fp16,
    Int8,
    Int8Dynamic,
    Precision,
    Tolerance,
    WeightOnly,
)
from edge.config.project import BenchSpec, Defaults, InputSpec, ModelSpec, ProjectFile
from edge.config.read import (
    SCHEMAS,
    check,
    merge,
    read_devices,
    read_project,
    read_target,
    read_toml,
    slug,
)
from edge.config.target import (
    App,
    Budget,
    Optimization,
    OrtFormat,
    Pin,
    Reduced,
    Runner,
    Runtime,
    RuntimeFile,
    Target,
)

__all__ = [
    "PRECISIONS",
    "SCHEMAS",
    "App",
    "BenchSpec",
    "Broken",
    "Budget",
    "BundlePath",
    "Choice",
    "CoreMl",
    "Cuda",
    "Defaults",
    "DeviceSpec",
    "DevicesFile",
    "Dim",
    "Fp16",
    "InputSpec",
    "Int8",
    "Int8Dynamic",
    "Level",
    "ModelSpec",
    "Name",
    "OpenVino",
    "Optimization",
    "OrtFormat",
    "Pin",
    "Placement",
    "Precision",
    "ProjectFile",
    "Provider",
    "Reduced",
    "Runner",
    "Runtime",
    "RuntimeFile",
    "Sha256",
    "Strict",
    "Target",
    "TensorRt",
    "Tolerance",
    "WeightOnly",
    "check",
    "merge",
    "read_devices",
    "read_project",
    "read_target",
    "read_toml",
    "slug",
]
