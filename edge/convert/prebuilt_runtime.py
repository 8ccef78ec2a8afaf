"""The official prebuilt mobile runtimes: what is in them, and how a bundle carries them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from edge.step import Facts, step
from edge.tools.prebuilt import read_aar, read_xcframework, xcframework_zip

XCFRAMEWORK = "onnxruntime.xcframework.zip"


@step(version=1, isolated=False)
def android_libraries(out: Path, *, aar: Path, abis: list[str]) -> Facts:
    """What the AAR holds for these ABIs, sizes in bytes.

    Facts: ``libraries`` (size, compressed, page alignment each), ``first_abi`` (``raw`` and
    ``compressed`` bytes of all libraries of the first ABI).
    """
    del out  # facts only
    libraries = read_aar(aar).of(abis)
    first = [each for each in libraries if each.abi == abis[0]]
    return {
        "first_abi": {
            "raw": sum(each.size for each in first),
            "compressed": sum(each.compressed for each in first),
        },
        "libraries": [
            {**asdict(each), "loads_on_16k_pages": each.loads_on_16k_pages} for each in libraries
        ],
    }


@step(version=1, tools=("zlib",), isolated=False)
def pack_xcframework(out: Path, *, source: Path, slices: list[str]) -> Facts:
    """``onnxruntime.xcframework.zip`` with the wanted slices, always the same bytes.

    Facts: ``checksum`` (what SwiftPM compares) and ``slices``, sizes in bytes.
    """
    checksum = xcframework_zip(source, out / XCFRAMEWORK, slices=slices)
    kept = read_xcframework(out / XCFRAMEWORK).slices
    return {"checksum": checksum, "slices": [asdict(each) for each in kept]}
