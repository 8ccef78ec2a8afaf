"""Project files (``edge.toml``): the models, and what the command line takes by default."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, model_validator

from edge.config.fields import Dim, Name, Strict

Symbol = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,63}$")]


class InputSpec(Strict):
    """What the user says of one input: dtype by numpy's name, shape, values' range.

    A name in the shape is a symbolic dimension: exported as such, bound by the model's ``dims``.
    """

    dtype: str | None = None
    shape: tuple[Dim | Symbol, ...] | None = None
    range: tuple[float, float] | None = None
    constant: bool | int | float | None = None

    @model_validator(mode="after")
    def _ordered(self) -> InputSpec:
        if self.range and not self.range[0] <= self.range[1]:
            raise ValueError("range must be [low, high] with low <= high")
        return self


class ModelSpec(Strict):
    """One model of the project.

    ``source`` is a file (or a SavedModel's folder), ``pkg:package/path/in/it``, or
    ``module:callable`` of Python code below the project's folder. ``inputs`` are in the order of
    the model's own. ``outputs`` names what the export calls otherwise. ``opset`` is the highest
    ai.onnx opset wanted. ``signature`` is one of a SavedModel's. ``files`` are read by the source's
    code in ways that cannot be seen. ``environment``: exact requirements (``tf2onnx==1.17.0``) of
    an environment that the source alone runs in. ``samples`` is a ``.npz``, ``calibration`` a
    ``.npz`` or a folder of them (none: the samples), of which ``calibration_count`` are taken,
    evenly spread. ``accuracy`` is ``module:callable`` of the
    user's metric, higher is better (see ``edge.convert.accuracy``).
    """

    source: str
    name: Name = "model"
    version: Name = "0"
    inputs: dict[str, InputSpec] = {}
    outputs: tuple[str, ...] = ()
    dims: dict[str, Dim] = {}
    opset: Annotated[int, Field(ge=7, le=99)] | None = None
    signature: str = ""
    files: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    samples: str | None = None
    sample_count: Annotated[int, Field(ge=1, le=100)] = 3
    seed: Annotated[int, Field(ge=0)] = 0
    calibration: str | None = None
    calibration_count: Annotated[int, Field(ge=1, le=10_000)] = 200
    accuracy: str | None = None


class Defaults(Strict):
    """What the command line takes when nothing is said."""

    output: str = "dist"
    targets: tuple[Name, ...] = ()


class BenchSpec(Strict):
    """How long a measurement runs; counts are minima, times in seconds."""

    warmup: Annotated[int, Field(ge=0)] = 3
    iterations: Annotated[int, Field(ge=1)] = 100
    min_seconds: Annotated[float, Field(ge=0)] = 5.0
    max_seconds: Annotated[float, Field(gt=0)] = 60.0
    threads: Annotated[int, Field(ge=1)] = 1
    repeats: Annotated[int, Field(ge=1, le=20)] = 3


class ProjectFile(Strict):
    """``edge.toml``. ``[model]`` is the only model, or ``[models.NAME]`` one of several."""

    model: ModelSpec | None = None
    models: dict[Name, ModelSpec] = {}
    defaults: Defaults = Defaults()
    targets: dict[Name, dict[str, Any]] = {}
    bench: BenchSpec = BenchSpec()

    @model_validator(mode="after")
    def _one_way(self) -> ProjectFile:
        if self.model and self.models:
            raise ValueError("say [model] or [models.NAME], not both")
        return self

    def all_models(self) -> tuple[ModelSpec, ...]:
        """Every model of the project; a table's name is the model's name."""
        named = (spec.model_copy(update={"name": name}) for name, spec in self.models.items())
        return (self.model,) if self.model else tuple(named)
