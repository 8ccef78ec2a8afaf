"""A trtexec, and a Python package ``tensorrt``, for machines without a GPU.

``trtexec``: reads the options that TensorRT 10's ``--help`` lists, refuses all others as the real
one does ("Unknown option"), demands what the real one demands, and writes a "plan" that holds what
it was asked for. Its first line and its errors have the real one's form (samples/trtexec and
samples/common/logger of NVIDIA/TensorRT).

``nvidia-smi``: one GPU. ``python3 -c "import tensorrt"``: TensorRT-RTX under TensorRT's name,
where it is installed: builder, network, parser, profiles and timing cache have the same interface.
"""

from __future__ import annotations

import sys
from pathlib import Path

GPU = "NVIDIA RTX A4000, 8.6, 580.95.05"
TRTEXEC = """\
import json, os, sys
HEADER = "&&&& {} TensorRT.trtexec [TensorRT v101601] [b11] # trtexec"
KNOWN = ("onnx", "saveEngine", "stronglyTyped", "noTF32", "minShapes", "optShapes", "maxShapes",
         "timingCacheFile", "skipInference", "builderOptimizationLevel", "memPoolSize", "sparsity",
         "hardwareCompatibilityLevel")
print(HEADER.format("RUNNING"), flush=True)
words = sys.argv[1:]
if words == ["--help"]:
    sys.exit("=== Model Options ===" if os.environ.get("FAKE_TRTEXEC") == "broken" else 0)

def fail(message):
    print("[12/01/2026-00:00:00] [E] " + message)
    print(HEADER.format("FAILED"), flush=True)
    sys.exit(1)

given = dict(word[2:].partition("=")[::2] for word in words)
for name in given:
    if name not in KNOWN:
        fail(f"Unknown option: --{name} {given[name]}")
for name in ("onnx", "saveEngine"):
    if not given.get(name):
        fail(f"Option missing: --{name}")
if os.environ.get("FAKE_TRTEXEC") == "refuses":
    fail("[graphShapeAnalyzer.cpp::analyzeShapes::2084] Error Code 4: Miscellaneous (bad model)")
if os.environ.get("FAKE_TRTEXEC") == "nothing":
    sys.exit(0)
cache = given.get("timingCacheFile")
seen = open(cache).read() if cache and os.path.exists(cache) else ""
if cache:
    with open(cache, "w") as stream:
        stream.write(seen + "x")
model = open(given["onnx"], "rb").read()
with open(given["saveEngine"], "w") as stream:
    json.dump({"words": words, "model": len(model), "cache": len(seen)}, stream)
print(HEADER.format("PASSED"))
"""
TENSORRT = "from tensorrt_rtx import *\nfrom tensorrt_rtx import __version__\n"


def programs(folder: Path, *, gpu: str = GPU) -> Path:
    """A folder for the PATH with ``trtexec`` and ``nvidia-smi``; it is made."""
    folder.mkdir(parents=True)
    _program(folder / "trtexec", f"#!{sys.executable}\n{TRTEXEC}")
    answer = f"echo '{gpu}'" if gpu else "echo 'No devices were found'; exit 6"
    _program(folder / "nvidia-smi", f"#!/bin/sh\n{answer}\n")
    return folder


def package(folder: Path) -> Path:
    """A folder for PYTHONPATH with the module ``tensorrt``; it is made."""
    folder.mkdir(parents=True)
    (folder / "tensorrt.py").write_text(TENSORRT)
    return folder


def _program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
