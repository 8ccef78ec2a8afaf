"""Small real PyTorch models, trained on scikit-learn's digits, and some that are wrong."""

# torch types a module's call as Any and its attributes as Tensor | Module.
# mypy: disable-error-code="no-any-return, no-untyped-call, arg-type, operator, index, attr-defined"

from __future__ import annotations

import dataclasses
import functools
import os
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from edge import errors
from edge.convert import run_model
from edge.sources import torch_module

REASON = "pip install 'edgewright[torch]'"
if not os.environ.get("CI"):  # under CI their absence is a failure, not a skip
    pytest.importorskip("torch", reason=REASON)
    pytest.importorskip("sklearn", reason="pip install 'edgewright[sklearn]'")
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402, N812 - as its users know it
from torch import nn  # noqa: E402

# An input of most of the small models.
X = {"name": "x", "dtype": "float32", "shape": ["batch", 8]}


def library() -> Any:
    """PyTorch itself; without it the tests that ask are skipped."""
    return torch


@functools.cache
def digits() -> tuple[Any, Any, Any, Any]:
    """(training images, their digits, other images, their digits); images (n, 8, 8) in [0, 1]."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    data = load_digits()
    images = (data.images / 16).astype("float32")
    parts = train_test_split(images, data.target, test_size=0.25, random_state=0)
    train, test, train_y, test_y = map(torch.as_tensor, parts)
    return train, train_y, test, test_y


class Cnn(nn.Module):
    """Convolutions with batch normalization and dropout; images (n, 1, 8, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 12, 3, padding=1), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1), nn.ReLU(), nn.Flatten(),
        )  # fmt: skip
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(24 * 16, 10)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.drop(self.features(image)))


class Lstm(nn.Module):
    """An LSTM over the 8 rows of an image; rows (n, 8, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 48, batch_first=True)
        self.head = nn.Linear(48, 10)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        states, _ = self.lstm(rows)
        return self.head(states[:, -1])


class Transformer(nn.Module):
    """nn.TransformerEncoder over the 8 rows of an image; rows (n, 8, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 32)
        self.positions = nn.Parameter(torch.randn(8, 32) * 0.1)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)
        self.head = nn.Linear(32, 10)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(rows) + self.positions).mean(1))


MODELS: dict[str, tuple[type[nn.Module], tuple[int, ...], int]] = {
    "cnn": (Cnn, (1, 8, 8), 4),
    "lstm": (Lstm, (8, 8), 16),
    "transformer": (Transformer, (8, 8), 10),
}  # fmt: skip


@functools.cache
def trained(name: str) -> nn.Module:
    """A trained model in eval mode, the same one for the whole session; do not change it."""
    make, shape, epochs = MODELS[name]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = make()
        images, numbers, _, _ = digits()
        images = images.reshape(-1, *shape)
        optimizer = torch.optim.Adam(model.parameters(), 3e-3)
        for _ in range(epochs):
            for part in torch.randperm(len(images)).split(64):
                optimizer.zero_grad()
                F.cross_entropy(model(images[part]), numbers[part]).backward()
                optimizer.step()
    torch.set_num_threads(threads)
    return model.eval()


def test_images(name: str) -> tuple[Any, Any]:
    """Images that the model was not trained on, in its shape, and their digits, as numpy."""
    _, _, images, numbers = digits()
    return images.reshape(-1, *MODELS[name][1]).numpy(), numbers.numpy()


test_images.__test__ = False


class Small(nn.Module):
    """One Linear layer, 8 to 4."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x)


class Nested(nn.Module):
    """A Dropout deep inside that was left on."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 4), nn.Sequential(nn.ReLU(), nn.Dropout(0.5)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x)


class Hidden(Small):
    """Functional dropout that eval() cannot switch off."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(self.fc(x), 0.5, training=True)


class HiddenNorm(Small):
    """Functional batch normalization in training mode: it changes its running mean."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.batch_norm(self.fc(x), self.mean, self.var, training=True)


