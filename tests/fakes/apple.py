"""Stands in for a Mac's programs: swift, xcodebuild, xcrun devicectl, and the runner they build.

Called by the name that it is linked under. ``APPLE_FAKE`` is a folder: ``phone`` is what lies in
the app's container, ``calls`` lists the words of every call, ``say-NAME`` (text) makes the program
NAME fail with that text, ``devices.json`` is what ``devicectl list devices`` writes, ``state.json``
what the runner says of the device's state, ``profile`` how it calls its profile; ``launched`` is
devicectl's exit code after the app's end, ``crash`` a provider with which the app dies. What it
says follows recorded output: JSON of devicectl version 2, texts of xcodebuild and codesign.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

FAKE = Path(os.environ["APPLE_FAKE"])
NATIVE_NOISE = 1e-3


def main() -> int:
    name, words = Path(sys.argv[0]).name, sys.argv[1:]
    with (FAKE / "calls").open("a") as calls:
        calls.write(json.dumps([name, *words]) + "\n")
    failing = FAKE / f"say-{name}"
    if failing.exists() and "list" not in words:
        sys.stderr.write(failing.read_text())
        return 65
    return {"swift": swift, "xcodebuild": xcodebuild, "xcrun": devicectl, "edge-bench": runner}[
        name
    ](words)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")


def value(words: list[str], option: str, default: str = "") -> str:
    return words[words.index(option) + 1] if option in words else default


def swift(words: list[str]) -> int:
    package = Path(value(words, "--package-path"))
    place = Path(value(words, "--scratch-path")) / "arm64-apple-macosx" / "release"
    assert (package / "Package.swift").is_file()
    if "--show-bin-path" in words:
        say(str(place.resolve()))
        return 0
    place.mkdir(parents=True, exist_ok=True)
    tool = place / "edge-bench"
    tool.unlink(missing_ok=True)
    tool.symlink_to(Path(sys.argv[0]).resolve())
    say("Building for production...\n[9/9] Linking edge-bench\nBuild complete! (41.20s)")
    return 0


def xcodebuild(words: list[str]) -> int:
    project = Path(value(words, "-project"))
    assert (project / "project.pbxproj").is_file()
    app = Path(value(words, "-derivedDataPath")) / "Build/Products/Release-iphoneos"
    app = app / f"{value(words, '-scheme')}.app"
    app.mkdir(parents=True, exist_ok=True)
    (app / value(words, "-scheme")).write_bytes(b"program" * 1000)
    bundle = project.parent.parent.parent
    shutil.copytree(bundle / "samples", app / "samples", dirs_exist_ok=True)
    say("note: Using codesigning identity override\n** BUILD SUCCEEDED **")
    return 0


def devicectl(words: list[str]) -> int:
    assert words[0] == "devicectl"
    if words[1:3] == ["list", "devices"]:
        shutil.copyfile(FAKE / "devices.json", value(words, "--json-output"))
        return 0
    if words[1:4] == ["device", "install", "app"]:
        shutil.copytree(words[words.index("--device") + 2], FAKE / "app", dirs_exist_ok=True)
        told = {
            "info": {"outcome": "success", "jsonVersion": 2},
            "result": {
                "installedApplications": [
                    {"bundleID": "dev.edge-wright.bench", "launchServicesIdentifier": "unknown"}
                ]
            },
        }
        Path(value(words, "--json-output")).write_text(json.dumps(told))
        return 0
    if words[1:4] == ["device", "copy", "from"]:
        source = FAKE / "phone" / value(words, "--source")
        if not source.exists():
            sys.stderr.write("ERROR: The operation couldn't be completed. No such file\n")
            return 1
        shutil.copyfile(source, value(words, "--destination"))
        return 0
    assert words[1:4] == ["device", "process", "launch"]
    return launch(words)


def launch(words: list[str]) -> int:
    documents = FAKE / "phone" / "Documents"
    documents.mkdir(parents=True, exist_ok=True)
    at = words.index("--run")
    given = words[at + 1 :]
    assert "/" not in value(given, "--profile")
    say("Launched application with dev.edge-wright.bench bundle identifier.")
    lines, code = bench(FAKE / "app", documents, given)
    if setting("crash") == value(given, "--provider"):
        say("App terminated due to signal 11.")
        lines, code = lines[:2], 1
    (documents / value(given, "--record", "edge.jsonl")).write_text("".join(lines))
    return int(setting("launched") or code)


def setting(name: str) -> str:
    path = FAKE / name
    return path.read_text() if path.exists() else ""


def runner(words: list[str]) -> int:
    output = value(words, "--output")
    lines, code = bench(Path(value(words, "--bundle")), Path(output) if output else None, words)
    sys.stdout.write("".join(lines))
    return code


def bench(bundle: Path, output: Path | None, words: list[str]) -> tuple[list[str], int]:
    """The golden outputs, noisy for Core ML itself, and times by provider."""
    provider = value(words, "--provider")
    runtime = "coreml" if provider.startswith("coreml") else "onnxruntime"
    env = {
        "event": "env", "protocol": 1, "runner": "swift", "runtime": runtime, "version": "18.1.0",
        "arch": "arm64", "os": "ios", "threads": int(value(words, "--threads", "1")),
        "provider": provider, "optimization": "disabled",
    }  # fmt: skip
    lines = [env]
    if provider == "XnnpackExecutionProvider":
        message = "this runtime was built without XnnpackExecutionProvider"
        return [line(env), line({"event": "error", "stage": "runtime", "message": message})], 4
    lines += [{"event": "load", "ns": 90_000_000, **cached(words, provider)}]
    lines += [{"event": "first", "ns": 4_000_000}, *outputs(bundle, output, runtime)]
    if "--check-only" not in words:
        ns = {"onnxruntime": 2_000_000, "coreml": 1_000_000}[runtime]
        lines += [{"event": "warmup", "runs": 20, "ns": 20 * ns, "stable": True}]
        lines += [{"event": "sample", "ns": [ns + n % 7 * 100 for n in range(50)]}] * 2
    lines += [{"event": "memory", "peak_bytes": 60_000_000, "load_peak_bytes": 50_000_000}]
    if "--profile" in words:
        lines.append({"event": "profile", "file": profile(words, output)})
    runs = 0 if "--check-only" in words else 100
    end = {"event": "end", "runs": runs, "wall_ns": runs * 2_000_000, "cpu_ns": runs * 1_900_000}
    state = json.loads(setting("state.json") or "{}")
    return [*map(line, lines), line({**end, "involuntary_switches": 0, **state})], 0


def cached(words: list[str], provider: str) -> dict[str, bool]:
    """Its folder's name and the provider are all that is kept of a run before."""
    if "--cache" not in words or provider == "CPUExecutionProvider":
        return {}
    kept = FAKE / f"kept-{Path(value(words, '--cache')).name}-{provider.replace(':', '-')}"
    there = kept.exists()
    kept.touch()
    return {"cached": there}


