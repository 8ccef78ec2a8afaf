"""Target files: a platform, and what is wanted there. Data, never code."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from edge.config.engines import CoreMl, Cuda, OpenVino, Placement, Provider, TensorRt
from edge.config.fields import BundlePath, Level, Name, Sha256, Strict
from edge.config.precision import (
    LOSSY_DB,
    Broken,
    Choice,
    Fp16,
    Int8,
    Int8Dynamic,
    Lossy,
    LossyPrecision,
    Precision,
    Tolerance,
    WeightOnly,
)


class Pin(Strict):
    """A file that is fetched once into the store, always against a SHA-256.

    ``package`` is ``pypi:WHEEL-FILE-NAME``, ``npm:NAME@VERSION``, ``debian:POOL-PATH``,
    ``https://...`` or ``file:PATH``; ``member`` is the file's path inside that archive.
    """

    package: Annotated[str, Field(pattern=r"^(pypi|npm|debian|https|file):\S+$")]
    package_sha256: Sha256 | None = None
    member: str | None = None
    sha256: Sha256


class RuntimeFile(Pin):
    """A pinned file of the runtime and its place in the bundle."""

    path: BundlePath


class Reduced(Strict):
    """How ONNX Runtime is built with only the operators and types that the project needs.

    ``minimal``: ORT-format models only; ``extended`` adds what execution providers and saved
    optimizations need. ``types``: drop unused types of operators too. Without ``exceptions`` an
    error ends the process. ``strings``: keep string tensors. ``config`` is CMake's build type.
    ``kernels`` (Linux): ``fast`` compiles kernels as the full library does, whatever ``config``
    is, with AVX-512, which a minimal build leaves out.
    ``source``: an archive of the sources by its content; None: the release's git tag.
    ``dependencies``: ``pinned`` ones of ``edge/tools/ort_dependencies.toml``, or what ONNX
    Runtime's own build fetches. ``files``: of the release, that go with what is built;
    ``full``: the full library that sizes are compared with.
    """

    minimal: Literal["base", "extended"] = "extended"
    types: bool = True
    exceptions: bool = True
    strings: bool = True
    lto: bool = False
    config: Literal["MinSizeRel", "Release"] = "MinSizeRel"
    kernels: Literal["fast", "small"] = "fast"
    providers: tuple[Name, ...] = ()
    source: Pin | None = None
    dependencies: Literal["pinned", "fetched"] = "fetched"
    files: tuple[RuntimeFile, ...] = ()
    full: Pin | None = None


# Runtimes that are none of ONNX Runtime's builds.
ENGINES = ("openvino", "tensorrt", "tensorrt-rtx", "coreml")
_EXACT = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,98}(\[[a-z0-9,_-]{1,99}\])?==[0-9][0-9A-Za-z.+]*$"
Requirement = Annotated[str, Field(pattern=_EXACT)]


class Runtime(Strict):
    """The runtime that the target's devices load, by name and exact version.

    ``files`` are in every bundle, ``embeddable`` with ``--embed-runtime``; ``archive_sha256`` is
    the SHA-256 of the official archive that an app's build fetches itself. ``python`` are the
    packages that the bundle's Python runner imports on the device. ``reduced`` says how it is
    built where it is built here, which a runtime without ``prebuilt`` form always is.
    """

    name: Literal[
        "onnxruntime",
        "onnxruntime-android",
        "onnxruntime-swift",
        "onnxruntime-web",
        "onnxruntime-gpu",
        "onnxruntime-openvino",
        "onnxruntime-directml",
        "openvino",
        "tensorrt",
        "tensorrt-rtx",
        "coreml",
    ]
    version: Annotated[str, Field(pattern=r"^\d+(\.\d+){1,3}$")]
    coordinates: str = ""
    python: tuple[Requirement, ...] = ()
    archive_sha256: Sha256 | None = None
    files: tuple[RuntimeFile, ...] = ()
    embeddable: tuple[RuntimeFile, ...] = ()
    prebuilt: bool = True
    reduced: Reduced = Reduced()

    @property
    def onnxruntime(self) -> str:
        """The release of ONNX Runtime; empty for engines that are none."""
        return "" if self.name in ENGINES else self.version


class Optimization(Strict):
    """How far the graph is optimized offline.

    ``basic`` is neutral, ``extended`` fuses for any CPU, ``all`` may bake in this CPU's layout.
    """

    level: Level = "extended"


class OrtFormat(Strict):
    """Options of onnxruntime's ORT-format converter."""

    style: Literal["Fixed", "Runtime"] = "Fixed"
    target_platform: Literal["arm", "amd64"] = "arm"
    level: Literal["basic", "extended", "all"] = "all"