class Branch(nn.Module):
    """Control flow that depends on values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1


@torch.library.custom_op("edgetest::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


class Custom(nn.Module):
    """A custom operator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return twice(x) + 1


class Eigen(nn.Module):
    """An operator without an ONNX form."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.eigh(x @ x.T)[0]


class FixedBatch(nn.Module):
    """Works for one batch size only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.reshape(2, 8) + 1


class Loop(nn.Module):
    """A loop over the batch, for TorchScript."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros_like(x[0])
        for index in range(x.size(0)):
            total = total * 0.5 + x[index]
        return total


class Cond(nn.Module):
    """Control flow that ONNX can say."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))


class Sizes(nn.Module):
    """Control flow that depends on a size, which tracing fixes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 2 else x + 1


class Keywords(Small):
    """A keyword input, a constant and a dict for a result."""

    def forward(  # type: ignore[override]
        self, x: torch.Tensor, *, mask: torch.Tensor, scale: int = 2
    ) -> dict[str, Any]:
        return {"y": self.fc(x) * scale * mask, "nothing": None, "mask": mask}


class Reads(nn.Module):
    """Reads a file by itself, for TorchScript."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.from_file("secret", False, 8)


class Sum(nn.Module):
    """Two inputs of one shape."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Masked(nn.Module):
    """Infinity in a buffer, as attention masks have it; the outputs are finite."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.full((8, 8), float("-inf")).triu(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x @ x.T + self.mask, -1)


@dataclasses.dataclass
class Found:
    logits: Any
    hidden: Any = None


class ModelOutput(OrderedDict[str, Any]):
    """As transformers has it: an ordered mapping of a type that torch does not know."""


class Returns(nn.Module):
    """Returns what ``make`` makes of x and x + 1."""

    def __init__(self, make: Any) -> None:
        super().__init__()
        self.make = make

    def forward(self, x: Any) -> Any:
        return self.make(x, x + 1)


class Within(nn.Module):
    """Computes in another type; its inputs and outputs are float32."""

    def __init__(self, inner: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.inner = inner.to(dtype)
        self.dtype = dtype

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x.to(self.dtype)).float()


def options(*inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    plain = {"opset": 20, "inputs": list(inputs), "dims": {}, "outputs": [], "signature": ""}
    return {**plain, "allow_pickle": False, **more}


def export_file(source: Path, out: Path, *inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    out.mkdir()
    facts = torch_module.export_torch.function(
        out, source=source, factory="", options=options(*inputs, **more)
    )
    assert facts is not None
    return facts


def onnx_outputs(path: Path, feeds: dict[str, Any]) -> list[Any]:
    session = run_model.open_session(path, level="all")
    return list(run_model.run_session(session, feeds).values())


def refusal(call: Any, *arguments: Any, **more: Any) -> errors.UsageError:
    with pytest.raises(errors.UsageError) as caught:
        call(*arguments, **more)
    text = caught.value.message + caught.value.remedy
    assert len(text) < 1000
    assert "Traceback" not in text
    return caught.value


def saved(name: str, kind: str, folder: Path) -> Path:
    """The trained model as an exported program or as TorchScript, with a free batch."""
    model = trained(name)
    images, _ = test_images(name)
    example = torch.from_numpy(images[:2])
    path = folder / ("m.pt2" if kind == "program" else "m.ts")
    if kind == "program":
        shapes = ({0: torch.export.Dim.DYNAMIC},)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The tensor attributes self.lstm", UserWarning)
            program = torch.export.export(model, (example,), dynamic_shapes=shapes)
        torch.export.save(program, path)
    else:
        # torch.jit.trace records attention's inference-only kernel otherwise.
        torch.backends.mha.set_fastpath_enabled(value=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", torch.jit.TracerWarning)
            traced = kind == "trace"
            made = torch.jit.trace(model, (example,)) if traced else torch.jit.script(model)
            torch.jit.save(made, path)
        torch.backends.mha.set_fastpath_enabled(value=True)
    return path
