"""The executor against PyTorch, through coremltools' own converter.

This project's frontend and executor could err alike; here Apple says what a network is made of.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from edge.convert import coremltools_library, mil_executor

pytestmark = pytest.mark.filterwarnings("ignore")  # torch.jit's deprecation, coremltools' own


class Bilinear(nn.Module):
    """Both grids."""

    def forward(self, x: Any) -> Any:
        """Two sizes of one image."""
        up = nn.functional.interpolate
        return (
            up(x, scale_factor=2.0, mode="bilinear", align_corners=False),
            up(x, scale_factor=2.0, mode="bilinear", align_corners=True),
            up(x, scale_factor=3.0, mode="nearest"),
        )


class Sequence(nn.Module):
    """A recurrent layer, all steps."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Any) -> Any:
        """Only the first output: states come as tuples."""
        return self.layer(x)[0]


IMAGE, ROWS = (2, 4, 9, 8), (2, 5, 6)
NETWORKS: dict[str, tuple[Any, tuple[int, ...]]] = {
    "conv": (nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 2), (1, 2), groups=2), IMAGE),
    "conv1d": (nn.Conv1d(5, 3, 3, padding=1), ROWS),
    "conv3d": (nn.Conv3d(1, 2, 3, padding=1), (1, 1, 4, 5, 6)),
    "transposed": (nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2), IMAGE),
    "max_pool": (nn.MaxPool2d(3, 2, 1), IMAGE),
    "avg_pool": (nn.AvgPool2d(3, 2, 1), IMAGE),
    "avg_pool_inside": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "batch_norm": (nn.BatchNorm2d(4), IMAGE),
    "instance_norm": (nn.InstanceNorm2d(4, affine=True), IMAGE),
    "group_norm": (nn.GroupNorm(2, 4), IMAGE),
    "layer_norm": (nn.LayerNorm(6), ROWS),
    "pixel_shuffle": (nn.PixelShuffle(2), IMAGE),
    "gelu": (nn.Sequential(nn.Linear(6, 6), nn.GELU(), nn.GELU("tanh")), ROWS),
    "activations": (nn.Sequential(nn.SiLU(), nn.Hardswish(), nn.ELU(0.5), nn.PReLU(5)), ROWS),
    "lstm": (Sequence(nn.LSTM(6, 7, batch_first=True)), ROWS),
    "bilstm": (Sequence(nn.LSTM(6, 7, batch_first=True, bidirectional=True)), ROWS),
    "reflect": (nn.ReflectionPad2d((1, 2, 3, 0)), IMAGE),
    "replicate": (nn.ReplicationPad2d((1, 2, 3, 0)), IMAGE),
    "bilinear": (Bilinear(), IMAGE),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_the_executor_agrees_with_pytorch(name: str) -> None:
    ct = coremltools_library.module("torch")
    network, shape = NETWORKS[name]
    network = network.eval()
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad(), coremltools_library.silent():
        wanted = network(x)
        converted = ct.convert(
            torch.jit.trace(network, x),  # type: ignore[no-untyped-call]
            inputs=[ct.TensorType(name="x", shape=shape)],
            compute_precision=ct.precision.FLOAT32,
            minimum_deployment_target=ct.target.iOS16,
            skip_model_load=True,
        )
        program = converted._mil_program
    found = list(mil_executor.run(program, {"x": x.numpy()}).outputs.values())
    for one_found, one_wanted in zip(
        found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True
    ):
        np.testing.assert_allclose(one_found, one_wanted.numpy(), rtol=1e-4, atol=2e-6)
