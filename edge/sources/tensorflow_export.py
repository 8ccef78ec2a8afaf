"""From a traced call to one ONNX file, through tf2onnx.

``tf2onnx.convert.from_keras`` fails on Keras 3 (tensorflow-onnx #2448, #2329); the route here is
the one of ``from_function``, on parts that tf2onnx exports by name.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, graph
from edge.convert.run_model import open_session, run_session
from edge.model import FORMAT_LIMIT_BYTES, Port, ports
from edge.sources.framework import refuse_swapped
from edge.sources.tensorflow_call import Call
from edge.sources.tensorflow_canonical import canonical, graphs
from edge.sources.tensorflow_inputs import short, unique

if TYPE_CHECKING:
    import onnx

# tf2onnx 1.17 refuses higher ones ("Opset 19 is not supported yet").
MAX_OPSET = 18
_UNSUPPORTED = re.compile(r"Tensorflow op \[.*: (.+)\] is not supported")
_FAILED = re.compile(r"Failed to convert node '([^']*)'")


def convert(call: Call, outputs: list[str], opset: int) -> onnx.ModelProto:
    """The model in its canonical form, its outputs called ``outputs``.

    Raises :class:`errors.ModelRefused` naming the operators that have no ONNX form, and for a
    model above 2 GB.
    """
    names = [each.name for each in call.inputs]
    with _messages() as said:
        model = _tf2onnx(call, min(opset, MAX_OPSET), said)
    _refuse_unsupported(model, said)
    made = canonical(_with_all_inputs(model, call), names, outputs)
    for value, each in zip(made.graph.input, call.inputs, strict=True):
        _set_shape(value, each.shape or ())
    if made.ByteSize() > FORMAT_LIMIT_BYTES:
        raise errors.ModelRefused(
            f"the model holds {made.ByteSize()} bytes; one ONNX file holds less than 2 GB"
        )
    return made


def _tf2onnx(call: Call, opset: int, said: list[str]) -> onnx.ModelProto:
    import tensorflow as tf
    from tf2onnx import optimizer, tf_loader, utils
    from tf2onnx.tfonnx import process_tf_graph

    utils.INTERNAL_NAME = 1  # the counter in its names: one process converts once, tests often
    resource = tf.dtypes.resource
    ins = [each.name for each in call.concrete.inputs if each.dtype != resource]
    outs = [each.name for each in call.concrete.outputs]
    try:
        with tf.device("/cpu:0"):
            frozen, tables = tf_loader.from_trackable(
                call.owner, call.concrete, ins, outs, large_model=False
            )
            with tf.Graph().as_default() as built:
                tf.import_graph_def(frozen, name="")
                made = process_tf_graph(
                    built,
                    continue_on_error=True,  # so that all that is unsupported is said at once
                    opset=opset,
                    input_names=ins,
                    output_names=outs,
                    initialized_tables=tables,
                )
                optimized = optimizer.optimize_graph(made, catch_errors=True)
                converted: onnx.ModelProto = optimized.make_model("")
                return converted
    except (ValueError, TypeError, KeyError, RuntimeError, AttributeError) as error:
        reason = said[-1] if said else short(error)
        raise errors.ModelRefused(
            f"tf2onnx cannot convert the model: {reason}",
            remedy="replace what it names by layers that ONNX has",
        ) from error


@contextmanager
def _messages() -> Iterator[list[str]]:
    """What tf2onnx logs, kept and not printed; errors only."""
    logger = logging.getLogger("tf2onnx")
    found: list[str] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(" ".join(record.getMessage().split())[:300])

    keep, before = Keep(logging.ERROR), logger.propagate
    logger.addHandler(keep)
    logger.propagate = False
    try:
        yield found
    finally:
        logger.removeHandler(keep)
        logger.propagate = before


def _refuse_unsupported(model: onnx.ModelProto, said: list[str]) -> None:
    """Refuse operators that ONNX does not have: tf2onnx leaves them in the graph and logs them."""
    import onnx

    found = {m.group(1) for text in said if (m := _UNSUPPORTED.search(text))}
    failed = {m.group(1) for text in said if (m := _FAILED.search(text))}
    for each in graphs(model.graph):
        for node in each.node:
            if node.op_type and not onnx.defs.has(node.op_type, node.domain):
                found.add(node.op_type)
    if found or failed:
        what = f"operators {', '.join(sorted(found))}" if found else f"nodes {', '.join(failed)}"
        raise errors.ModelRefused(
            f"tf2onnx has no ONNX form for the {what[:300]}",
            remedy="replace them by layers that ONNX has, or move them out of the model",
        )


def _with_all_inputs(model: onnx.ModelProto, call: Call) -> onnx.ModelProto:
    """Inputs in the order of the call, with those that tf2onnx dropped since nothing reads them."""
    import onnx
    import tensorflow as tf

    resource = tf.dtypes.resource
    wanted = [each.name for each in call.concrete.inputs if each.dtype != resource]
    there = {value.name: value for value in model.graph.input}
    values = [
        there.get(name)
        or onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(_numpy(each.dtype)), []
        )
        for name, each in zip(wanted, call.inputs, strict=False)
    ]
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in values]
    model.graph.ClearField("input")
    model.graph.input.extend(copies)
    return model


def _numpy(dtype: str) -> Any:
    import numpy as np

    return np.dtype(dtype)


def _set_shape(value: onnx.ValueInfoProto, shape: tuple[int | str | None, ...]) -> None:
    """The shape by sizes and symbols; None is an unknown size."""
    value.type.tensor_type.shape.ClearField("dim")
    for dim in shape:
        added = value.type.tensor_type.shape.dim.add()
        if isinstance(dim, int):
            added.dim_value = dim
        elif dim is not None:
            added.dim_param = dim


def name_output_dims(path: Path, sizes: Mapping[str, int]) -> None:
    """Name the symbolic dimensions of the outputs in the file.

    An output's dimension is called as the input's symbol that it follows when the model is run
    with two sizes of every symbol (``sizes`` and one more), else NAME_dimK. Opens the file in
    ONNX Runtime, as the check that it loads.

    Raises :class:`errors.ModelRefused` where ONNX Runtime cannot load it.
    """
    import onnx

    session = open_session(path, level="disabled")
    model = onnx.load(path)
    facts = graph.facts(model)
    inputs, outputs = ports(facts["inputs"]), ports(facts["outputs"])
    symbols = sorted({dim for each in inputs for dim in each.shape if isinstance(dim, str)})
    first = {name: sizes.get(name, 2 + n) for n, name in enumerate(symbols)}
    second = {name: size + 1 + n for n, (name, size) in enumerate(first.items())}
    seen = [_shapes(session, inputs, each) for each in (first, second)]
    for position, port in enumerate(outputs):
        runs = [each[position] for each in seen if each]
        shape = _named(port, runs, [first, second])
        _set_shape(model.graph.output[position], shape)
    onnx.save_model(model, path)


def _shapes(
    session: Any, inputs: tuple[Port, ...], sizes: Mapping[str, int]
) -> list[tuple[int, ...]] | None:
    """Shapes of the outputs for inputs of zeros; None where the model takes no such sizes."""
    import numpy as np

    bound = [tuple(sizes[d] if isinstance(d, str) else d or 1 for d in p.shape) for p in inputs]
    if sum(np.prod(shape, dtype=float) for shape in bound) > 2**26:
        return None
    feed = {
        port.name: np.zeros(shape, port.dtype) for port, shape in zip(inputs, bound, strict=True)
    }
    try:
        return [array.shape for array in run_session(session, feed).values()]
    except errors.RunFailed:
        return None


def _named(
    port: Port, runs: list[tuple[int, ...]], sizes: list[dict[str, int]]
) -> tuple[int | str | None, ...]:
    """The output's shape: its sizes, else the symbol that it followed in both runs."""
    shape: list[int | str | None] = []
    for axis, dim in enumerate(port.shape):
        if isinstance(dim, int):
            shape.append(dim)
            continue
        follows = [
            symbol
            for symbol in sizes[0]
            if len(runs) == 2
            and all(
                axis < len(run) and run[axis] == each[symbol]
                for run, each in zip(runs, sizes, strict=True)
            )
        ]
        shape.append(follows[0] if len(follows) == 1 else f"{port.name}_dim{axis}")
    return tuple(shape)


def output_names(call: Call, wanted: list[str]) -> list[str]:
    """The names that the project wants for the outputs, else the model's own.

    Raises :class:`errors.UsageError` when there are more or fewer, or one comes twice.
    """
    if not wanted:
        return list(call.outputs)
    taken = [each.name for each in call.inputs]
    if len(wanted) != len(call.outputs) or unique(wanted, taken) != wanted:
        raise errors.UsageError(
            f"the project names the outputs {', '.join(wanted)}; the model has "
            f"{len(call.outputs)}: {', '.join(call.outputs)}",
            remedy="give one new name for each, none twice and none that an input has",
        )
    refuse_swapped(call.outputs, wanted)
    return list(wanted)
