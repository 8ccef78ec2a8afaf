"""What a device can load: its Python, that Python's packages, and shared libraries."""

from __future__ import annotations

import re
from collections.abc import Mapping

from edge.probe.asking import Lines

# Distributions that bundles' Python runners may need, by normalized name (PEP 503).
PACKAGES = (
    "onnxruntime", "onnxruntime-gpu", "onnxruntime-openvino", "onnxruntime-directml", "openvino",
    "tensorrt", "tensorrt-cu12", "tensorrt-cu13", "tensorrt-rtx", "numpy",
)  # fmt: skip
# How the names of libraries begin that bundles may need, after "lib".
FAMILIES = (
    "cuda", "cublas", "cudnn", "cufft", "cupti", "curand", "cusolver", "cusparse", "nccl",
    "nvidia-ml", "nvinfer", "nvJitLink", "nvonnxparser", "nvrtc", "tensorrt", "openvino",
    "OpenCL", "ze_loader", "stdc",
)  # fmt: skip
MAX_LIBRARIES = 500

# Only metadata: importing onnxruntime takes seconds and may crash on an old CPU. The folders are
# those that pip's packages of CUDA, cuDNN and TensorRT use. A Python without importlib.metadata
# (before 3.8) gives its version alone. In "": no $, `, \ or " in it.
_CODE = f"""
import glob, platform, sys
import importlib.metadata as m
print('Python', platform.python_version())
for n in '{" ".join(PACKAGES)}'.split():
 try: print('package', n, m.version(n))
 except Exception: pass
for p in filter(None, sys.path):
 for d in 'nvidia/*/lib', 'tensorrt*libs':
  for f in glob.glob(glob.escape(p) + '/' + d + '/lib*.so.*'): print('library', f.split('/')[-1])
print('complete')
"""
PYTHON = f'"$4" -c "{_CODE}" || "$4" -V 2>&1'
# ldconfig is not on the PATH of every login; LD_LIBRARY_PATH is read before its cache.
LIBRARIES = (
    '( PATH="$PATH:/sbin:/usr/sbin"\n'
    f"ldconfig -p | grep -E 'libs found|lib({'|'.join(FAMILIES)})'\n"
    "IFS=:\nfor d in $LD_LIBRARY_PATH; do\n"
    'for f in "$d"/lib*.so.*; do [ -e "$f" ] && echo "path ${f##*/}"; done\ndone )'
)

_SONAME = re.compile(rf"lib(?:{'|'.join(FAMILIES)})[0-9A-Za-z_+.-]{{0,80}}\.so(?:\.[0-9]{{1,9}})+")
# CUDA is 64-bit alone; without a word for the architecture a library is of 32-bit x86.
_CACHED = re.compile(r"(\S+) \([^)]*(?:x86-64|AArch64)[^)]*\) => .*")


def python(lines: Lines) -> str | None:
    """The version that Python says it has, such as ``3.11.2``."""
    for line in lines:
        if found := re.fullmatch(r"Python ([0-9]+\.[0-9]+[0-9A-Za-z.+]*)", line):
            return found[1][:40]
    return None


def packages(lines: Lines) -> Mapping[str, str] | None:
    """Versions by name of those of ``PACKAGES`` that there are; None where that is not known."""
    if "complete" not in lines:
        return None
    found = {}
    for line in lines:
        word, _, rest = line.partition(" ")
        name, _, version = rest.partition(" ")
        if word == "package" and name in PACKAGES and re.fullmatch(r"[0-9][\w.+!-]{0,60}", version):
            found[name] = version
    return found


def onnxruntime(lines: Lines) -> str | None:
    """The version of the package ``onnxruntime``."""
    return (packages(lines) or {}).get("onnxruntime")


def is_known(library: str) -> bool:
    """Whether libraries of that name are looked for on devices."""
    return bool(_SONAME.fullmatch(library))


def libraries(lines: Lines) -> tuple[str, ...] | None:
    """Names such as ``libcudnn.so.9`` that the loader finds, sorted; None without ldconfig."""
    names = set()
    for line in lines:
        if cached := _CACHED.fullmatch(line):
            names.add(cached[1])
        elif line.startswith("path "):
            names.add(line[5:])
    known = any("libs found" in line for line in lines)
    return _some(names) if known or names else None


def python_libraries(lines: Lines) -> tuple[str, ...]:
    """Names of the libraries in pip's packages of CUDA, cuDNN and TensorRT, sorted."""
    return _some({line[8:] for line in lines if line.startswith("library ")})


def _some(names: set[str]) -> tuple[str, ...]:
    return tuple(sorted(name for name in names if is_known(name))[:MAX_LIBRARIES])
