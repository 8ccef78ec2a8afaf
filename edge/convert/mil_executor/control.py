"""Operations with blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edge.convert.mil_executor.run import Interpreter


def cond(interpreter: Interpreter, op: Any) -> tuple[Any, ...]:
    """One of two blocks."""
    block = op.blocks[0 if bool(interpreter.value(op.pred)) else 1]
    interpreter.block(block.operations)
    return tuple(interpreter.value(var) for var in block.outputs)


def while_loop(interpreter: Interpreter, op: Any) -> tuple[Any, ...]:
    """The second block as long as the first says so."""
    state = [interpreter.value(var) for var in op.loop_vars]
    test, body = op.blocks
    while True:
        for var, value in zip(test.inputs, state, strict=True):
            interpreter.values[var] = value
        interpreter.block(test.operations)
        if not bool(interpreter.value(test.outputs[0])):
            return tuple(state)
        for var, value in zip(body.inputs, state, strict=True):
            interpreter.values[var] = value
        interpreter.block(body.operations)
        state = [interpreter.value(var) for var in body.outputs]


CONTROL = {"cond": cond, "while_loop": while_loop}
