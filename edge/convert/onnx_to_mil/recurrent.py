"""LSTM by MIL's own operation; GRU and RNN step by step, since MIL's have another bias and reset.

ONNX: X [time, batch, features] (``layout`` 1: batch first), gates of LSTM in the order i o f c,
of GRU z r h, a bias [2 gates hidden] of input and recurrence for each direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge.convert.onnx_to_mil.node import Node
from edge.convert.onnx_to_mil.registry import operator

if TYPE_CHECKING:
    from edge.convert.onnx_to_mil.values import Array

ACTIVATIONS = {"sigmoid": "sigmoid", "tanh": "tanh", "relu": "relu"}
# Steps are written out one by one: a program of this many is large and slow to compile.
STEPS = 512


@dataclass(frozen=True)
class Layer:
    """Sizes and the direction of a recurrent node, and its input [time, batch, features]."""

    x: Any
    time: int
    batch: int
    hidden: int
    directions: tuple[str, ...]
    batch_first: bool

    @property
    def count(self) -> int:
        """1, or 2 where both directions are run."""
        return len(self.directions)


def _layer(node: Node) -> Layer:
    batch_first = bool(node.attribute("layout", 0))
    direction = node.attribute("direction", "forward")
    both = {
        "forward": ("forward",),
        "reverse": ("reverse",),
        "bidirectional": ("forward", "reverse"),
    }
    if direction not in both:
        node.refuse(f"no rule for direction = {direction!r}")
    shape = node.shape()
    time, batch = (shape[1], shape[0]) if batch_first else (shape[0], shape[1])
    hidden = int(node.attribute("hidden_size", node.shape(2)[-1]))
    if node.has(4) and set(node.ints(4, "sequence_lens")) != {time}:
        node.refuse("no rule for sequences shorter than the input")
    x = node.var()
    if batch_first:
        x = node.op("transpose", x=x, perm=[1, 0, 2])
    return Layer(x, time, batch, hidden, both[direction], batch_first)


def _activations(node: Node, layer: Layer, default: list[str]) -> list[str]:
    """The activations of one direction, lower case; those of two must be the same."""
    for name in ("activation_alpha", "activation_beta"):
        if node.attribute(name):
            node.refuse(f"no rule for {name}")
    given = [_text(each).lower() for each in node.attribute("activations", [])]
    found = given or default * layer.count
    each = len(default)
    if layer.count == 2 and found[:each] != found[each:]:
        node.refuse("no rule for directions with different activations")
    if wrong := sorted(set(found) - set(ACTIVATIONS)):
        node.refuse(f"no rule for activation {', '.join(wrong)}")
    return found[:each]


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _state(node: Node, index: int, layer: Layer) -> Any:
    """An initial state as [batch, directions * hidden]; zeros where none is given."""
    import numpy as np

    if not node.has(index):
        return node.const(np.zeros((layer.batch, layer.count * layer.hidden), np.float32))
    state = node.var(index)
    if not layer.batch_first and layer.count > 1:
        state = node.op("transpose", x=state, perm=[1, 0, 2])
    return node.op("reshape", x=state, shape=[layer.batch, layer.count * layer.hidden])


def _all_steps(node: Node, layer: Layer, y: Any) -> Any:
    """[time, batch, directions * hidden] as ONNX's Y."""
    shape = [layer.time, layer.batch, layer.count, layer.hidden]
    whole = node.op("reshape", x=y, shape=shape)
    return node.op("transpose", x=whole, perm=[1, 0, 2, 3] if layer.batch_first else [0, 2, 1, 3])


def _last(node: Node, layer: Layer, state: Any) -> Any:
    """[batch, directions * hidden] as ONNX's Y_h or Y_c."""
    whole = node.op("reshape", x=state, shape=[layer.batch, layer.count, layer.hidden])
    return whole if layer.batch_first else node.op("transpose", x=whole, perm=[1, 0, 2])


# ----------------------------------------------------------------------------------------- LSTM
@operator("LSTM", types="floats")
def lstm(node: Node) -> Any:
    """MIL's lstm: gates i f o z, one bias, states side by side."""
    layer = _layer(node)
    if float(node.attribute("clip", 0.0) or 0.0) or int(node.attribute("input_forget", 0)):
        node.refuse("no rule for clip or input_forget")
    if node.has(7) and node.array(7, "P").any():
        node.refuse("no rule for peepholes")
    gate, cell, out = _activations(node, layer, ["sigmoid", "tanh", "tanh"])
    y, h, c = node.op(
        "lstm",
        x=layer.x,
        initial_h=_state(node, 5, layer),
        initial_c=_state(node, 6, layer),
        direction="bidirectional" if layer.count == 2 else layer.directions[0],
        output_sequence=True,
        recurrent_activation=gate,
        cell_activation=cell,
        activation=out,
        **_lstm_weights(node, layer),
    )
    return [_all_steps(node, layer, y), _last(node, layer, h), _last(node, layer, c)]


def _lstm_weights(node: Node, layer: Layer) -> dict[str, Array]:
    w, r = node.array(1, "W"), node.array(2, "R")
    b = node.array(3, "B") if node.has(3) else None
    made = {}
    for place, end in enumerate(("", "_back")[: layer.count]):
        made[f"weight_ih{end}"] = _ifoz(w[place])
        made[f"weight_hh{end}"] = _ifoz(r[place])
        if b is not None:
            middle = 4 * layer.hidden
            made[f"bias{end}"] = _ifoz(b[place][:middle] + b[place][middle:])
    return made


def _ifoz(weights: Array) -> Array:
    import numpy as np

    i, o, f, z = np.split(weights.astype(np.float32), 4)
    return np.concatenate([i, f, o, z])


