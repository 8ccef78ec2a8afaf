"""The frameworks that models come from, each with the steps that its file declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from edge.sources import onnx_file, sklearn_estimator, tensorflow_model, torch_module
from edge.step import Step


@dataclass(frozen=True)
class Framework:
    """``export`` writes ``model.onnx``, ``golden`` the outputs that the framework itself gives.

    ``accuracy`` runs the user's metric on the framework's own model.
    """

    title: str
    export: Step
    golden: Step
    accuracy: Step


FRAMEWORKS: Mapping[str, Framework] = {
    "torch": Framework(
        "PyTorch",
        torch_module.export_torch,
        torch_module.torch_golden,
        torch_module.torch_accuracy,
    ),
    "tensorflow": Framework(
        "TensorFlow",
        tensorflow_model.export_tensorflow,
        tensorflow_model.tensorflow_golden,
        tensorflow_model.tensorflow_accuracy,
    ),
    "sklearn": Framework(
        "scikit-learn",
        sklearn_estimator.export_sklearn,
        sklearn_estimator.sklearn_golden,
        sklearn_estimator.sklearn_accuracy,
    ),
    "onnx": Framework(
        "ONNX",
        onnx_file.export_onnx,
        onnx_file.onnx_factory_golden,
        onnx_file.onnx_factory_accuracy,
    ),
}
