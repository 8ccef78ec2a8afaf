"""A plan carried out on a device gives what it gives here, and fails in the same words."""

from __future__ import annotations

import io
import os
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.convert import build_reduced as step
from edge.devices import Device, DeviceSettings, open_device
from edge.tools import ort_build, ort_source, reduced_plan, remote_build, remote_jobs
from edge.tools.reduced_plan import Request
from edge.tools.remote_scripts import PIECE
from tests.support import need
from tests.tools import mini_ort

REQUEST = Request(mini_ort.VERSION, "linux-x64")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_jobs, "POLL", (0.05, 0.2))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Device]:
    with open_device(DeviceSettings("here", folder=str(tmp_path / "device"))) as device:
        yield device


def there(device: Device, folder: Path, plan: reduced_plan.Plan) -> Path:
    """The product of a build on ``device``; it has left nothing on it."""
    (folder / "there").mkdir()
    sources = mini_ort.sources(folder)
    try:
        return remote_build.build_on(device, plan, sources, folder / "there", folder / "there.log")
    finally:
        assert not list(Path(device.settings.folder).iterdir())


def local(folder: Path, plan: reduced_plan.Plan) -> Path:
    (folder / "local").mkdir()
    sources = mini_ort.sources(folder)
    return ort_build.build(plan, sources, folder / "local", folder / "local.log")


