"""Magika and PP-OCR at every precision: size, SQNR and p50 in one interleaved run a model.

Builds for linux-x64 (or TARGET) with ``precision = "auto"`` and prints the report's table, with
what was chosen and why the others lost. Calibrated on real inputs: files of this Python for
Magika, lines of text that are drawn for PP-OCR (docstrings to calibrate, the Zen of Python to
prove). Needs Pillow beside the project's own environment, and the folder of rapidocr's models
(pip download rapidocr; the wheel's rapidocr/models).

    python benchmarks/precision.py MODELS_FOLDER [--target TARGET] [--prefer p50] [--only NAME]
"""

from __future__ import annotations

import argparse
import builtins
import codecs
import contextlib
import io
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from edge import process

Array = np.ndarray[Any, Any]
PROVEN, CALIBRATED = 10, 100
MODELS = {
    "ppocr-cls": ("ch_ppocr_mobile_v2.0_cls_mobile.onnx", (48, 192), 24),
    "ppocr-rec": ("PP-OCRv6_rec_small.onnx", (48, 320), 24),
    "ppocr-det": ("PP-OCRv6_det_small.onnx", (320, 320), 18),
}


def lines_to_prove() -> list[str]:
    """The Zen of Python, line by line."""
    with contextlib.redirect_stdout(io.StringIO()):
        import this
    text = codecs.decode(this.s, "rot13")
    return [line for line in text.splitlines() if line.strip()]


def lines_to_calibrate() -> list[str]:
    """First lines of the docstrings of Python's built-ins."""
    known = (getattr(builtins, name).__doc__ for name in dir(builtins))
    return [text.strip().splitlines()[0][:60] for text in known if text and text.strip()]


def drawn(lines: list[str], size: tuple[int, int], points: int, count: int) -> Iterator[Array]:
    """float32 [1, 3, height, width] in [-1, 1]: dark text on light ground, as many lines as fit."""
    from PIL import Image, ImageDraw, ImageFont

    height, width = size
    font = ImageFont.load_default(points)
    for number in range(count):
        image = Image.new("RGB", (width, height), (235, 235, 230))
        pen = ImageDraw.Draw(image)
        for row in range(max(1, height // (2 * points))):
            text = lines[(number + row * 7) % len(lines)]
            pen.text((6, 8 + 2 * points * row), text, fill=(30, 30, 60), font=font)
        if number % 4 == 3:  # as the classifier of directions meets them
            image = image.rotate(180)
        pixels = np.asarray(image, np.float32).transpose(2, 0, 1)[None]
        yield pixels / 127.5 - 1


def files_as_bytes(count: int, skip: int) -> Iterator[Array]:
    """int32 [1, 2048]: the first and the last 1,024 bytes of a file, 256 where it is shorter."""
    places = Path(sysconfig.get_path("stdlib"))
    found = sorted(path for path in places.rglob("*") if path.is_file())[skip :: len("edgewright")]
    for path in found[:: max(1, len(found) // count)][:count]:
        content = path.read_bytes()
        ends = (content.lstrip()[:1024], content.rstrip()[-1024:])
        padded = np.full(2048, 256, np.int32)
        padded[: len(ends[0])] = np.frombuffer(ends[0], np.uint8)
        padded[2048 - len(ends[1]) :] = np.frombuffer(ends[1], np.uint8)
        yield padded[None]


def write(folder: Path, name: str, key: str, samples: Iterator[Array]) -> None:
    """``NAME.npz`` in the samples' form."""
    arrays: dict[str, Any] = {f"{key}/{n}": each for n, each in enumerate(samples)}
    np.savez(folder / f"{name}.npz", **arrays)


def project(folder: Path, models: Path, said: argparse.Namespace) -> None:
    """``edge.toml`` with the models, and their data beside it."""
    text = f'[targets.{said.target}]\nprecision = "auto"\nchoice.prefer = "{said.prefer}"\n'
    if said.only in ("", "magika"):
        write(folder, "magika-proven", "bytes", files_as_bytes(PROVEN, 0))
        write(folder, "magika-calibrated", "bytes", files_as_bytes(CALIBRATED, 5))
        text += """
[models.magika]
source = "pkg:magika/models/standard_v3_3/model.onnx"
samples = "magika-proven.npz"
calibration = "magika-calibrated.npz"
inputs.bytes = { shape = [1, 2048] }
"""
    for name, (file, size, points) in MODELS.items():
        if said.only not in ("", name):
            continue
        proven = drawn(lines_to_prove(), size, points, PROVEN)
        write(folder, f"{name}-proven", "x", proven)
        calibrated = drawn(lines_to_calibrate(), size, points, CALIBRATED)
        write(folder, f"{name}-calibrated", "x", calibrated)
        text += f"""
[models.{name}]
source = "{models.resolve() / file}"
samples = "{name}-proven.npz"
calibration = "{name}-calibrated.npz"
inputs.x = {{ shape = [1, 3, {size[0]}, {size[1]}] }}
"""
    (folder / "edge.toml").write_text(text)


def main() -> None:
    """Build at every precision and report."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", type=Path)
    parser.add_argument("--target", default="linux-x64")
    parser.add_argument("--prefer", default="size", choices=("size", "p50"))
    parser.add_argument("--only", default="", choices=("", "magika", *MODELS))
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        project(Path(place), said.models, said)
        for words in (["build", "-t", said.target, "-j", "1"], ["report"]):
            argv = [sys.executable, "-m", "edge", *words]
            done = process.run(argv, cwd=Path(place), timeout=7200, check=False)
            print(done.stderr, flush=True)


if __name__ == "__main__":
    main()
