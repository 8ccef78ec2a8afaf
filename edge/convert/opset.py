"""Another ai.onnx opset, up or down, and an IR version that the target reads.

1. Where no operator of the model changed between the two opsets, only the number changes.
2. Elsewhere ``onnx.version_converter`` rewrites the graph, subgraphs included. Functions are
   inlined before, since it drops them. What it drops besides is put back: inputs and outputs as
   they were declared, the graph's metadata and quantization annotations.
3. Operators of other domains stay as they are.

Where it has no adapter, the error names the operator. Whether its adapters compute the same is
not proven here: the pipeline holds every artifact against the golden samples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from edge import errors, graph
from edge.convert import graph_values
from edge.step import Facts, step

if TYPE_CHECKING:
    import onnx

# "No Adapter From Version $14 for Reshape", "No Previous Version of Gelu exists".
OPERATOR = re.compile(r"(?:for|Version of) (\w+)")
FUNCTIONS = 8  # the IR version that brought functions


@step(version=1, tools=("onnx",), timeout=900)
def convert_opset(out: Path, *, model: Path, opset: int, ir_version: int | None = None) -> Facts:
    """``model.onnx`` in ai.onnx ``opset``, and of ``ir_version`` at most, where one is given.

    Facts as :func:`edge.graph.facts`, with ``opset_before`` and ``how`` (unchanged, restamped,
    converted). Raises :class:`errors.ModelRefused` where the opset does not exist, where an
    operator cannot be converted, and for what the converter would lose.
    """
    loaded = graph.read(model)
    graph_values.drop_initializer_inputs(loaded)
    before = _opset(loaded)
    _refuse_unknown(opset)
    how = "unchanged" if before in {0, opset} else "restamped"
    if how == "restamped":
        if _changed(loaded, before, opset):
            how, loaded = "converted", _convert(loaded, before, opset)
        _stamp(loaded.opset_import, opset)
        for function in loaded.functions:
            _stamp(function.opset_import, opset)
    _stamp_ir(loaded, opset if before else 1, ir_version)
    _check(loaded, before, opset)
    graph.save(loaded, out / "model.onnx")
    return {**graph.facts(loaded), "opset_before": before, "how": how}


def _opset(model: onnx.ModelProto) -> int:
    """The model's ai.onnx opset, 0 for none; an import that is there twice becomes one."""
    versions: dict[str, set[int]] = {}
    for entry in model.opset_import:
        versions.setdefault(graph_values.plain_domain(entry.domain), set()).add(entry.version)
    for domain, found in versions.items():
        if len(found) > 1:
            raise errors.ModelRefused(
                f"the model imports {domain or 'ai.onnx'} in opsets "
                f"{', '.join(map(str, sorted(found)))} at once",
                remedy="export it again, with one opset",
            )
    # skl2onnx writes the same import twice.
    entries = {graph_values.plain_domain(entry.domain): entry for entry in model.opset_import}
    kept = list(entries.values())
    del model.opset_import[:]
    model.opset_import.extend(kept)
    return max(versions.get("", {0}))


def _refuse_unknown(opset: int) -> None:
    import onnx

    newest = onnx.defs.onnx_opset_version()
    if not 1 <= opset <= newest:
        raise errors.ModelRefused(
            f"onnx {onnx.__version__} knows no opset {opset}",
            remedy=f"name an opset from 1 to {newest}",
        )


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """All nodes: of the graph, of subgraphs and of functions."""
    for body in graph_values.walk(model.graph):
        yield from body.node
    for function in model.functions:
        pending = list(function.node)
        while pending:
            node = pending.pop()
            yield node
            for inner in graph_values.subgraphs(node):
                pending += inner.node


def _changed(model: onnx.ModelProto, before: int, after: int) -> bool:
    """Whether any operator has another definition in the other opset, or none."""
    import onnx

    for node in _nodes(model):
        if graph_values.plain_domain(node.domain):
            continue
        try:
            same = [
                onnx.defs.get_schema(node.op_type, version, "").since_version
                for version in (before, after)
            ]
        except onnx.defs.SchemaError:
            return True
        if same[0] != same[1]:
            return True
    others = {entry.version for f in model.functions for entry in _standard(f.opset_import)}
    return not others <= {before}


