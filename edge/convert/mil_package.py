"""A Core ML package from ONNX: the program of ``edge.convert.onnx_to_mil``, saved by coremltools.

What coremltools writes differs from run to run: the date in the metadata, random identifiers in
``Manifest.json``, the order of maps in the protobuf. Here none of it does.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from edge import errors
from edge.convert import coremltools_library, onnx_to_mil
from edge.step import Facts, step

PACKAGE = "model.mlpackage"
DATA = Path("Data") / "com.apple.CoreML"
PRECISIONS = ("fp16", "fp32")
PORTS = "edgewright.ports"  # key of the names' map in the package's metadata
DATE = "com.github.apple.coremltools.conversion_date"
# Of identifiers that are made from content, not drawn.
NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "edgewright:mlpackage")


@step(version=2, tools=("coremltools", "onnx", "numpy"), timeout=3600, extra="coreml")
def mil_package(out: Path, *, model: Path, options: dict[str, Any]) -> Facts:
    """``model.mlpackage`` (an ML Program) from an ONNX file whose sizes are all fixed.

    ``options``: ``minimum_deployment_target`` (of onnx_to_mil.TARGETS), ``compute_precision``
    ("fp16": weights and activations are rounded; "fp32"), ``fp32_operations`` (what stays in fp32
    of an fp16 package: types of MIL operations, or names of ONNX outputs as the package has them).
    Facts: ``inputs`` and ``outputs`` (ports with both names), ``operators`` (converted, ONNX's),
    ``folded``, ``operations`` (of the saved program, MIL's), ``specification_version``, ``bytes``.
    Raises :class:`errors.ModelRefused` naming node, operator, opset and reason.
    """
    import onnx

    target, precision = options["minimum_deployment_target"], options["compute_precision"]
    made = onnx_to_mil.convert(onnx.load(model), target=target)
    ports = {
        "inputs": [port.to_json() for port in made.inputs],
        "outputs": [port.to_json() for port in made.outputs],
    }
    kept = tuple(options.get("fp32_operations", ()))
    packed = convert_program(made.program, target=target, precision=precision, fp32=kept)
    packed.user_defined_metadata[PORTS] = json.dumps(ports, sort_keys=True)
    save_package(packed, out / PACKAGE)
    return {
        **ports,
        "operators": made.operators,
        "folded": made.folded,
        "operations": operations(packed),
        "specification_version": int(packed.get_spec().specificationVersion),
        "bytes": sum(path.stat().st_size for path in (out / PACKAGE).rglob("*") if path.is_file()),
    }


def convert_program(
    program: Any, *, target: str, precision: str, fp32: tuple[str, ...] = ()
) -> Any:
    """A MIL program as a coremltools model, after coremltools' own passes."""
    ct = coremltools_library.module()
    if precision not in PRECISIONS:
        raise errors.UsageError(
            f"no compute_precision {precision!r}", remedy="known: " + ", ".join(PRECISIONS)
        )
    wanted = ct.precision.FLOAT32
    if precision == "fp16":
        wanted = ct.transform.FP16ComputePrecision(op_selector=_halved(fp32))
    # coremltools numbers operations that have no name, and forgets where it was after a conversion
    # alone: whatever else built some in this process would be seen in the package.
    coremltools_library.builder().name_count.clear()
    with coremltools_library.silent():
        return ct.convert(
            program,
            source="milinternal",
            convert_to="mlprogram",
            minimum_deployment_target=getattr(ct.target, target),
            compute_precision=wanted,
            skip_model_load=True,
        )


def _halved(fp32: tuple[str, ...]) -> Callable[[Any], bool]:
    """Which operations are computed in half precision."""
    kept = set(fp32)

    def halved(op: Any) -> bool:
        return not kept & {op.op_type, op.name, *(var.name for var in op.outputs)}

    return halved


def operations(model: Any) -> dict[str, int]:
    """How many operations of which type a coremltools model holds; constants not counted."""
    counts: Counter[str] = Counter()
    for function in model.get_spec().mlProgram.functions.values():
        blocks = list(function.block_specializations.values())
        while blocks:
            block = blocks.pop()
            for each in block.operations:
                counts[each.type] += 1
                blocks += each.blocks
    del counts["const"]
    return dict(sorted(counts.items()))


# ------------------------------------------------------------------------------------- writing
def save_package(model: Any, package: Path) -> None:
    """Write a coremltools model (an ML Program) as ``package``: the same model, the same bytes."""
    spec = model.get_spec()
    # The day of the conversion, which the same conversion tomorrow would not have.
    spec.description.metadata.userDefined.pop(DATE, None)
    (package / DATA / "weights").mkdir(parents=True)
    stored = Path(model.weights_dir) / "weight.bin" if model.weights_dir else None
    if stored is not None and stored.is_file():
        shutil.copyfile(stored, package / DATA / "weights" / "weight.bin")
    (package / DATA / "model.mlmodel").write_bytes(spec.SerializeToString(deterministic=True))
    text = json.dumps(manifest(package), indent=4, sort_keys=True)
    (package / "Manifest.json").write_text(text + "\n", encoding="utf-8")


def manifest(package: Path) -> dict[str, Any]:
    """``Manifest.json`` of a package, its identifiers made from what they identify."""
    digest = hashlib.sha256()
    for path in sorted(each for each in (package / DATA).rglob("*") if each.is_file()):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    entries = {
        "model.mlmodel": "CoreML Model Specification",
        "weights": "CoreML Model Weights",
    }
    found = {}
    for name, description in entries.items():
        identifier = str(uuid.uuid5(NAMESPACE, f"{digest.hexdigest()}:{name}"))
        found[identifier] = {
            "author": "com.apple.CoreML",
            "description": description,
            "name": name,
            "path": f"com.apple.CoreML/{name}",
        }
    root = next(key for key, entry in found.items() if entry["name"] == "model.mlmodel")
    return {"fileFormatVersion": "1.0.0", "itemInfoEntries": found, "rootModelIdentifier": root}
