"""LSTM, GRU and RNN in all their forms, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from edge import errors
from edge.convert import onnx_to_mil
from tests.convert.onnx_to_mil.programs import agree, one, values

TIME, BATCH, SIZE, HIDDEN = 5, 2, 3, 4
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(kind: str, direction: str, *, states: bool, bias: bool = True, **more: Any) -> Any:
    """The model and its feeds: states are inputs where they are given."""
    count, gates = (2 if direction == "bidirectional" else 1), GATES[kind]
    feeds = {"x": values(TIME, BATCH, SIZE)}
    constants = {
        "w": values(count, gates * HIDDEN, SIZE, seed=1),
        "r": values(count, gates * HIDDEN, HIDDEN, seed=2),
    }
    if bias or states:
        constants["b"] = values(count, 2 * gates * HIDDEN, seed=3)
    if states:
        constants["lens"] = np.full(BATCH, TIME, np.int32)
    outputs = 3 if kind == "LSTM" else 2
    model = one(
        kind, feeds, opset=14, constants=constants, outputs=outputs, hidden_size=HIDDEN,
        direction=direction, **more,
    )  # fmt: skip
    if states:
        for place, name in enumerate(("h", "c")[: outputs - 1]):
            feeds[name] = values(count, BATCH, HIDDEN, seed=4 + place)
            port = model.graph.input.add()
            port.CopyFrom(one("Relu", {name: feeds[name]}, opset=14).graph.input[0])
            model.graph.node[0].input.append(name)
    return model, feeds


@pytest.mark.parametrize("states", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("kind", "more"),
    [("LSTM", {}), ("GRU", {}), ("GRU", {"linear_before_reset": 1}), ("RNN", {})],
)
def test_all_directions_with_and_without_states(
    kind: str, more: Any, direction: str, states: bool
) -> None:
    agree(*recurrent(kind, direction, states=states, **more))


@pytest.mark.parametrize("kind", GATES)
def test_without_a_bias(kind: str) -> None:
    agree(*recurrent(kind, "forward", states=False, bias=False))


def test_other_activations() -> None:
    agree(*recurrent("LSTM", "forward", states=True, activations=["Sigmoid", "Relu", "Tanh"]))
    agree(*recurrent("GRU", "reverse", states=True, activations=["Tanh", "Relu"]))


REFUSED = [
    ("LSTM", "forward", {"clip": 1.0}, "no rule for clip"),
    ("LSTM", "forward", {"input_forget": 1}, "input_forget"),
    ("LSTM", "forward", {"activations": ["HardSigmoid", "Tanh", "Tanh"]}, "activation hardsigmoid"),
    ("LSTM", "forward", {"activation_alpha": [0.3]}, "activation_alpha"),
    ("GRU", "forward", {"clip": 0.5}, "no rule for clip"),
    ("RNN", "bidirectional", {"activations": ["Tanh", "Relu"]}, "different activations"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "direction", "more", "said"), REFUSED)
def test_what_mil_lacks_is_refused(kind: str, direction: str, more: Any, said: str) -> None:
    model, _ = recurrent(kind, direction, states=False, **more)
    with pytest.raises(errors.ModelRefused, match=said):
        onnx_to_mil.convert(model)


def test_sequences_shorter_than_the_input_are_refused() -> None:
    model, _ = recurrent("LSTM", "forward", states=True)
    lengths = next(t for t in model.graph.initializer if t.name == "lens")
    lengths.ClearField("raw_data")
    lengths.int32_data.extend([TIME, TIME - 1])
    with pytest.raises(errors.ModelRefused, match="shorter than the input"):
        onnx_to_mil.convert(model)


def test_more_steps_than_are_written_out_are_refused() -> None:
    constants = {"w": values(1, 6, 1), "r": values(1, 6, 2)}
    model = one(
        "GRU", {"x": values(513, 1, 1)}, opset=14, constants=constants, outputs=2, hidden_size=2
    )
    with pytest.raises(errors.ModelRefused, match="513 steps: no more than 512"):
        onnx_to_mil.convert(model)
