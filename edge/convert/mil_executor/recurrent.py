"""LSTM, as Core ML documents it: gates i f o z, one bias."""

from __future__ import annotations

from typing import Any

from edge.convert.mil_executor.registry import Arguments, operation


def _activate(name: str, x: Any) -> Any:
    import numpy as np

    if name == "sigmoid":
        return 1 / (1 + np.exp(-x))
    if name == "tanh":
        return np.tanh(x)
    if name == "relu":
        return np.maximum(x, 0)
    raise NotImplementedError(f"lstm with the activation {name}")


@operation("lstm")
def lstm(a: Arguments) -> Any:
    """All states (or the last), the last state and the last memory; directions side by side."""
    import numpy as np

    if a["clip"] is not None or a["peephole"] is not None:
        raise NotImplementedError("lstm with clip or peepholes")
    both = a["direction"] == "bidirectional"
    ends = ("", "_back") if both else ("",)
    h, c = (np.split(a[name], len(ends), axis=1) for name in ("initial_h", "initial_c"))
    runs = []
    for place, end in enumerate(ends):
        backwards = end == "_back" or a["direction"] == "reverse"
        runs.append(_direction(a, end, h[place], c[place], backwards=backwards))
    y, last_h, last_c = (np.concatenate(part, axis=-1) for part in zip(*runs, strict=True))
    if not a["output_sequence"]:
        y = last_h[None]
    return y, last_h, last_c


def _direction(a: Arguments, end: str, h: Any, c: Any, *, backwards: bool) -> Any:
    import numpy as np

    x = a["x"][::-1] if backwards else a["x"]
    w, r, b = a[f"weight_ih{end}"], a[f"weight_hh{end}"], a[f"bias{end}"]
    inner = np.matmul(x, w.T) + (0 if b is None else b)
    gate, cell, out = a["recurrent_activation"], a["cell_activation"], a["activation"]
    states = []
    for row in inner:
        i, f, o, z = np.split(row + np.matmul(h, r.T), 4, axis=-1)
        kept = _activate(gate, f) * c
        c = kept + _activate(gate, i) * _activate(cell, z)
        h = _activate(gate, o) * _activate(out, c)
        states.append(h)
    return np.stack(states[::-1] if backwards else states), h, c
