"""The user's metric on the source framework's own model: what artifacts are held against."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge.convert.accuracy import scored
from edge.sources import onnx_file, sklearn_estimator, tensorflow_model, torch_module
from edge.sources.framework import TRUST, Runner, named
from edge.step import Facts, step

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Options = dict[str, Any]


def _facts(run: Runner, metric: Path, score: str, names: list[str]) -> Facts:
    def by_name(case: Mapping[str, Array]) -> dict[str, Array]:
        return named(run(case), names)

    return {"accuracy": scored(by_name, metric, score)}


@step(version=1, tools=torch_module.TOOLS, timeout=7200, extra="torch", aside=TRUST)
def torch_accuracy(  # noqa: PLR0913 - the contract of every framework's step
    out: Path, *, source: Path, factory: str, options: Options, metric: Path, score: str,
    reads: Options, names: list[str],
) -> Facts:  # fmt: skip
    """Facts: ``accuracy`` of a PyTorch model; ``names`` are its outputs' in order."""
    del out, reads
    return _facts(torch_module.runner(source, factory, options), metric, score, names)


@step(version=1, tools=tensorflow_model.TOOLS, timeout=7200, extra="tensorflow", aside=TRUST)
def tensorflow_accuracy(  # noqa: PLR0913 - the contract of every framework's step
    out: Path, *, source: Path, factory: str, options: Options, metric: Path, score: str,
    reads: Options, names: list[str],
) -> Facts:  # fmt: skip
    """Facts: ``accuracy`` of a TensorFlow model."""
    del out, reads
    return _facts(tensorflow_model.runner(source, factory, options), metric, score, names)


@step(version=1, tools=sklearn_estimator.TOOLS, timeout=7200, extra="sklearn", aside=TRUST)
def sklearn_accuracy(  # noqa: PLR0913 - the contract of every framework's step
    out: Path, *, source: Path, factory: str, options: Options, metric: Path, score: str,
    reads: Options, names: list[str],
) -> Facts:  # fmt: skip
    """Facts: ``accuracy`` of an estimator."""
    del out, reads
    return _facts(sklearn_estimator.runner(source, factory, options), metric, score, names)


@step(version=1, tools=("onnx", "onnxruntime", "numpy"), timeout=7200)
def onnx_accuracy(  # noqa: PLR0913 - the contract of every framework's step
    out: Path, *, source: Path, factory: str, options: Options, metric: Path, score: str,
    reads: Options, names: list[str],
) -> Facts:  # fmt: skip
    """Facts: ``accuracy`` of an ``onnx.ModelProto`` that a factory returns."""
    del out, reads
    return _facts(onnx_file.runner(source, factory, options), metric, score, names)