# ---------------------------------------------------------------------------------- GRU and RNN
@dataclass(frozen=True)
class Cell:
    """Constants of one direction, float32, ready for products from the right."""

    recurrence: Array  # [hidden, gates * hidden]
    input_bias: Array
    recurrent_bias: Array
    weight: Array  # [gates * hidden, features]


def _cell(node: Node, layer: Layer, place: int, gates: int) -> Cell:
    import numpy as np

    w, r = (node.array(at, what)[place].astype(np.float32) for at, what in ((1, "W"), (2, "R")))
    whole = gates * layer.hidden
    b = node.array(3, "B")[place] if node.has(3) else np.zeros(2 * whole, np.float32)
    b = b.astype(np.float32)
    return Cell(np.ascontiguousarray(r.T), b[:whole], b[whole:], w)


@operator("GRU", types="floats")
def gru(node: Node) -> Any:
    """z, r by sigmoid; h = tanh(x W + (r h) R) or, linear_before_reset, tanh(x W + r (h R + b))."""
    layer = _layer(node)
    before = bool(node.attribute("linear_before_reset", 0))
    if float(node.attribute("clip", 0.0) or 0.0):
        node.refuse("no rule for clip")
    names = _activations(node, layer, ["sigmoid", "tanh"])
    cells = [_cell(node, layer, place, 3) for place in range(layer.count)]
    step = _gru_before_reset if before else _gru_after_reset
    return _unrolled(node, layer, cells, lambda cell, x, h: step(node, cell, x, h, names))


def _gru_after_reset(node: Node, cell: Cell, x: Any, h: Any, names: list[str]) -> Any:
    hidden = cell.recurrence.shape[0]
    split = 2 * hidden
    both = node.op("matmul", x=h, y=node.const(cell.recurrence[:, :split]))
    both = node.op("add", x=both, y=node.const(cell.recurrent_bias[:split]))
    xz, xr, xh = node.op("split", x=x, num_splits=3, axis=1)
    hz, hr = node.op("split", x=both, num_splits=2, axis=1)
    z, r = (_gate(node, a, b, names[0]) for a, b in ((xz, hz), (xr, hr)))
    reset = node.op("matmul", x=node.op("mul", x=r, y=h), y=node.const(cell.recurrence[:, split:]))
    reset = node.op("add", x=reset, y=node.const(cell.recurrent_bias[split:]))
    return _blend(node, z, _gate(node, xh, reset, names[1]), h)


def _gru_before_reset(node: Node, cell: Cell, x: Any, h: Any, names: list[str]) -> Any:
    whole = node.op("matmul", x=h, y=node.const(cell.recurrence))
    whole = node.op("add", x=whole, y=node.const(cell.recurrent_bias))
    xz, xr, xh = node.op("split", x=x, num_splits=3, axis=1)
    hz, hr, hh = node.op("split", x=whole, num_splits=3, axis=1)
    z, r = (_gate(node, a, b, names[0]) for a, b in ((xz, hz), (xr, hr)))
    return _blend(node, z, _gate(node, xh, node.op("mul", x=r, y=hh), names[1]), h)


def _gate(node: Node, x: Any, h: Any, activation: str) -> Any:
    return node.op(ACTIVATIONS[activation], x=node.op("add", x=x, y=h))


def _blend(node: Node, z: Any, new: Any, h: Any) -> Any:
    """(1 - z) new + z h, as new + z (h - new)."""
    kept = node.op("mul", x=z, y=node.op("sub", x=h, y=new))
    return node.op("add", x=new, y=kept)


@operator("RNN", types="floats")
def rnn(node: Node) -> Any:
    """tanh(x W + h R + b)."""
    layer = _layer(node)
    if float(node.attribute("clip", 0.0) or 0.0):
        node.refuse("no rule for clip")
    (name,) = _activations(node, layer, ["tanh"])
    cells = [_cell(node, layer, place, 1) for place in range(layer.count)]

    def step(cell: Cell, x: Any, h: Any) -> Any:
        again = node.op("matmul", x=h, y=node.const(cell.recurrence))
        return _gate(node, x, node.op("add", x=again, y=node.const(cell.recurrent_bias)), name)

    return _unrolled(node, layer, cells, step)


def _unrolled(node: Node, layer: Layer, cells: list[Cell], step: Any) -> list[Any]:
    """All steps of all directions: the inputs' products at once, the recurrence one by one."""
    if layer.time > STEPS:
        node.refuse(f"{layer.time} steps: no more than {STEPS} are written out")
    given = _state(node, 5, layer)
    states = list(node.op("split", x=given, num_splits=2, axis=1)) if layer.count == 2 else [given]
    sequences, ends = [], []
    for cell, direction, state in zip(cells, layer.directions, states, strict=True):
        steps = _steps(node, layer, cell, state, direction, step)
        sequences.append(node.op("stack", values=steps, axis=0))
        ends.append(steps[0] if direction == "reverse" else steps[-1])
    y = sequences[0] if layer.count == 1 else node.op("concat", values=sequences, axis=2)
    h = ends[0] if layer.count == 1 else node.op("concat", values=ends, axis=1)
    return [_all_steps(node, layer, y), _last(node, layer, h)]


def _steps(node: Node, layer: Layer, cell: Cell, h: Any, direction: str, step: Any) -> list[Any]:
    """States of each time, in the order of time."""
    whole = node.op("linear", x=layer.x, weight=cell.weight, bias=cell.input_bias)
    if layer.time == 1:
        parts = [whole]
    else:
        parts = list(node.op("split", x=whole, num_splits=layer.time, axis=0))
    rows = [node.op("squeeze", x=part, axes=[0]) for part in parts]
    found = []
    for row in reversed(rows) if direction == "reverse" else rows:
        h = step(cell, row, h)
        found.append(h)
    return found[::-1] if direction == "reverse" else found
