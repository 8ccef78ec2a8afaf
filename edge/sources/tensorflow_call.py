"""What all TensorFlow sources come down to: named tensors in, a list of named tensors out.

A keras.Model, a signature of a SavedModel and a tf.function each become a :class:`Call`. The
exporter traces it, the runner calls it: both see the same inputs and outputs in the same order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from edge import errors
from edge.samples import ITEM_BYTES
from edge.sources.tensorflow_inputs import (
    DECLARE,
    Input,
    bind,
    declared,
    natural,
    refuse_type,
    short,
    unique,
)


@dataclass(frozen=True)
class Call:
    """``function`` takes tensors in the order of ``inputs``, gives a list as ``outputs`` names.

    ``concrete`` is its trace (a tf.ConcreteFunction). ``owner`` keeps the variables alive.
    ``kind`` and ``signature`` are for the report.
    """

    kind: str
    signature: str
    inputs: tuple[Input, ...]
    function: Callable[..., Any]
    owner: Any
    outputs: tuple[str, ...] = ()
    concrete: Any = None

    def specs(self) -> list[Any]:
        """tf.TensorSpec of the inputs, None where a dimension is symbolic."""
        return [_spec(each, f"input_{n}") for n, each in enumerate(self.inputs)]


def _spec(each: Input, name: str) -> Any:
    import tensorflow as tf

    shape = [dim if isinstance(dim, int) else None for dim in each.shape or ()]
    return tf.TensorSpec(shape, each.dtype, name=name)


def of(found: Any, options: Mapping[str, Any], kind: str) -> Call:
    """The call of a keras.Model, a function of TensorFlow, or an object that bears some.

    Raises :class:`errors.UsageError` when it must be said which function is meant, and
    :class:`errors.ModelRefused` for what is none of these or takes no plain tensors.
    """
    import keras
    import tensorflow as tf

    if isinstance(found, keras.Model):
        return _of_keras(found, options, kind)
    function = tf.types.experimental.GenericFunction
    concrete = tf.types.experimental.ConcreteFunction
    if isinstance(found, (function, concrete)):
        return _of_function(found, found, ("", options), kind)
    named = _functions(found, (function, concrete))
    name = choose(sorted(named), str(options["signature"]))
    return _of_function(named[name], found, (name, options), kind)


def _functions(found: Any, kinds: tuple[type, ...]) -> dict[str, Any]:
    """The signatures of a loaded SavedModel, else the tf.functions that an object bears."""
    signatures = getattr(found, "signatures", None)
    if isinstance(signatures, Mapping) and signatures:
        return {str(name): each for name, each in signatures.items() if not name.startswith("__")}
    public = [name for name in dir(found) if not name.startswith("_") or name == "__call__"]
    # Static: properties of the user's object are not run.
    bearing = [n for n in public if isinstance(inspect.getattr_static(found, n, None), kinds)]
    if not bearing:
        raise errors.ModelRefused(
            f"the factory returned a {type(found).__name__}, and no tf.function on it",
            remedy="return a keras.Model, a tf.function, or a tf.Module with decorated methods",
        )
    return {name: getattr(found, name) for name in bearing}


def choose(names: Sequence[str], wanted: str) -> str:
    """``wanted``, or the only one; Keras' export gives one function both of its usual names."""
    if wanted in names:
        return wanted
    listed = ", ".join(names) or "none"
    if wanted:
        raise errors.UsageError(
            f"the model has no signature {wanted!r}; it has: {listed}",
            remedy=errors.did_you_mean(wanted, list(names)) or "name one of them",
        )
    usual = {"serving_default", "serve"}
    if len(names) == 1 or set(names) == usual:
        return "serving_default" if len(names) == 2 else names[0]
    raise errors.UsageError(
        f"the model has these signatures, and none was named: {listed}",
        remedy="name one: signature = '...' for the model in edge.toml",
    )


# Keras


def _of_keras(model: Any, options: Mapping[str, Any], kind: str) -> Call:
    import keras

    if options["signature"]:
        raise errors.UsageError(
            f"a Keras model has no signatures, and {options['signature']!r} was named",
            remedy="leave the signature out, or name a SavedModel",
        )
    known = getattr(model, "inputs", None)
    inputs = _keras_inputs(model, known) if known else declared(options, kind)
    bound = bind(inputs, options)
    pack = _packing(model, len(bound), known=bool(known))

    def run(*tensors: Any) -> Any:
        positional = pack(list(tensors))
        return model(*positional, training=False)

    names = _layer_names(model) if known else []
    flatten = keras.tree.flatten
    return _finish(Call(kind, "", bound, run, model), flatten, names)


def _keras_inputs(model: Any, tensors: Sequence[Any]) -> list[Input]:
    """Inputs by their tensors' names; an unnamed one (keras_tensor_7) has its layer's."""
    import keras

    layers = {
        id(layer.output): str(layer.name)
        for layer in model.layers
        if isinstance(layer, keras.layers.InputLayer)
    }
    found = []
    for tensor in tensors:
        name = str(tensor.name)
        if name.startswith("keras_tensor"):
            name = layers.get(id(tensor), name)
        for odd in ("sparse", "ragged"):
            if getattr(tensor, odd, False):
                refuse_type(name, odd)
        found.append(Input(name, str(tensor.dtype), tuple(tensor.shape)))
    return found


def _packing(model: Any, count: int, *, known: bool) -> Callable[[list[Any]], list[Any]]:
    """From tensors in order to the positional arguments of the model's call."""
    import keras

    if known:
        structure = getattr(model, "input", None)
        if structure is None:
            return lambda tensors: [tensors if count > 1 else tensors[0]]
        return lambda tensors: [keras.tree.pack_sequence_as(structure, tensors)]
    taken = [name for name in inspect.signature(model.call).parameters if name != "training"]
    if count == 1 or len(taken) == count:
        return lambda tensors: tensors
    return lambda tensors: [tensors]


