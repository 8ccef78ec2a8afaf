"""IR with weights of 8 or 4 bits and activations as they were, by NNCF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge import errors
from edge.convert import openvino_library as ov
from edge.convert.int8_static import plain
from edge.convert.openvino_golden import Golden
from edge.convert.openvino_ir import EXTRA
from edge.convert.openvino_nncf import quiet_nncf
from edge.step import Facts, step

# What is given back together, the least first: PP-OCR's rec has 12 dB with all weights in 8 bits,
# 16 without those of grouped convolutions, 31 with those of products alone.
GIVEN_BACK: tuple[tuple[str, ...], ...] = (
    (),
    ("GroupConvolution",),
    ("GroupConvolution", "Convolution"),
)
# With compressed weights the plug-in rounds activations to 8 bits as well, where a CPU has VNNI.
EXACT = {"INFERENCE_PRECISION_HINT": "f32", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}


@step(version=1, tools=("openvino", "nncf", "numpy"), timeout=3600, extra=EXTRA)
def openvino_weights(
    out: Path,
    *,
    model: Path,
    golden: Path,
    scheme: dict[str, Any],
    goal: float,
    release: str,
) -> Facts:
    """IR with the weights of products, embeddings and convolutions in 8 or 4 bits.

    ``scheme``: ``bits``, ``block_size``, ``symmetric``. With 8 bits a channel has one scale; with
    4 bits ``block_size`` values have, or fewer where that does not divide a channel, and layers
    that no block fits get 8 bits. ``goal``: SQNR in dB of the worst output over the samples of
    which ``golden`` is the index; where it is not reached, operators of ``GIVEN_BACK`` keep their
    weights, and where that does not help either, the best is made. Facts: ``operations``,
    ``bytes``, ``compressed`` (weights by type), ``kept`` (operators), ``sqnr_db``. Raises
    :class:`errors.ModelRefused` where nothing is compressed.
    """
    openvino, nncf = ov.module(release), quiet_nncf()
    judge = Golden(golden.parent)
    best: tuple[float, Any, Facts] | None = None
    for kept in GIVEN_BACK:
        read = ov.read(openvino, model, release)
        with ov.refused("cannot compress the weights", release):
            made = nncf.compress_weights(read, **_options(nncf, scheme, kept))
        found = small_weights(made)
        if not found:
            break
        db = judge.measure(ov.compiled(openvino, made, EXACT, release))
        if best is None or db > best[0]:
            best = db, made, {"compressed": found, "kept": list(kept), "sqnr_db": plain(db)}
        if db >= goal:
            break
    if best is None:
        raise errors.ModelRefused(
            "nothing to compress: no product, embedding or convolution with constant weights",
            remedy="use precision = 'fp16' or 'source'",
        )
    _, made, told = best
    ov.save(openvino, made, out)
    return {**ov.figures(made, out), **told}


def _options(nncf: Any, scheme: dict[str, Any], kept: tuple[str, ...]) -> dict[str, Any]:
    bits, kind = scheme["bits"], "SYM" if scheme["symmetric"] else "ASYM"
    plain_options = {
        "mode": getattr(nncf.CompressWeightsMode, f"INT{bits}_{kind}"),
        "ignored_scope": nncf.IgnoredScope(types=list(kept), validate=False),
    }
    if bits == 8:
        return plain_options
    advanced = nncf.AdvancedCompressionParameters(
        group_size_fallback_mode=nncf.GroupSizeFallbackMode.ADJUST
    )
    # all_layers: the first and the last have 8 bits otherwise, which may be all there are.
    blocks = {"group_size": scheme["block_size"], "ratio": 1.0, "all_layers": True}
    return {**plain_options, **blocks, "advanced_parameters": advanced}


def small_weights(model: Any) -> dict[str, int]:
    """Constants of 8 or 4 bits by their type: ``{"i8": 3}``."""
    found: dict[str, int] = {}
    for each in model.get_ops():
        if each.get_type_name() == "Constant":
            kind = each.get_element_type().get_type_name()
            found[kind] = found.get(kind, 0) + 1
    return {kind: found[kind] for kind in ("i4", "i8", "u4", "u8") if kind in found}
