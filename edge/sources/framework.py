"""What every source framework does alike: it runs the user's model, and that is the truth.

A framework's file opens a source as a :data:`Runner`; golden samples and accuracies come from
it, never from the converted model, by steps that :func:`golden_step` and :func:`accuracy_step`
make of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors, samples
from edge.convert.accuracy import scored, with_constants
from edge.convert.run_model import finite
from edge.step import Facts, Step, step

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

# Not in keys: what may be opened says nothing of what is in it.
TRUST = ("options.allow_pickle",)
# Inputs by name -> outputs in the order of the exported model.
Runner = Callable[[Mapping[str, "Array"]], "Sequence[Array]"]
# Source file, factory (empty for a file) and what the project says of the model.
Opener = Callable[[Path, str, "dict[str, Any]"], Runner]


def golden_step(name: str, opener: Opener, tools: tuple[str, ...], extra: str = "") -> Step:
    """The step ``name`` of the opener's module: golden outputs by the framework itself.

    Arguments and facts as :func:`write_golden`, and ``source``, ``factory``, ``options``.
    """

    def golden(  # noqa: PLR0913 - a step's inputs and parameters
        out: Path,
        *,
        source: Path,
        factory: str,
        options: dict[str, Any],
        cases: Path,
        inputs: list[dict[str, Any]],
        names: list[str],
    ) -> Facts:
        run = opener(source, factory, options)
        return write_golden(out, run, cases=cases, inputs=inputs, names=names)

    return _declared(golden, name, opener, tools, extra)


def accuracy_step(name: str, opener: Opener, tools: tuple[str, ...], extra: str = "") -> Step:
    """The step ``name`` of the opener's module: facts ``accuracy``, by the user's metric.

    ``metric`` is the file of the module in ``score``, ``reads`` what its trace found: part of
    the key alone; ``inputs`` are BoundInput.to_json values, ``names`` the outputs' in order (see
    ``edge.convert.accuracy``).
    """

    def accuracy(  # noqa: PLR0913 - a step's inputs and parameters
        out: Path,
        *,
        source: Path,
        factory: str,
        options: dict[str, Any],
        metric: Path,
        score: str,
        reads: dict[str, Any],
        inputs: list[dict[str, Any]],
        names: list[str],
    ) -> Facts:
        del out, reads  # facts only
        opened = opener(source, factory, options)
        run = with_constants(lambda case: named(opened(case), names), inputs)
        return {"accuracy": scored(run, metric, score)}

    return _declared(accuracy, name, opener, tools, extra)


def _declared(
    function: Callable[..., Facts], name: str, opener: Opener, tools: tuple[str, ...], extra: str
) -> Step:
    """A step that is found by its name in the module of ``opener``, also by another process."""
    function.__name__, function.__module__ = name, opener.__module__
    return step(version=1, tools=tools, timeout=7200, extra=extra, aside=TRUST)(function)


def write_golden(
    out: Path,
    run: Runner,
    *,
    cases: Path,
    inputs: list[dict[str, Any]],
    names: list[str],
) -> Facts:
    """Golden samples: the inputs of ``cases`` with the outputs that ``run`` gives for them.

    ``cases`` is the index file (``samples.tsv``) of samples that hold inputs; ``inputs`` are
    BoundInput.to_json values: constant ones are fed and left out, since the deployed model does
    not have them. ``names`` are the exported model's outputs in order. Facts: ``samples`` (their
    number) and ``not_finite`` (names of outputs that hold NaN or infinity).

    Raises :class:`errors.ModelRefused` for a model that gives other outputs each time.
    """
    constant = {each["name"] for each in inputs if each["constant"] is not None}
    given = samples.cases(cases.parent, "input")
    pairs = []
    for case in given:
        kept = {name: array for name, array in case.items() if name not in constant}
        pairs.append((kept, named(run(case), names)))
    if pairs and not _same(pairs[0][1], named(run(given[0]), names)):
        raise errors.ModelRefused(
            "the model gives other outputs each time it is run (RandomNormal, an active Dropout "
            "or the like); nothing could be proven about it",
            remedy="make the randomness an input, or give the operator a seed",
        )
    samples.write(out, pairs)
    odd = {name for _, outputs in pairs for name, array in outputs.items() if not finite(array)}
    return {"samples": len(pairs), "not_finite": sorted(odd)}


def refuse_swapped(own: Sequence[str], wanted: Sequence[str]) -> None:
    """Names are given by place: one of the model's own at another place would swap outputs.

    Raises :class:`errors.UsageError`.
    """
    for place, name in enumerate(wanted):
        if name in own and own.index(name) != place:
            raise errors.UsageError(
                f"the project names output {place + 1} {name!r}, which is the model's own name for "
                f"output {own.index(name) + 1}",
                remedy=f"outputs renames by place; the model's own are: {', '.join(own)}",
            )


def named(outputs: Sequence[Array], names: Sequence[str]) -> dict[str, Array]:
    """Outputs by the exported model's names; :class:`errors.StepFailed` when they do not match."""
    if len(outputs) != len(names):
        raise errors.StepFailed(
            f"the source gives {len(outputs)} outputs, the exported model {len(names)}: "
            f"{', '.join(names)}",
            remedy="please report the model: its outputs were not taken over one by one",
        )
    return dict(zip(names, outputs, strict=True))


def _same(first: dict[str, Array], second: dict[str, Array]) -> bool:
    return all(first[name].tobytes() == second[name].tobytes() for name in first)
