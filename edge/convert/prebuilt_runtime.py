"""The official prebuilt mobile runtimes: what is in them, and how a bundle carries them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from edge import errors
from edge.step import Facts, step
from edge.tools.prebuilt import NativeLibrary, read_aar, read_xcframework, xcframework_zip

XCFRAMEWORK = "onnxruntime.xcframework.zip"
# Devices of these have pages of 16 KB from Android 15 on, and Google Play asks for it:
# https://developer.android.com/guide/practices/page-sizes
LARGE_PAGES = ("arm64-v8a", "x86_64")


@step(version=1, isolated=False)
def android_libraries(out: Path, *, aar: Path, abis: list[str], built: bool) -> Facts:
    """What the AAR holds for these ABIs, sizes in bytes.

    Facts: ``libraries`` (size, compressed, page alignment each), ``first_abi`` (``raw`` and
    ``compressed`` bytes of all libraries of the first ABI). One that was ``built`` has to load
    on pages of 16 KB where the ABI has 64 bits, else :class:`errors.StepFailed`.
    """
    del out  # facts only
    libraries = read_aar(aar).of(abis)
    if built:
        _refuse_small_pages(libraries)
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


def _refuse_small_pages(libraries: Sequence[NativeLibrary]) -> None:
    small = [
        f"{each.abi}/{each.name} ({each.alignment})"
        for each in libraries
        if each.abi in LARGE_PAGES and not each.loads_on_16k_pages
    ]
    if small:
        raise errors.StepFailed(
            f"built libraries are not aligned to pages of 16 KB (16384): {', '.join(small)}",
            remedy="build with the Android NDK 27 or newer",
        )


@step(version=1, tools=("zlib",), isolated=False)
def pack_xcframework(out: Path, *, source: Path, slices: list[str]) -> Facts:
    """``onnxruntime.xcframework.zip`` with the wanted slices, always the same bytes.

    Facts: ``checksum`` (what SwiftPM compares) and ``slices``, sizes in bytes.
    """
    checksum = xcframework_zip(source, out / XCFRAMEWORK, slices=slices)
    kept = read_xcframework(out / XCFRAMEWORK).slices
    return {"checksum": checksum, "slices": [asdict(each) for each in kept]}
