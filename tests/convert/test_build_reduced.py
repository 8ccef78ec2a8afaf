"""The step that builds a runtime, on a miniature of ONNX Runtime's sources: what it keeps."""

from __future__ import annotations

import io
import os
import shutil
import tarfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from edge import errors
from edge.convert.build_reduced import build_reduced
from edge.job import Steps
from edge.step import Facts
from edge.store import Store, as_file
from edge.tools import ort_flags
from edge.tools.reduced_plan import CONFIG, PROVIDERS, Request, make_plan
from tests.support import need

pytestmark = pytest.mark.process
CLOSURE = "ai.onnx;14;Add\n"
LIBRARY = """\
import subprocess, sys
from pathlib import Path
out = Path("build/MinSizeRel")
out.mkdir(parents=True)
Path("a.c").write_text("int kept(void) { return 1; } static int local(void) { return kept(); }"
                       " int (*used)(void) = local;")
words = ["x86_64-linux-gnu-gcc", "-g", "-shared", "-fPIC", "a.c"]
subprocess.run([*words, "-o", out / "libonnxruntime.so.1.21.0"], check=True)
"""
# What the packager of each platform would leave: a file, or a folder with everything in it.
FRAMEWORK = """\
import os
from pathlib import Path
folder = Path("build/framework_out/onnxruntime.xcframework")
(folder / "ios-arm64" / "onnxruntime.framework" / "Versions" / "A").mkdir(parents=True)
framework = folder / "ios-arm64" / "onnxruntime.framework"
(framework / "Versions" / "Current").symlink_to("A")
(framework / "Versions" / "A" / "onnxruntime").write_bytes(b"binary")
(framework / "Versions" / "A" / "onnxruntime").chmod(0o775)
(framework / "onnxruntime").symlink_to("Versions/Current/onnxruntime")
(folder / "Info.plist").write_bytes(b"plist")
os.link(folder / "Info.plist", folder / "Twice.plist")
(folder / "empty").mkdir(mode=0o700)
"""
ARCHIVE = """\
from pathlib import Path
place = Path("build/aar_out/MinSizeRel/com/microsoft/onnxruntime/onnxruntime-android/1.21.0")
place.mkdir(parents=True)
(place / "onnxruntime-android-1.21.0.aar").write_bytes(b"archive")
"""
WASM = """\
from pathlib import Path
Path("build/Release").mkdir(parents=True)
for name in ("wasm", "mjs"):
    Path(f"build/Release/ort-wasm-simd-threaded.{name}").write_text(name)
"""


def sources(folder: Path, script: str, platform: str) -> Path:
    """An archive of a tree whose build for ``platform`` is ``script``."""
    command = make_plan(Request("1.21.0", platform), CLOSURE).build
    name, _ = ort_flags.split(command)
    files = {"VERSION_NUMBER": "1.21.0\n", ort_flags.SCRIPTS[name]: script}
    archive = folder / "sources.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for path, text in files.items():
            member = tarfile.TarInfo(f"onnxruntime-1.21.0/{path}")
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return archive


def arguments(folder: Path, script: str, platform: str) -> dict[str, Any]:
    request = asdict(Request("1.21.0", platform))
    (folder / "config").write_text(CLOSURE)
    return {
        "config": folder / "config",
        "source": sources(folder, script, platform),
        "request": {key: list(v) if isinstance(v, tuple) else v for key, v in request.items()},
        "toolchain": {"compiler": "of the test"},
        "where": {"log": str(folder / "log")},
    }


def made(folder: Path, script: str, platform: str) -> tuple[Path, Facts]:
    """What the step leaves and says; nothing else lies beside it afterwards."""
    out = folder / "store" / "out"
    shutil.rmtree(out.parent, ignore_errors=True)
    out.mkdir(parents=True)
    try:
        facts = build_reduced.function(out, **arguments(folder, script, platform))
    finally:
        assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert facts is not None
    assert (out / CONFIG).read_text() == CLOSURE
    return out, facts


def listed(folder: Path) -> list[str]:
    paths = (path for path in folder.rglob("*") if not path.is_dir())
    return sorted(path.relative_to(folder).as_posix() for path in paths)