# ----------------------------------------------------------------------------- good builds
@pytest.mark.process
@pytest.mark.parametrize("mode", ["once", f"lines {PIECE // 8}"])
def test_the_result_and_the_log_are_those_of_a_build_here(
    here: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setenv("CFLAGS", "-flag-of-the-user")
    product = there(here, tmp_path, mini_ort.plan(mode))
    assert product.read_bytes() == local(tmp_path, mini_ort.plan(mode)).read_bytes()
    log = (tmp_path / "there.log").read_text()
    assert log == (tmp_path / "local.log").read_text()
    assert log.startswith("words --build_dir build --config it's; $(exit 9)")
    assert ("--allow_running_as_root" in log) == (os.geteuid() == 0)
    assert len(log.encode()) > PIECE or mode == "once"


@pytest.mark.process
def test_the_glue_comes_with_the_wasm(here: Device, tmp_path: Path) -> None:
    product = there(here, tmp_path, mini_ort.plan("wasm", "product.wasm", "browser"))
    assert product.with_suffix(".mjs").read_bytes().endswith(b"glue")


@pytest.mark.process
def test_a_folder_comes_whole(here: Device, tmp_path: Path) -> None:
    plan = mini_ort.plan("folder", platform="ios")
    archives = []
    for name, product in (("a", there(here, tmp_path, plan)), ("b", local(tmp_path, plan))):
        (tmp_path / name).mkdir()
        archives.append(tmp_path / name / step._collect(product, "ios", tmp_path / name))
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as tar:
        modes = {each.name: (each.mode, each.linkname) for each in tar}
    assert modes["product/a/tool"] == (0o755, "")
    assert modes["product/a/data"] == modes["product/a/second"] == (0o644, "")
    assert modes["product/current"][1] == "a"
    assert "product/empty" in modes


@pytest.mark.process
def test_two_builds_on_one_device_at_once(tmp_path: Path) -> None:
    settings = DeviceSettings("here", folder=str(tmp_path / "device"))
    products: list[bytes] = []

    def build(number: int) -> None:
        folder = tmp_path / str(number)
        (folder / "scratch").mkdir(parents=True)
        with open_device(settings) as device:
            product = remote_build.build_on(
                device,
                mini_ort.plan(f"ticks {number}"),
                mini_ort.sources(folder),
                folder / "scratch",
                folder / "log",
            )
        assert (folder / "log").read_text().count("tick") == number
        products.append(product.read_bytes())

    threads = [threading.Thread(target=build, args=(number,)) for number in (2, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(products) == 2
    assert products[0] == products[1]
    assert not list((tmp_path / "device").iterdir())


@pytest.mark.process
def test_what_a_dead_build_left_is_swept(here: Device, tmp_path: Path) -> None:
    builds = Path(here.settings.folder) / "builds"
    for name, days in (("old", 3), ("fresh", 1)):
        (builds / name / "work").mkdir(parents=True)
        os.utime(builds / name, (time.time() - days * 86400 + 3600,) * 2)
    (tmp_path / "scratch").mkdir()
    sources = mini_ort.sources(tmp_path)
    plan = mini_ort.plan("once")
    remote_build.build_on(here, plan, sources, tmp_path / "scratch", tmp_path / "log")
    assert [path.name for path in builds.iterdir()] == ["fresh"]


# ---------------------------------------------------------------------------- bad builds
@pytest.mark.process
@pytest.mark.parametrize(
    ("mode", "product", "message"),
    [
        ("fail 7", "product", "on here ended with exit code 7:\nFAILED: a.o\nfirst error\nx"),
        ("kill", "product", r"on here ended with signal 9 \(SIGKILL\):\nwords"),
        ("nothing", "product", "on here ended well but left no product:\nwords"),
        ("once", "product.wasm", "on here ended well but left no product.wasm, product.mjs:\nw"),
        ("once", "product/below", "on here ended well but left no below:\nwords"),
    ],
)
def test_a_failure_says_what_one_here_would(
    here: Device, tmp_path: Path, mode: str, product: str, message: str
) -> None:
    wanted = f"the build of ONNX Runtime 1.21.0 for android {message}"
    with pytest.raises(errors.StepFailed, match=wanted) as caught:
        there(here, tmp_path, mini_ort.plan(mode, product))
    assert caught.value.remedy == f"the whole log is {tmp_path / 'there.log'}"
    with pytest.raises(errors.StepFailed, match=wanted.replace("on here ", "")):
        local(tmp_path, mini_ort.plan(mode, product))


@pytest.mark.process
def test_glue_that_is_missing(here: Device, tmp_path: Path) -> None:
    with pytest.raises(errors.StepFailed, match=r"ended well but left no product\.mjs"):
        there(here, tmp_path, mini_ort.plan("alone", "product.wasm", "browser"))


@pytest.mark.process
def test_a_command_before_the_build_that_fails(here: Device, tmp_path: Path) -> None:
    known = mini_ort.plan("once")
    fetch = (known.fetch[0], ("sh", "-c", "echo no network; exit 9"))
    plan = reduced_plan.Plan(**{**vars(known), "fetch": fetch})
    with pytest.raises(errors.StepFailed, match="exit code 9:\nno network"):
        there(here, tmp_path, plan)


@pytest.mark.process
def test_sources_of_another_release_are_not_sent(here: Device, tmp_path: Path) -> None:
    sources = ort_build.Sources(mini_ort.tree(tmp_path / "s.tar.gz", "1.20.0"), {})
    (tmp_path / "work").mkdir()
    with pytest.raises(errors.ConfigError, match=r"are ONNX Runtime 1\.20\.0"):
        remote_build.build_on(
            here, mini_ort.plan("once"), sources, tmp_path / "work", tmp_path / "log"
        )
    assert not Path(here.settings.folder).exists()


@pytest.mark.process
def test_the_deadline_ends_all_of_it(
    here: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ort_build, "TIMEOUT", 5.0)
    nap = mini_ort.nap()
    words = ("sh", "-c", 'echo begun; sleep "$1" & sleep "$1"', "sh", nap)
    plan = reduced_plan.Plan(**{**vars(mini_ort.plan("")), "fetch": (), "build": words})
    with pytest.raises(errors.StepFailed, match=r"(?s)did not end in time.*on here:.*begun"):
        there(here, tmp_path, plan)
    assert mini_ort.becomes(lambda: not mini_ort.processes(nap))


# ------------------------------------------------------------------------------- the step
@pytest.mark.process
def test_a_linux_library_is_stripped_on_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("x86_64-linux-gnu-strip")
    plan = mini_ort.plan(f"elf {Path(sys.executable).resolve()}", platform="linux-x64")
    monkeypatch.setattr(reduced_plan, "make_plan", lambda *_: plan)
    device = DeviceSettings("here", folder=str(tmp_path / "device"))
    (tmp_path / "config").write_text("ai.onnx;13;Add\n")
    found: list[dict[str, bytes]] = []
    for where in ({}, {"device": remote_build.to_json(device)}):
        out = tmp_path / str(len(found)) / "out"
        out.mkdir(parents=True)
        facts = step.build_reduced.function(
            out,
            config=tmp_path / "config",
            source=mini_ort.tree(tmp_path / "sources.tar.gz"),
            request={"version": mini_ort.VERSION, "platform": "linux-x64"},
            toolchain={},
            where={"log": str(tmp_path / "log"), **where},
        )
        assert facts == {"product": "product"}
        files = [path for path in out.rglob("*") if path.is_file()]
        found.append({str(path.relative_to(out)): path.read_bytes() for path in files})
        assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert found[0] == found[1]
    assert set(found[0]) == {reduced_plan.CONFIG, "product", "unstripped/product"}
    assert found[0]["unstripped/product"] == Path(sys.executable).resolve().read_bytes()
    assert len(found[0]["product"]) < len(found[0]["unstripped/product"])


@pytest.mark.process
def test_a_strip_that_fails_is_said(here: Device, tmp_path: Path) -> None:
    need("x86_64-linux-gnu-strip")
    with pytest.raises(errors.StepFailed, match="but x86_64-linux-gnu-strip ended with exit code"):
        there(here, tmp_path, mini_ort.plan("once", platform="linux-x64"))


# ---------------------------------------------------------------------------- the device
def test_a_device_survives_being_written_down() -> None:
    settings = DeviceSettings("mac", "ssh", host="h", port=22, identity_file=Path("/k/e y"))
    assert remote_build.from_json(remote_build.to_json(settings)) == settings
    assert remote_build.to_json(settings)["identity_file"] == "/k/e y"


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["printf", "%s|", "a b", "it's", "$(exit 9)"], "a b|it's|$(exit 9)|"),
        (["sh", "-c", "echo to errors >&2"], "to errors"),
        (["sh", "-c", "echo out; echo err >&2"], "out"),
        (["sh", "-c", "echo out; exit 3"], None),
        (["no-such-program"], None),
        (["printf", r"a\033[31mb\nc"], "a[31mb\nc"),
        (["sh", "-c", "yes | head -c 200000"], "y\n" * (remote_build.ANSWER_LIMIT // 2)),
    ],
)
def test_asking(here: Device, words: Sequence[str], said: str | None) -> None:
    assert remote_build.ask_of(here)(words) == said


@pytest.mark.process
def test_a_question_without_an_answer(here: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge.tools.ort_toolchain.TIMEOUT", 0.2)
    assert remote_build.ask_of(here)(["sleep", "30"]) is None


def _answers(python: str | None, *programs: str) -> Callable[[Sequence[str]], str | None]:
    def ask(words: Sequence[str]) -> str | None:
        return python if words[0] == "python3" else words[-1] if words[-1] in programs else None

    return ask


@pytest.mark.parametrize(
    ("python", "programs", "missing"),
    [
        ("3.10", ("tar", "gzip"), []),
        ("3.9", ("tar", "gzip"), ["Python 3.10 or newer with venv (python3: 3.9)"]),
        ("4.0", ("gzip",), ["tar"]),
        (None, (), ["Python 3.10 or newer with venv (python3: none with venv)", "tar", "gzip"]),
        ("nonsense", ("tar", "gzip"), ["Python 3.10 or newer with venv (python3: nonsense)"]),
    ],
)
def test_what_a_device_lacks(
    python: str | None, programs: tuple[str, ...], missing: list[str]
) -> None:
    assert list(remote_build.lacks(REQUEST, _answers(python, *programs))) == missing


# ------------------------------------------------------------------------ what it packed
def packed(archive: Path, *members: tuple[str, bytes, str]) -> Path:
    """A tar of (name, type, link); files hold their own name."""
    with tarfile.open(archive, "w") as tar:
        for name, kind, link in members:
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, link
            member.size = len(name.encode()) if kind == tarfile.REGTYPE else 0
            tar.addfile(member, io.BytesIO(name.encode()))
    return archive


FILE, FOLDER, LINK = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE
BAD = {
    "absolute": [("/etc/p", FILE, "")],
    "above": [("p/../../x", FILE, "")],
    "beside": [("q/x", FILE, "")],
    "link-out": [("p/l", LINK, "../..")],
    "link-absolute": [("p/l", LINK, "/etc")],
    "link-through-a-link": [("p/a/b/l", LINK, "../../.."), ("p/a/b/l/x", LINK, "p")],
    "link-chain": [("p/a/b/l", LINK, "../.."), ("p/x", LINK, "a/b/l/../../q")],
    "through-a-link": [("p/l", LINK, "d"), ("p/d/x", FILE, ""), ("p/l", FILE, "")],
    "link-in-circles": [("p/l", LINK, "l")],
    "pipe": [("p/f", tarfile.FIFOTYPE, "")],
    "device": [("p/f", tarfile.CHRTYPE, "")],
    "hard-link-to-nothing": [("p/a", FILE, ""), ("p/f", tarfile.LNKTYPE, "p/b")],
    "hard-link-out": [("p/f", tarfile.LNKTYPE, "/etc/passwd")],
    "hard-link-to-itself": [("p/f", tarfile.LNKTYPE, "p/f")],
    "file-as-folder": [("p/a", FILE, ""), ("p/a/b", FILE, "")],
    "top-is-a-file": [("p", FILE, "")],
    "top-is-a-link": [("p", LINK, "..")],
}


@pytest.mark.parametrize("members", BAD.values(), ids=BAD.keys())
def test_a_bad_archive_is_refused(tmp_path: Path, members: list[tuple[str, bytes, str]]) -> None:
    (tmp_path / "in").mkdir()
    archive = packed(tmp_path / "archive", *members)
    with pytest.raises(errors.StepFailed):
        remote_build.unpack(archive, tmp_path / "in" / "p")
    assert {path.name for path in tmp_path.iterdir()} == {"in", "archive"}
    assert {path.name for path in (tmp_path / "in").iterdir()} <= {"p"}


@pytest.mark.parametrize(
    ("place", "name", "limit"),
    [(remote_build, "PRODUCT_LIMIT", 5), (ort_source, "MAX_FILES", 1)],
)
def test_an_archive_that_is_too_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: object, name: str, limit: int
) -> None:
    archive = packed(tmp_path / "archive", ("p/a", FILE, ""), ("p/b", FILE, ""))
    remote_build.unpack(archive, tmp_path / "p")
    (tmp_path / "again").mkdir()
    monkeypatch.setattr(place, name, limit)
    with pytest.raises(errors.StepFailed, match="too large"):
        remote_build.unpack(archive, tmp_path / "again" / "p")


@pytest.mark.parametrize("cut", [0, 100, 514])
def test_an_archive_that_is_cut(tmp_path: Path, cut: int) -> None:
    archive = packed(tmp_path / "archive", ("p/a", FILE, ""))
    archive.write_bytes(archive.read_bytes()[:cut])
    with pytest.raises(errors.StepFailed, match="cannot be read"):
        remote_build.unpack(archive, tmp_path / "p")


PART = st.sampled_from(["p", "a", "b", "..", ".", ""])
NAME = st.lists(PART, min_size=1, max_size=5).map("/".join)
MEMBER = st.tuples(NAME, st.sampled_from([FILE, FOLDER, LINK, tarfile.LNKTYPE]), NAME)


@given(st.lists(MEMBER, max_size=6))
def test_nothing_is_ever_written_outside(members: list[tuple[str, bytes, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "one" / "two"
        folder.mkdir(parents=True)
        archive = packed(Path(name) / "archive", *members)
        try:
            remote_build.unpack(archive, folder / "p")
        except errors.StepFailed:
            pass
        else:
            inside = (folder / "p").resolve()
            assert all(path.resolve().is_relative_to(inside) for path in inside.rglob("*"))
        outside = [p for p in Path(name).rglob("*") if "p" not in p.relative_to(name).parts]
        assert sorted(p.name for p in outside) == ["archive", "one", "two"]
