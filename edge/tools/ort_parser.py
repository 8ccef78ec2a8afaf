"""A command line of a reduced build, tried on the source tree's own argument parsers.

The tree's code runs in a process of its own, never in this one, and starts nothing there: only
``parse_arguments`` of ``build.py`` (from 1.22 on of ``build_args.py``), and for a packager the
packager itself, whose every command is written down instead of run. So a plan for Android or iOS
is proven against the tree without an NDK and without Xcode.

What is put in place of the real thing, and nothing more: ``sys.argv``; ``sys.platform`` and
``platform.system`` of the wanted host while the tree's functions run; ``subprocess.run`` and its
like; ``shutil.which``; two folders for the SDK and the NDK; and, for each recorded command, the
files in which the next stage looks.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import platform
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

from edge import errors, process
from edge.tools import ort_flags

TIMEOUT = 120.0
# sys.platform and platform.system() by host.
PLATFORMS: Mapping[str, tuple[str, str]] = {
    "linux": ("linux", "Linux"),
    "macos": ("darwin", "Darwin"),
}
# What must not happen while a packager is rehearsed: audit events of the interpreter.
STARTS = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect")
Commands = tuple[tuple[str, ...], ...]


def check_with_tree(tree: Path, words: Sequence[str], host: str) -> None:
    """Let ``build.py`` of the source ``tree`` parse ``words`` as on ``host`` ("linux", "macos").

    Raises :class:`errors.ConfigError` with the parser's own message.
    """
    check_all_with_tree(tree, [words], host)


def check_all_with_tree(tree: Path, lines: Sequence[Sequence[str]], host: str) -> None:
    """As :func:`check_with_tree` for several command lines, in one process."""
    said = [text for text in ask_tree(tree, lines, host) if text]
    if said:
        raise errors.ConfigError(
            f"build.py of the source tree refuses: {'; '.join(dict.fromkeys(said))}",
            remedy="change the request for the reduced runtime, or take the tree of its release",
        )


def ask_tree(tree: Path, lines: Sequence[Sequence[str]], host: str) -> list[str]:
    """What the tree's parser says to each of ``lines``; empty for those that it takes."""
    folder = tree.resolve() / "tools" / "ci_build"
    script = folder / "build_args.py"
    if not script.is_file():
        script = folder / "build.py"
    _need(script.is_file() and host in PLATFORMS, tree, host)
    given: dict[str, Any] = {"script": script, "lines": lines, "host": host}
    answer: list[str] = process.run_python(f"{__name__}:parse_in_child", given, timeout=TIMEOUT)
    return answer


def rehearse(tree: Path, command: Sequence[str], files: Mapping[str, str], host: str) -> Commands:
    """Run the packager of ``command`` from ``tree`` with recorders in place of all that it starts.

    ``files`` (by relative name) lie in the folder that it runs in. Returns every command that it
    would run, paths relative to that folder, ``python`` and the tree's place in ``command`` for
    theirs. Raises :class:`errors.ConfigError` when the packager, or the tree's ``build.py`` that
    it calls, takes something not.
    """
    script, words = ort_flags.split(command)
    packager = tree.resolve() / ort_flags.SCRIPTS[script]
    _need(packager.is_file() and host in PLATFORMS, tree, host)
    with tempfile.TemporaryDirectory(prefix="edge-rehearsal-") as work:
        scratch = Path(work).resolve()
        _write(files, scratch)
        given = {"script": packager, "words": words, "scratch": scratch, "host": host}
        answer = process.run_python(f"{__name__}:rehearse_in_child", given, timeout=TIMEOUT)
    place = command[-len(words) - 1].removesuffix(f"/{ort_flags.SCRIPTS[script]}")
    names = {str(tree.resolve()): place, f"{scratch}/": "", sys.executable: "python"}
    found = tuple(tuple(_renamed(word, names) for word in line) for line in answer)
    lines = [line[2:] for line in found if _is_build(line)]
    if not lines:
        raise errors.ConfigError(f"{script} of the source tree calls no build.py")
    check_all_with_tree(tree, lines, host)
    return found


def _need(there: bool, tree: Path, host: str) -> None:  # noqa: FBT001
    if not there:
        raise errors.ConfigError(
            f"{tree} is no source tree of ONNX Runtime, or {host!r:.40} no host of its scripts",
            remedy="unpack the sources of the release there",
        )


def _write(files: Mapping[str, str], scratch: Path) -> None:
    for name, text in files.items():
        pure = PurePosixPath(name)
        if pure.is_absolute() or ".." in pure.parts or not pure.parts:
            raise errors.ConfigError(f"{name!r:.60} is no name of a file of a plan")
        (scratch / pure).parent.mkdir(parents=True, exist_ok=True)
        (scratch / pure).write_text(text, encoding="utf-8")


def _renamed(word: str, names: Mapping[str, str]) -> str:
    for old, new in names.items():
        word = word.replace(old, new)
    return word


def _is_build(line: Sequence[str]) -> bool:
    return len(line) > 1 and line[1].endswith(f"/{ort_flags.SCRIPTS['build.py']}")


# ------------------------------------------------------------- the other side: the child
def parse_in_child(script: Path, lines: list[list[str]], host: str) -> list[str]:
    """The other side of :func:`ask_tree`."""
    sys.path.insert(0, str(script.parents[1] / "python"))
    _prepare(script)
    module = importlib.import_module(script.stem)
    with _host(host):
        return [_answer(module.parse_arguments, ["build.py", *line]) for line in lines]


