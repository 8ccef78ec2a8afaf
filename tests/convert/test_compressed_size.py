"""The compressed size is that of a file made by gzip -9."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import pytest

from edge.convert.compressed_size import compressed_size


def gzip_length(data: bytes) -> int:
    sink = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, sink, mtime=0) as packer:
        packer.write(data)
    return len(sink.getvalue())


@pytest.mark.parametrize("data", [b"", b"a", b"weights " * 300_000])
def test_it_is_that_of_a_gzip_file(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    facts = compressed_size.function(tmp_path, file=path)
    assert facts == {"raw": len(data), "compressed": gzip_length(data)}