class Budget(Strict):
    """Upper limits in bytes; None is no limit."""

    artifact_bytes: Annotated[int, Field(gt=0)] | None = None
    runtime_bytes: Annotated[int, Field(gt=0)] | None = None
    total_bytes: Annotated[int, Field(gt=0)] | None = None
    total_compressed_bytes: Annotated[int, Field(gt=0)] | None = None


class Runner(Strict):
    """The C runner of the target: the triple it is built for, and the pinned C API header."""

    triple: str
    header: Pin


class App(Strict):
    """What the app template needs to know."""

    template: Name
    application_id: Annotated[str, Field(pattern=r"^[A-Za-z]\w*(\.[A-Za-z]\w*)+$")] = (
        "dev.edgewright.bench"
    )
    abis: Annotated[
        tuple[Literal["arm64-v8a", "armeabi-v7a", "x86", "x86_64"], ...], Field(min_length=1)
    ] = ("arm64-v8a",)
    min_sdk: Annotated[int, Field(ge=21, le=99)] = 24
    ios_deployment_target: str = "15.1"


class Target(Strict):
    """One target: a platform and what is wanted there. Data, never code.

    ``precision``: ``source`` is the model's own, ``auto`` the best that ``choice`` allows;
    ``fp16`` to ``weight_only`` are their options, ``broken`` says what the runtime
    gets wrong.
    """

    name: Name
    description: str
    recipe: Name
    platform: Literal[
        "linux-x64", "linux-arm64", "linux-armhf", "win-x64", "android", "ios", "browser"
    ]
    dims: Literal["bound", "symbolic"] = "bound"
    tools: tuple[str, ...] = ()
    requires: dict[str, str] = {}
    runtime: Runtime
    optimization: Optimization = Optimization()
    ort_format: OrtFormat = OrtFormat()
    provider: Provider = "CPUExecutionProvider"
    placement: Placement = Placement()
    openvino: OpenVino = OpenVino()
    cuda: Cuda = Cuda()
    tensorrt: TensorRt = TensorRt()
    coreml: CoreMl = CoreMl()
    runner: Runner | None = None
    app: App | None = None
    precision: Precision | Literal["auto"] = "source"
    fp16: Fp16 = Fp16()
    int8: Int8 = Int8()
    int8_dynamic: Int8Dynamic = Int8Dynamic()
    weight_only: WeightOnly = WeightOnly()
    choice: Choice = Choice()
    broken: tuple[Broken, ...] = ()
    tolerance: Tolerance = Tolerance()
    tolerances: dict[LossyPrecision, Lossy] = {}
    budget: Budget = Budget()

    def tolerance_of(self, precision: Precision) -> Tolerance:
        """The tolerance that artifacts of a precision are held to.

        ``tolerance`` is for the source's own; others have ``tolerances``, else a limit on noise.
        """
        if precision == "source":
            return self.tolerance
        usual = LOSSY_DB[precision]
        if self.precision == "auto" and self.choice.measures_loss:
            # What the user limits the loss by holds, and not our own idea of it as well.
            usual = self.choice.min_sqnr or 0.0
        return self.tolerances.get(precision, Lossy()).over(usual)

    def why_broken(self, precision: Precision) -> str:
        """Why the target's release cannot run artifacts of a precision; empty when it can."""
        version = self.runtime.version
        found = (b.why for b in self.broken if b.precision == precision and b.concerns(version))
        return next(found, "")