def _standard(
    entries: Iterable[onnx.OperatorSetIdProto],
) -> list[onnx.OperatorSetIdProto]:
    return [entry for entry in entries if not graph_values.plain_domain(entry.domain)]


def _stamp(entries: Iterable[onnx.OperatorSetIdProto], opset: int) -> None:
    for entry in _standard(entries):
        entry.version = opset


# ------------------------------------------------------------------------------ conversion
def _convert(model: onnx.ModelProto, before: int, after: int) -> onnx.ModelProto:
    import onnx.inliner
    from onnx import version_converter

    if model.functions:
        model = onnx.inliner.inline_local_functions(model, convert_version=True)
    _refuse_lost(model)
    try:
        made = version_converter.convert_version(model, after)
    except (RuntimeError, version_converter.ConvertError) as error:
        raise _refused(error, before, after) from error
    return _restored(made, model)


def _refuse_lost(model: onnx.ModelProto) -> None:
    """What the converter's own form of a graph cannot hold."""
    sparse = [t.values.name for body in graph_values.walk(model.graph)
              for t in body.sparse_initializer]  # fmt: skip
    if sparse:
        raise errors.ModelRefused(
            f"the opset cannot be converted: the sparse initializer {sparse[0]!r} would be lost",
            remedy="export the model with that opset, or with dense weights",
        )


def _refused(error: Exception, before: int, after: int) -> errors.ModelRefused:
    """The converter's assertion in words: ``...: Assertion `false` failed: No Adapter ...``."""
    text = " ".join(str(error).split()).rpartition("failed: ")[2][:300]
    found = OPERATOR.search(text)
    operator = f" of {found[1]}" if found else ""
    return errors.ModelRefused(
        f"the model cannot be converted from opset {before} to {after}: onnx has no adapter"
        f"{operator} ({text})"
        if found
        else f"the model cannot be converted from opset {before} to {after}: {text}",
        remedy=f"export it with opset {after}"
        + (", or convert to an opset between the two" if abs(after - before) > 1 else ""),
    )


def _restored(made: onnx.ModelProto, model: onnx.ModelProto) -> onnx.ModelProto:
    """Put back what the converter drops, and say shapes anew where it made values."""
    import onnx

    names = ("input", "output", "metadata_props", "quantization_annotation")
    places = [(made.graph, model.graph, name) for name in names]
    for there, here, name in [*places, (made, model, "metadata_props")]:
        del getattr(there, name)[:]
        getattr(there, name).extend(getattr(here, name))
    # It declares the values that it adds as scalars, whatever they are.
    for body in graph_values.walk(made.graph):
        del body.value_info[:]
    return onnx.shape_inference.infer_shapes(made)


# ------------------------------------------------------------------------------ IR version
def _stamp_ir(model: onnx.ModelProto, opset: int, limit: int | None) -> None:
    """Raise the IR version to what the opset came with, but not above ``limit``."""
    import onnx

    needed = onnx.helper.find_min_ir_version_for([onnx.helper.make_opsetid("", opset)])
    wanted = max(model.ir_version, needed)
    if limit is None or wanted <= limit:
        model.ir_version = wanted
        return
    if model.functions and limit < FUNCTIONS:
        raise errors.ModelRefused(
            f"the model has functions, which IR version {limit} does not know",
            remedy=f"export it without functions, or give IR version {FUNCTIONS} or later",
        )
    # Readers of an older IR version skip the fields that they do not know.
    model.ir_version = limit


def _check(model: onnx.ModelProto, before: int, after: int) -> None:
    import onnx

    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise errors.ModelRefused(
            f"converted from opset {before} to {after} the model is not valid: "
            f"{graph.first_line(error)}",
            remedy=f"export it with opset {after}",
        ) from error
