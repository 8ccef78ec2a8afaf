"""OpenVINO IR: from the canonical ONNX, and from IR with weights in fp16.

``model.xml`` is the graph, ``model.bin`` its weights. Neither holds a path or a time; ``rt_info``
has the releases of OpenVINO and NNCF, and NNCF's options.
"""

from __future__ import annotations

from pathlib import Path

from edge.convert import openvino_library as ov
from edge.step import Facts, step

EXTRA = "openvino"


@step(version=1, tools=("openvino",), timeout=1800, extra=EXTRA)
def openvino_ir(out: Path, *, model: Path, release: str) -> Facts:
    """``model.xml`` and ``model.bin`` from an ONNX file, weights as they are.

    Facts: ``operations`` (constants not counted) and ``bytes`` (of both files). Raises
    :class:`errors.ModelRefused` with OpenVINO's own reason.
    """
    openvino = ov.module(release)
    read = ov.read(openvino, model, release)
    ov.simplify(read)
    ov.save(openvino, read, out)
    return ov.figures(read, out)


@step(version=1, tools=("openvino",), timeout=1800, extra=EXTRA)
def openvino_fp16(out: Path, *, model: Path, release: str) -> Facts:
    """IR with its fp32 weights in fp16, as OpenVINO's ``compress_to_fp16`` does; facts as above.

    Weights that fp16 cannot hold stay as they are. What is computed in is the target's
    ``inference_precision``, not this.
    """
    openvino = ov.module(release)
    read = ov.read(openvino, model, release)
    ov.save(openvino, read, out, half=True)
    return ov.figures(read, out)