def profile(words: list[str], output: Path | None) -> str:
    name = Path(value(words, "--profile")).name + "_2026.json"
    place = output or Path()
    nodes = [("CoreMLExecutionProvider", "part0", 900), ("CPUExecutionProvider", "tail", 100)]
    events = [
        {"cat": "Node", "name": f"{node}_kernel_time", "dur": spent,
         "args": {"provider": name_, "op_name": "Conv", "node_index": str(at)}}
        for at, (name_, node, spent) in enumerate(nodes)
    ]  # fmt: skip
    (place / name).write_text(json.dumps(events))
    return setting("profile") or str(place / name)


def outputs(bundle: Path, output: Path | None, runtime: str) -> list[dict[str, object]]:
    import numpy as np

    found: list[dict[str, object]] = []
    for text in (bundle / "samples" / "samples.tsv").read_text().splitlines():
        sample, role, index, dtype, shape, file, name = text.split("\t")
        if role != "output":
            continue
        array = np.fromfile(bundle / "samples" / file, dtype)
        if runtime == "coreml":
            array = (array * (1 + NATIVE_NOISE)).astype(dtype)
        if output is not None:
            array.tofile(output / file)
        dims = [] if shape == "-" else [int(size) for size in shape.split("x")]
        found.append({
            "event": "output", "sample": int(sample), "index": int(index), "name": name,
            "dtype": dtype, "shape": dims, "file": file if output else None,
            "sha256": hashlib.sha256(array.tobytes()).hexdigest(),
        })  # fmt: skip
    return found


def line(event: dict[str, object]) -> str:
    return json.dumps(event) + "\n"


if __name__ == "__main__":
    sys.exit(main())