def rehearse_in_child(script: Path, words: list[str], scratch: Path, host: str) -> list[list[str]]:
    """The other side of :func:`rehearse`: the commands, as the packager gave them."""
    _prepare(script)
    os.chdir(scratch)
    for name, folder in (("ANDROID_HOME", "sdk"), ("ANDROID_NDK_HOME", "ndk")):
        os.environ[name] = str(scratch / folder)
    os.environ.pop("RELEASE_VERSION_SUFFIX", None)
    recorder = _Recorder()
    with _host(host), recorder.installed():
        said = _answer(lambda: _run(script), [str(script), *words])
    if said:
        raise errors.ConfigError(f"{script.name} of the source tree refuses: {said}")
    return recorder.lines


def _run(script: Path) -> None:
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as stop:
        if stop.code not in {None, 0}:
            raise


def _prepare(script: Path) -> None:
    """As Python starts ``script``, but the tree stays as it is and nothing big is imported."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(script.parent))
    # Tried by the tree's package util, which goes on without them; no parser needs them.
    sys.modules.update(dict.fromkeys(("flatbuffers", "torch")))  # type: ignore[arg-type]
    # Imported while macOS is played, it would look for a module that only macOS has.
    importlib.import_module("urllib.request")


@contextlib.contextmanager
def _host(host: str) -> Iterator[None]:
    from unittest import mock

    name, system = PLATFORMS[host]
    with (
        mock.patch.object(sys, "platform", name),
        mock.patch.object(platform, "system", return_value=system),
    ):
        yield


def _answer(action: Callable[[], object], argv: list[str]) -> str:
    """What ``action`` has against ``argv``; empty for nothing."""
    printed = io.StringIO()
    sys.argv = argv
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            action()
    except SystemExit as stop:
        return _reason(stop, printed.getvalue())
    except (AssertionError, AttributeError, ImportError, LookupError, OSError, TypeError,
            ValueError) as error:  # fmt: skip
        return f"{type(error).__name__}: {error!s:.300}"
    return ""


def _reason(stop: SystemExit, printed: str) -> str:
    if isinstance(stop.code, str):
        return f"{stop.code:.300}"
    _, error, text = printed.rpartition("error: ")
    last = process.tail(text, 1) if error else ""
    return f"{last:.300}" or f"it ends with code {stop.code}"


class _Recorder:
    """Stands where the packager would start something."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = []

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Put this in place of what starts processes, and refuse every other way."""
        from unittest import mock

        sys.addaudithook(_refuse_to_start)
        calls: dict[str, Any] = {"run": self._run, "check_output": self._output}
        calls.update(dict.fromkeys(("call", "check_call"), self._code))
        with (
            mock.patch.multiple("subprocess", **calls),
            mock.patch("shutil.which", lambda name, *_more, **_options: f"/usr/bin/{name}"),
        ):
            yield

    def _run(self, words: Sequence[str | os.PathLike[str]], **_options: object) -> object:
        line = [os.fspath(word) for word in words]
        self.lines.append(line)
        _leave(line)
        return SimpleNamespace(args=line, returncode=0, stdout="", stderr="")

    def _code(self, words: Sequence[str], **options: object) -> int:
        self._run(words, **options)
        return 0

    def _output(self, words: Sequence[str], **options: object) -> str:
        self._run(words, **options)
        return ""


def _refuse_to_start(event: str, arguments: tuple[Any, ...]) -> None:
    if event in STARTS:
        raise OSError(f"a rehearsal starts nothing: {event} {arguments!r:.100}")


# ---------------------------------------------------- what the recorded commands would leave
def _leave(line: Sequence[str]) -> None:
    if _is_build(line):
        folder = Path(_value(line, "--build_dir")) / _value(line, "--config")
        if "--android" in line:
            _leave_android(folder, line)
        else:
            _leave_apple(folder, line)
    elif "-output" in line:  # lipo, xcodebuild -create-xcframework
        _touch(Path(line[line.index("-output") + 1]))


def _leave_android(folder: Path, line: Sequence[str]) -> None:
    for name in ("libonnxruntime.so", "libonnxruntime4j_jni.so"):
        _touch(folder / name)
    if not any(word.endswith("onnxruntime_BUILD_UNIT_TESTS=OFF") for word in line):
        for name in ("onnxruntime_perf_test", "onnx_test_runner"):
            _touch(folder / name)


def _leave_apple(folder: Path, line: Sequence[str]) -> None:
    sysroot = _value(line, "--apple_sysroot")
    products = folder / f"{folder.name}-{sysroot}"
    for place in (products, products / "static_framework"):
        framework = place / "onnxruntime.framework"
        _touch(framework / "onnxruntime")
        _touch(framework / "Headers" / "onnxruntime_c_api.h")
    _touch(folder / "Info.plist")
    # One entry a platform: the packager merges those of all and refuses a second one.
    _touch(folder / "framework_info.json", json.dumps({sysroot: {}}))


def _touch(path: Path, text: str = "rehearsal\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _value(line: Sequence[str], name: str) -> str:
    """The last value of the option ``name``, given as one word or as two."""
    found = ""
    for word, following in zip(line, [*line[1:], ""], strict=True):
        option, attached, text = word.partition("=")
        if option == name:
            found = text if attached else following
    return found
