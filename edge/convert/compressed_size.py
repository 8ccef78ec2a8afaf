"""What a file costs to download: its size under gzip -9."""

from __future__ import annotations

import zlib
from pathlib import Path

from edge import process
from edge.step import Facts, step
from edge.store import CHUNK

# The gzip container's header and trailer, without a file name (RFC 1952).
GZIP_OVERHEAD = 18


# Builds of zlib (zlib-ng) differ by a per mille, so its version is part of the key.
@step(version=1, tools=("zlib",), isolated=False)
def compressed_size(out: Path, *, file: Path) -> Facts:
    """Facts: ``raw`` and ``compressed``, bytes of the file and of the file under gzip -9."""
    del out  # facts only
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    raw, packed = 0, GZIP_OVERHEAD
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            process.refuse_when_stopping()
            raw += len(chunk)
            packed += len(packer.compress(chunk))
    return {"raw": raw, "compressed": packed + len(packer.flush())}