def _layer_names(model: Any) -> list[str]:
    """The layers that give the outputs: what Keras itself calls the outputs of a model."""
    names = getattr(model, "output_names", None)
    if names is None and getattr(model, "layers", None) and len(model.outputs) == 1:
        names = [model.layers[-1].name]
    return [str(name) for name in names or ()]


# Functions of TensorFlow


def _of_function(function: Any, owner: Any, said: tuple[str, Mapping[str, Any]], kind: str) -> Call:
    """``said`` are the signature's name and the options."""
    import tensorflow as tf

    name, options = said
    concrete = _concrete(function, name, options)
    structure = concrete.structured_input_signature
    flat = tf.nest.flatten(structure)
    found = [
        _spec_input(spec, _argument(spec, structure[1], position))
        for position, spec in enumerate(flat)
        if isinstance(spec, tf.TypeSpec)
    ]
    order = list(range(len(found)))
    if not structure[0]:
        # A SavedModel keeps the arguments of a signature as a map, without their order.
        order.sort(key=lambda n: natural(found[n].name))
    bound = bind([found[n] for n in order], options)

    def run(*tensors: Any) -> Any:
        placed = iter([tensors[order.index(n)] for n in range(len(found))])
        filled = [next(placed) if isinstance(spec, tf.TypeSpec) else spec for spec in flat]
        args, kwargs = tf.nest.pack_sequence_as(structure, filled)
        return concrete(*args, **kwargs)

    return _finish(Call(kind, name, bound, run, (owner, concrete)), tf.nest.flatten, [])


def _concrete(function: Any, name: str, options: Mapping[str, Any]) -> Any:
    """The traced function; one without an input_signature is traced for the declared inputs."""
    import tensorflow as tf

    if isinstance(function, tf.types.experimental.ConcreteFunction):
        return function
    title = f"the function {name}" if name else "the tf.function"
    try:
        if not options["inputs"] or getattr(function, "input_signature", None) is not None:
            return function.get_concrete_function()
        known = declared(options, title)
        return function.get_concrete_function(
            **{each.name: _spec(each, each.name) for each in known}
        )
    except (TypeError, ValueError) as error:
        raise errors.UsageError(
            f"{title} cannot be traced for its inputs: {short(error)}",
            remedy=f"give it an input_signature, or {DECLARE}",
        ) from error


def _argument(spec: Any, keywords: Mapping[str, Any], position: int) -> str:
    """The name of an argument: its own, else its keyword's."""
    named = [key for key, value in keywords.items() if value is spec]
    own = str(getattr(spec, "name", None) or "").removesuffix(":0")
    return (named or [own])[0] or f"input_{position}"


def _spec_input(spec: Any, name: str) -> Input:
    import tensorflow as tf

    if not isinstance(spec, tf.TensorSpec):
        refuse_type(name, type(spec).__name__.removesuffix("TensorSpec").lower())
    known = spec.shape.rank is not None
    return Input(name, spec.dtype.name, tuple(spec.shape.as_list()) if known else None)


# Outputs


def _finish(call: Call, flatten: Callable[[Any], list[Any]], layers: list[str]) -> Call:
    """The call with a flat list of outputs, each with a name of its own.

    The names are a dictionary's keys, else the ``layers``, else output_0, output_1 ... The call
    is traced once to see them. Raises :class:`errors.ModelRefused` where that fails.
    """
    import tensorflow as tf

    seen: list[tuple[list[str], list[Any]]] = []

    def trace(*tensors: Any) -> list[Any]:
        seen.append(_listed(call.function(*tensors), flatten))
        # One value may be two outputs: each gets a tensor of its own.
        return [tf.identity(v) if isinstance(v, tf.Tensor) else v for v in seen[-1][1]]

    try:
        concrete = tf.function(trace).get_concrete_function(*call.specs())
    except Exception as error:  # the user's own code runs here
        raise errors.ModelRefused(
            f"the model cannot be called with its inputs: {short(error)}",
            remedy="check the shapes of the inputs that the project declares",
        ) from error
    keys, values = seen[-1]
    _check_outputs(keys, values)
    fitting = layers if len(layers) == len(values) else []
    titles = keys or fitting or [f"output_{n}" for n in range(len(values))]

    def run(*tensors: Any) -> list[Any]:
        return _listed(call.function(*tensors), flatten)[1]

    names = unique(titles, [each.name for each in call.inputs])
    return replace(call, outputs=tuple(names), function=run, concrete=concrete)


def _listed(result: Any, flatten: Callable[[Any], list[Any]]) -> tuple[list[str], list[Any]]:
    """Keys (none where the result is no flat dictionary) and values, in an order that is stable."""
    if isinstance(result, Mapping) and len(flatten(result)) == len(result):
        keys = sorted(result, key=lambda key: natural(str(key)))
        return [str(key) for key in keys], [result[key] for key in keys]
    return [], list(flatten(result))


def _check_outputs(keys: list[str], values: list[Any]) -> None:
    import tensorflow as tf

    if not values:
        raise errors.ModelRefused("the model gives no outputs")
    for position, value in enumerate(values):
        name = keys[position] if keys else f"output_{position}"
        if not isinstance(value, tf.Tensor):
            refuse_type(name, type(value).__name__)
        if value.dtype.name not in ITEM_BYTES:
            refuse_type(name, value.dtype.name)