def test_a_library_is_stripped_and_kept_as_it_was_linked(tmp_path: Path) -> None:
    from edge.tools import elf

    need("x86_64-linux-gnu-gcc")
    out, facts = made(tmp_path, LIBRARY, "linux-x64")
    name = "libonnxruntime.so.1.21.0"
    assert facts == {"product": name}
    assert listed(out) == [name, CONFIG, f"unstripped/{name}"]
    small, whole = (elf.read(out / path, path) for path in (name, f"unstripped/{name}"))
    assert (small.stripped, whole.stripped) == (True, False)
    assert "kept" in small.exported
    assert small.exported == whole.exported
    assert (out / name).stat().st_size < (out / "unstripped" / name).stat().st_size


def test_an_archive_is_kept_as_it_is(tmp_path: Path) -> None:
    out, facts = made(tmp_path, ARCHIVE, "android")
    assert listed(out) == ["onnxruntime-android-1.21.0.aar", CONFIG]
    assert (out / str(facts["product"])).read_bytes() == b"archive"


def test_a_wasm_is_kept_with_its_glue(tmp_path: Path) -> None:
    out, facts = made(tmp_path, WASM, "browser")
    assert facts == {"product": "ort-wasm-simd-threaded.wasm"}
    assert listed(out) == ["ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm", CONFIG]
    assert (out / "ort-wasm-simd-threaded.mjs").read_text() == "mjs"


def test_a_folder_becomes_an_archive_with_its_links(tmp_path: Path) -> None:
    out, facts = made(tmp_path, FRAMEWORK, "ios")
    assert facts == {"product": "onnxruntime.xcframework.tar"}
    with tarfile.open(out / "onnxruntime.xcframework.tar") as tar:
        members = tar.getmembers()
        twice = tar.extractfile("onnxruntime.xcframework/Twice.plist")
        assert twice is not None
        assert twice.read() == b"plist"
    top = "onnxruntime.xcframework"
    binary = f"{top}/ios-arm64/onnxruntime.framework/Versions/A/onnxruntime"
    links = {
        member.name.rpartition("/")[2]: member.linkname for member in members if member.issym()
    }
    assert links == {"Current": "A", "onnxruntime": "Versions/Current/onnxruntime"}
    assert not any(member.islnk() for member in members)
    modes = {member.name: member.mode for member in members if not member.issym()}
    assert modes[binary] == modes[f"{top}/empty"] == modes[top] == 0o755
    assert modes[f"{top}/Info.plist"] == 0o644
    owners = {(m.mtime, m.uid, m.gid, m.uname, m.gname) for m in members}
    assert owners == {(0, 0, 0, "", "")}
    assert members[0].name == top


def test_the_archive_of_a_folder_is_always_the_same(tmp_path: Path) -> None:
    bytes_of = []
    for place, mask in (("one", 0o022), ("two", 0o077)):
        (tmp_path / place).mkdir()
        before = os.umask(mask)
        try:
            out, _ = made(tmp_path / place, FRAMEWORK, "ios")
        finally:
            os.umask(before)
        bytes_of.append((out / "onnxruntime.xcframework.tar").read_bytes())
    assert bytes_of[0] == bytes_of[1]


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    script = FRAMEWORK + "(folder / 'out').symlink_to(Path('build').resolve())\n"
    with pytest.raises(errors.StepFailed, match=r"out of onnxruntime\.xcframework is a link out"):
        made(tmp_path, script, "ios")


@pytest.mark.parametrize("platform", PROVIDERS)
def test_a_build_that_fails_leaves_nothing(tmp_path: Path, platform: str) -> None:
    script = "print('the reason'); raise SystemExit(1)"
    with pytest.raises(errors.StepFailed, match="ended with exit code 1:\nthe reason"):
        made(tmp_path, script, platform)
    assert list((tmp_path / "store" / "out").iterdir()) == []


def test_where_it_is_built_is_not_in_the_key(tmp_path: Path) -> None:
    steps = Steps(Store(tmp_path / "store"), lambda _release: None)
    given = arguments(tmp_path, ARCHIVE, "android")
    files = {key: as_file(v) if isinstance(v, Path) else v for key, v in given.items()}
    first = steps.run(build_reduced, files)
    again = steps.run(build_reduced, {**files, "where": {"log": str(tmp_path / "another")}})
    assert first.key == again.key
    assert len(steps.made) == 1
    assert "where" not in first.ingredients["parameters"]
    other = steps.run(build_reduced, {**files, "toolchain": {"compiler": "another"}})
    assert other.key != first.key
