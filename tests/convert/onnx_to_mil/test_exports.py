"""What the exporters of PyTorch and Keras make of networks, against the frameworks themselves."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from edge.convert import mil_executor, onnx_to_mil
from tests.convert.onnx_to_mil import networks

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporters' and TensorFlow's own


def outputs(model: onnx.ModelProto, arrays: list[Any]) -> list[Any]:
    made = onnx_to_mil.convert(model)
    pairs = zip(made.inputs, arrays, strict=True)
    feeds = {port.name: array.astype(port.held) for port, array in pairs}
    found = mil_executor.run(made.program, feeds).outputs
    return [found[port.name] for port in made.outputs]


@pytest.mark.parametrize(
    ("name", "opset"),
    [*((name, 20) for name in networks.NETWORKS), ("encoder", 18), ("lstm", 23), ("decoder", 23)],
)
def test_pytorch(name: str, opset: int) -> None:
    network, examples = networks.NETWORKS[name]()
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            network, examples, dynamo=True, opset_version=opset, verbose=False, external_data=False
        )
        wanted = network(*examples)
    assert program is not None
    found = outputs(program.model_proto, [each.numpy() for each in examples])
    for one_wanted, one_found in zip(networks.flat(wanted), found, strict=True):
        np.testing.assert_allclose(one_found, one_wanted.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.process  # h5py asks `uname` for the processor
def test_keras() -> None:
    model, wanted, x = networks.keras_cnn()
    np.testing.assert_allclose(outputs(model, [x])[0], wanted, rtol=1e-4, atol=1e-5)
