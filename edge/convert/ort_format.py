"""ORT format: the flatbuffer that ONNX Runtime's mobile, web and reduced builds load.

``onnxruntime.tools.convert_onnx_models_to_ort`` (in the wheel; the successor of the package
onnxruntime-tools, which ended in 2021). It logs success without looking at its product, so the
product is looked at here: it must exist and carry the identifier ``ORTM``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from edge import errors, process
from edge.convert.ort_canonical import canonical
from edge.model import FORMAT_LIMIT_BYTES
from edge.step import Facts, step

IDENTIFIER = b"ORTM"
LEVEL = {"all": "", "extended": ".extended", "basic": ".basic"}
SUFFIX = {"Fixed": ".ort", "Runtime": ".with_runtime_opt.ort"}


@step(version=1, tools=("onnx", "onnxruntime", "flatbuffers"), timeout=1800)
def ort_format(out: Path, *, model: Path, style: str, target_platform: str, level: str) -> Facts:
    """``model.ort``. ``style``: Fixed bakes every fusion in, Runtime leaves them to the device.

    ``target_platform`` arm keeps x86 layouts (NCHWc) and int8 rewrites out; ``level`` is the
    optimization level. Facts: these, and ``one_spelling`` (see ``edge.convert.ort_canonical``).
    Raises :class:`errors.ModelRefused` above the format's 2 GB.
    """
    if model.stat().st_size > FORMAT_LIMIT_BYTES:
        raise errors.ModelRefused(
            "the model is larger than 2 GB, which the ORT format cannot hold",
            remedy="use a smaller precision, or a target that ships ONNX files",
        )
    with tempfile.TemporaryDirectory(prefix="work-", dir=out.parent) as folder:
        work = Path(folder)
        shutil.copyfile(model, work / "model.onnx")
        _convert(work, style, target_platform, level)
        made = work / "out" / f"model{LEVEL[level]}{SUFFIX[style]}"
        _look(made)
        data, one_spelling = canonical(made.read_bytes())
        (out / "model.ort").write_bytes(data)
    options = {"style": style, "target_platform": target_platform, "level": level}
    return {**options, "one_spelling": one_spelling}


def _convert(work: Path, style: str, target_platform: str, level: str) -> None:
    words = [sys.executable, "-P", "-m", "onnxruntime.tools.convert_onnx_models_to_ort"]
    words += ["model.onnx", "--output_dir", "out", "--optimization_style", style]
    words += ["--target_platform", target_platform]
    environment = {**os.environ, "ORT_CONVERT_ONNX_MODELS_TO_ORT_OPTIMIZATION_LEVEL": level}
    process.run(words, cwd=work, timeout=1700, env=environment)


def _look(made: Path) -> None:
    try:
        with made.open("rb") as stream:
            head = stream.read(8)
    except OSError as error:
        raise errors.StepFailed(
            "the converter said that it succeeded but wrote no ORT-format file"
        ) from error
    if head[4:8] != IDENTIFIER:
        raise errors.StepFailed("the converter wrote a file that is not in ORT format")
