"""What a build costs when nothing changed, against what a user would run instead.

Instead of ``edge build`` a release script calls ONNX Runtime's converter each time. Interleaved,
as whole processes; the ratio is what counts.

    python benchmarks/second_build.py [RUNS]
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from edge import process
from edge.sources.locate import locate

ROOT = process.PACKAGE_PARENT


def seconds(words: list[str], folder: Path, environment: dict[str, str]) -> float:
    """Wall seconds of one process."""
    started = time.perf_counter()
    process.run(words, cwd=folder, env=environment, timeout=600)
    return time.perf_counter() - started


def main() -> None:
    """Print medians and the median of the pairwise ratios."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        environment = {**os.environ, "CI": "1"}
        (folder / "edge.toml").write_text((ROOT / "edge.toml").read_text())
        (folder / "model.onnx").write_bytes(
            locate("pkg:magika/models/standard_v3_3/model.onnx", folder).path.read_bytes()
        )
        build = [sys.executable, str(ROOT / "build.py"), "--target", "all"]
        convert = [sys.executable, "-m", "onnxruntime.tools.convert_onnx_models_to_ort"]
        convert += ["model.onnx", "--output_dir", "out", "--optimization_style", "Fixed"]
        empty = [sys.executable, "-c", "pass"]
        print(f"first build of five targets: {seconds(build, folder, environment):.2f} s")
        rows = [
            [seconds(words, folder, environment) for words in (build, convert, empty)]
            for _ in range(runs)
        ]
    again, one, start = (statistics.median(column) for column in zip(*rows, strict=True))
    ratio = statistics.median(row[0] / row[1] for row in rows)
    print(f"second build of five targets: {again:.2f} s ({again - start:.2f} s beyond Python's)")
    print(f"the converter alone, one target: {one:.2f} s")
    print(f"ratio, pair by pair: {ratio:.2f}")


if __name__ == "__main__":
    main()
