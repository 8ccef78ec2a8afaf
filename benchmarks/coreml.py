"""Size and SQNR of Core ML packages at every precision, for small networks and real models.

Each model is built for targets that are targets/coreml.toml with another [coreml] and precision.
SQNR is that of the worst output over the golden samples, by the MIL reference executor: it is not
Apple's runtime. ``-`` is what the gate of the target's tolerance refused, with its figure. Needs
rapidocr's and silero-vad's models (the folders of their wheels), PyTorch and TensorFlow.

    python benchmarks/coreml.py RAPIDOCR_MODELS SILERO_DATA [--only NAME ...] [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from edge import bundle, log, process

ROOT = process.PACKAGE_PARENT
sys.path.insert(0, str(ROOT))  # for the networks, which tests have too
# What a column is called: precision, and what is said in [coreml].
COLUMNS = {
    "fp32": ("source", ""),
    "fp16": ("fp16", ""),
    "int8": ("int8-weights", ""),
    "int4": ("int4-weights", 'minimum_deployment_target = "iOS18"'),
    "palettized-8": ("int8-weights", "palettize = 8"),
    "palettized-6": ("int8-weights", "palettize = 6"),
    "palettized-4": ("int4-weights", "palettize = 4"),
}
REAL = {
    "ppocr-cls": ('"{rapidocr}/ch_ppocr_mobile_v2.0_cls_mobile.onnx"',
                  "inputs.x = {{ shape = [1, 3, 48, 192] }}"),
    "ppocr-rec": ('"{rapidocr}/PP-OCRv6_rec_small.onnx"',
                  "inputs.x = {{ shape = [1, 3, 48, 320] }}"),
    "ppocr-det": ('"{rapidocr}/PP-OCRv6_det_small.onnx"',
                  "inputs.x = {{ shape = [1, 3, 320, 320] }}"),
    "silero": ('"{silero}/silero_vad.onnx"',
               "inputs = {{ input.shape=[1, 576], state.shape=[2, 1, 128], sr.constant=16000 }}"),
    "magika": ('"pkg:magika/models/standard_v3_3/model.onnx"',
               "inputs.bytes = {{ shape = [1, 2048], range = [0, 256] }}"),
}  # fmt: skip
_REFUSED = re.compile(r"coreml-([a-z0-9-]+)/([a-z-]+): [^\n]*?SQNR (-?[0-9.]+|-inf) dB")


def target(precision: str, said: str) -> str:
    """The text of targets/coreml.toml with another precision and a line in [coreml]."""
    text = (ROOT / "targets" / "coreml.toml").read_text(encoding="utf-8")
    text = re.sub(r'(?m)^precision = "fp16"$', f'precision = "{precision}"', text)
    if key := said.partition(" ")[0]:
        text = re.sub(rf"(?m)^{key} = .*\n", "", text)
    return text.replace("[coreml]\n", f"[coreml]\n{said}\n")


def project(folder: Path, said: argparse.Namespace) -> list[str]:
    """A project with all models that are asked for, and the targets; the models' names."""
    from tests import coreml_nets
    from tests.sources import tensorflow_models

    nets = (ROOT / "tests" / "coreml_nets.py").read_text(encoding="utf-8")
    for name in coreml_nets.INPUTS:  # one each, see tests/test_coreml.py
        (folder / f"net_{name}.py").write_text(nets, encoding="utf-8")
    (folder / "targets").mkdir(exist_ok=True)
    for name, column in COLUMNS.items():
        (folder / "targets" / f"coreml-{name}.toml").write_text(target(*column))
    places = {"rapidocr": said.rapidocr.resolve(), "silero": said.silero.resolve()}
    models = {
        name: (f'"net_{name}:{name}"', f"inputs.x = {{ shape = {list(shape)} }}")
        for name, shape in coreml_nets.INPUTS.items()
    }
    models["keras"] = '"digits.keras"', "dims = { batch = 1 }"
    models |= {name: (a.format(**places), b.format(**places)) for name, (a, b) in REAL.items()}
    names = [name for name in models if not said.only or name in said.only]
    if "keras" in names and not (folder / "digits.keras").exists():
        tensorflow_models.train_digits(folder)
    for name in names:  # one each: a target is written whole or not at all
        text = f"[models.{name}]\nsource = {models[name][0]}\n{models[name][1]}\n"
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return names


def build(folder: Path, name: str) -> str:
    """What the build of a model for all targets printed; one that is refused stops no other."""
    words = [sys.executable, "-m", "edge", "build", "-j", "2", "-c", f"{name}.toml"]
    words += [word for name in COLUMNS for word in ("-t", f"coreml-{name}")]
    env = {**os.environ, "CI": "1", "PYTHONPATH": str(ROOT)}
    done = process.run(words, cwd=folder, env=env, timeout=7200, check=False)
    return done.stdout + done.stderr


def cell(folder: Path, name: str, column: str, refused: dict[tuple[str, str], str]) -> str:
    """Size and SQNR of one bundle, with how much of it is fp32."""
    place = folder / "dist" / name / "0" / f"coreml-{column}"
    if not (place / bundle.MANIFEST).exists():
        return f"- ({refused.get((column, name), 'refused')} dB)"
    manifest = json.loads((place / bundle.MANIFEST).read_text())
    size = log.human_bytes(manifest["sizes"]["artifact"]["raw"])
    return f"{size}, {worst(manifest)} dB{kept(manifest['runtime'])}"


def worst(manifest: dict[str, Any]) -> str:
    """SQNR of the worst output."""
    outputs = manifest["parity"][-1]["outputs"]
    found = [float(each["sqnr_db"]) for each in outputs if each["sqnr_db"] is not None]
    return f"{min(found):.1f}" if found else "?"


def kept(runtime: dict[str, Any]) -> str:
    """How many operations of a package in half precision are in single precision."""
    names = runtime.get("fp32_operations")
    return f" ({'all' if names == ['all'] else len(names)} fp32)" if names else ""


def main() -> None:
    """Build and print a Markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rapidocr", type=Path)
    parser.add_argument("silero", type=Path)
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--keep", type=Path, help="a folder for project and bundles")
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        folder = said.keep.resolve() if said.keep else Path(work)
        folder.mkdir(parents=True, exist_ok=True)
        names = project(folder, said)
        print("| model | " + " | ".join(COLUMNS) + " |")
        print("| --- |" + " --- |" * len(COLUMNS))
        for name in names:
            found = _REFUSED.findall(build(folder, name))
            refused = {(column, model): db for column, model, db in found}
            cells = [cell(folder, name, column, refused) for column in COLUMNS]
            print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
