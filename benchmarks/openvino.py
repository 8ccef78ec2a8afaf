"""OpenVINO, ONNX Runtime's OpenVINO provider and ONNX Runtime's CPU, in one interleaved run.

For each real model the bundles of openvino-x64, openvino-ort-x64 and linux-x64. A round is a fresh
process of the Python runner for each of them, with and without a folder to keep compiled models
in, each round beginning with another one. Cold start is session creation and the first run, in a
process that has Python and the libraries in memory; with the cache from the second round on, the
first fills it. One thread; ratios are of the two medians of a round, their interval is from
edge.stats. Needs rapidocr's and silero-vad's models (the folders of their wheels).

    python benchmarks/openvino.py RAPIDOCR_MODELS SILERO_DATA [--rounds N] [--only NAME]
        [--precision PRECISION]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from edge import bundle, errors, log, process, protocol, stats
from edge.store import Store, default_root
from edge.tools.environment import environment

ROOT = process.PACKAGE_PARENT
TARGETS = {
    "OpenVINO": "openvino-x64",
    "ORT-OpenVINO": "openvino-ort-x64",
    "ORT CPU": "linux-x64",
}
WARM_NS, LOOP_NS = 60_000_000, 120_000_000
LEAST = 5  # runs of a loop, however long they take
ROUNDS = 30  # below that edge.stats gives no interval
PPM = 1_000_000  # edge.stats takes integers
MODELS = {
    "magika": ('"pkg:magika/models/standard_v3_3/model.onnx"',
               "inputs.bytes = {{ shape = [1, 2048], range = [0, 256] }}"),
    "silero": ('"{silero}/silero_vad.onnx"',
               "inputs = {{ input.shape=[1, 576], state.shape=[2, 1, 128], sr.constant=16000 }}"),
    "ppocr-cls": ('"{rapidocr}/ch_ppocr_mobile_v2.0_cls_mobile.onnx"',
                  "inputs.x = {{ shape = [1, 3, 48, 192] }}"),
    "ppocr-rec": ('"{rapidocr}/PP-OCRv6_rec_small.onnx"',
                  "inputs.x = {{ shape = [1, 3, 48, 320] }}"),
    "ppocr-det": ('"{rapidocr}/PP-OCRv6_det_small.onnx"',
                  "inputs.x = {{ shape = [1, 3, 320, 320] }}"),
}  # fmt: skip


@dataclass
class Way:
    """One engine, with or without a cache, and what its processes gave, round by round.

    ``loops`` are timed runs, ``cold`` session creation and first run, in ns.
    """

    name: str
    words: tuple[str, ...]
    size: str
    cache: Path | None = None
    loops: list[tuple[int, ...]] = field(default_factory=list)
    cold: list[int] = field(default_factory=list)

    def run(self) -> None:
        """One more process; refuses one that did not take what the cache holds."""
        more = ["--cache", str(self.cache)] if self.cache else []
        run = protocol.parse(process.run([*self.words, *more], timeout=300).stdout)
        if self.cache and self.loops and run.cached is False:
            raise errors.RunFailed(f"{self.name}: the kept model was not used")
        self.loops.append(run.samples_ns)
        self.cold.append(run.load_ns + run.first_ns)

    @property
    def start(self) -> list[int]:
        """Cold starts that count: with a cache all but the one that filled it."""
        return self.cold[1:] if self.cache else self.cold


def ways(project: Path, model: str, caches: Path) -> list[Way]:
    """The bundles' Python runners, those of OpenVINO also with a cache."""
    made = []
    for name, target in TARGETS.items():
        folder = project / "dist" / model / "0" / target
        manifest = bundle.verify(folder)
        needs = manifest["runtime"].get("python") or ()
        apart = target == "openvino-ort-x64"
        python = environment(Store(default_root()), needs, needed={}).python if apart else None
        words = [str(python or sys.executable), str(folder / "runner" / "edge_runner.py")]
        words += ["--bundle", str(folder), "--provider", manifest["provider"]]
        words += ["--warmup-ns", str(WARM_NS), "--warmup-limit-ns", str(WARM_NS)]
        words += ["--iterations", str(LEAST), "--min-ns", str(LOOP_NS), "--threads", "1"]
        size = log.human_bytes(manifest["sizes"]["artifact"]["raw"])
        made.append(Way(name, tuple(words), size))
        if target != "linux-x64":
            cache = caches / f"{model}-{target}"
            cache.mkdir()
            made.append(Way(f"{name}, cache", tuple(words), size, cache))
    return made


def rounds(found: Sequence[Way], count: int) -> None:
    """``count`` processes of each way, in turn."""
    for number in range(count):
        start = number % len(found)
        for way in (*found[start:], *found[:start]):
            way.run()


def show(model: str, found: Sequence[Way], count: int) -> None:
    """A table of one model."""
    base = found[-1]
    print(f"\n{model}, {count} rounds, brackets: 95 % interval")
    print(f"{'':22}{'artifact':>10}{'p50':>10}{'':4}{'p50 / ORT CPU':26}{'cold start':>12}")
    for way in found:
        middle = median(ns for loop in way.loops for ns in loop)
        pairs = zip(way.loops, base.loops, strict=True)
        ratios = [median(loop) / median(other) for loop, other in pairs]
        inside = stats.median_interval([[round(ratio * PPM) for ratio in ratios]])
        text = f"{median(ratios):.2f} {interval(inside)}" if way is not base else ""
        cold = log.human_ns(median(way.start))
        print(f"{way.name:22}{way.size:>10}{log.human_ns(middle):>10}    {text:26}{cold:>12}")


def interval(found: tuple[float, float] | None) -> str:
    """``[low, high]`` of ratios in PPM, or why there is none."""
    return f"[{found[0] / PPM:.2f}, {found[1] / PPM:.2f}]" if found else "[too few rounds]"


def build(project: Path, said: argparse.Namespace) -> list[str]:
    """The bundles of all models that are asked for; their names."""
    names = [name for name in MODELS if said.only in ("", name)]
    text = "".join(f'[targets.{t}]\nprecision = "{said.precision}"\n' for t in TARGETS.values())
    places = {"silero": said.silero.resolve(), "rapidocr": said.rapidocr.resolve()}
    for name in names:
        source, inputs = (part.format(**places) for part in MODELS[name])
        text += f"[models.{name}]\nsource = {source}\n{inputs}\n"
    (project / "edge.toml").write_text(text)
    words = [sys.executable, "-m", "edge", "build", "-j", "1"]
    words += [word for target in TARGETS.values() for word in ("-t", target)]
    process.run(words, cwd=project, env={**os.environ, "CI": "1"}, timeout=3600)
    return names


def main() -> None:
    """Build, measure and print a table a model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("rapidocr", type=Path)
    parser.add_argument("silero", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--only", default="", choices=("", *MODELS))
    parser.add_argument("--precision", default="source")
    said = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        project, caches = Path(place) / "project", Path(place) / "caches"
        project.mkdir()
        caches.mkdir()
        for model in build(project, said):
            found = ways(project, model, caches)
            rounds(found, said.rounds)
            show(model, found, said.rounds)


if __name__ == "__main__":
    main()
