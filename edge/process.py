"""The only place that starts processes on this machine.

``run`` starts a tool: argument list only (never a shell string), always a deadline, both
streams read as they come, the whole process group ended when the deadline passes.
``run_python`` calls one of our own functions in a Python process of its own: native converters
and runtimes crash (onnxruntime 1.24 to 1.32 dies on silero_vad.onnx with pinned dimensions),
and a crash must be a failed step, not the end of the build.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import operator
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from edge import errors

S = TypeVar("S")
T = TypeVar("T")
TAIL_LINES = 12
WAKE = 0.2  # seconds in which a signal is seen at the latest
LAST_PART = 1 << 16  # bytes of a log that are looked at
_alive: set[subprocess.Popen[bytes]] = set()
_stopping: list[bool] = []
PACKAGE_PARENT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Completed:
    """What a finished process left: streams decoded as UTF-8 (bad bytes replaced), seconds."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str
    seconds: float

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines that it printed, standard error preferred."""
        return tail(self.stderr if self.stderr.strip() else self.stdout, lines)


def tail(text: str, lines: int = TAIL_LINES) -> str:
    """The last non-empty ``lines`` lines of ``text``."""
    return "\n".join([line for line in text.splitlines() if line.strip()][-lines:])


def describe_exit(returncode: int) -> str:
    """``returncode`` in words: ``exit code 3`` or ``signal 11 (SIGSEGV)``."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = "unknown"
    return f"signal {-returncode} ({name})"


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    timeout: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bytes = b"",
    check: bool = True,
) -> Completed:
    """Run ``argv`` for at most ``timeout`` seconds and return what it left.

    Raises :class:`errors.ToolMissing` when the program does not exist and
    :class:`errors.RunFailed` on the deadline or, with ``check``, on a non-zero exit.
    """
    started = time.monotonic()
    child = _start(argv, cwd, env, (subprocess.PIPE, subprocess.PIPE))
    done = _completed(child, *_communicate(child, stdin, timeout), started)
    if check and done.returncode != 0:
        raise errors.RunFailed(
            f"{Path(done.argv[0]).name} ended with {describe_exit(done.returncode)}:\n{done.tail()}"
        )
    return done


def run_logged(
    argv: Sequence[str | os.PathLike[str]],
    output: Path,
    *,
    timeout: float,
    cwd: Path,
    env: Mapping[str, str],
) -> Completed:
    """As :func:`run` without ``check``, for what runs long: ``output`` can be watched meanwhile.

    Both streams go to that file as they come; the returned standard output is its last part.
    """
    started = time.monotonic()
    with output.open("wb") as stream:
        child = _start(argv, cwd, env, (stream, subprocess.STDOUT))
        _communicate(child, b"", timeout)
    with output.open("rb") as stream:
        stream.seek(max(0, output.stat().st_size - LAST_PART))
        return _completed(child, stream.read(), b"", started)


def _start(
    argv: Sequence[str | os.PathLike[str]],
    cwd: Path | None,
    env: Mapping[str, str] | None,
    streams: tuple[Any, Any],
) -> subprocess.Popen[bytes]:
    refuse_when_stopping()
    words = tuple(os.fspath(word) for word in argv)
    try:
        return subprocess.Popen(  # a list of words, no shell
            words,
            cwd=cwd,
            env=None if env is None else dict(env),
            stdin=subprocess.PIPE,
            stdout=streams[0],
            stderr=streams[1],
            start_new_session=True,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise errors.ToolMissing(
            f"cannot start {words[0]}: {error.strerror}",
            remedy=f"install {Path(words[0]).name} or put it on the PATH",
        ) from error


def _completed(child: subprocess.Popen[bytes], out: bytes, err: bytes, started: float) -> Completed:
    words = child.args if isinstance(child.args, tuple) else (child.args,)
    return Completed(
        tuple(str(word) for word in words),
        child.returncode,
        out.decode("utf-8", "replace"),
        err.decode("utf-8", "replace"),
        time.monotonic() - started,
    )


def _communicate(
    child: subprocess.Popen[bytes], stdin: bytes, timeout: float
) -> tuple[bytes, bytes]:
    _alive.add(child)
    try:
        out, err = child.communicate(stdin, timeout=timeout)
    except subprocess.TimeoutExpired:
        _kill_group(child)
        raise errors.RunFailed(
            f"{child.args[0] if isinstance(child.args, tuple) else child.args} "  # type: ignore[str-bytes-safe]
            f"did not end within {timeout:g} s and was stopped"
        ) from None
    except BaseException:
        # Ctrl-C: the child has a session of its own, so the terminal's signal missed it.
        _kill_group(child)
        raise
    finally:
        _alive.discard(child)
    return out or b"", err or b""


def refuse_when_stopping() -> None:
    """Raise :class:`errors.RunFailed` once the run was interrupted: nothing new is begun."""
    if _stopping:
        raise errors.RunFailed("interrupted")


def stop_all() -> None:
    """End every process that is still running, with its children: the run was interrupted."""
    _stopping.append(True)
    for child in tuple(_alive):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)


def in_threads(work: Callable[[S], T], items: Iterable[S], most: int) -> list[T]:
    """``work`` of each item, in their order, in at most ``most`` threads.

    The main thread waits in short steps: the system gives a signal to any thread, but Python's
    handler runs in the main one alone, and a wait without an end would not come to it.
    """
    from concurrent.futures import ThreadPoolExecutor, wait

    with ThreadPoolExecutor(most) as pool:
        futures = [pool.submit(work, item) for item in items]
        try:
            while wait(futures, timeout=WAKE).not_done:
                pass
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


def which(name: str) -> Path | None:
    """The program ``name``: beside this interpreter first (PyPI ships node, zig ...), then PATH."""
    beside = Path(sys.executable).parent / name
    if beside.is_file() and os.access(beside, os.X_OK):
        return beside
    found = shutil.which(name)
    return Path(found) if found else None


@dataclass(frozen=True)
class Environment:
    """Another Python than this one: its interpreter and the ``versions`` of what is in it.

    ``path`` is a folder that holds this package alone: what lies beside it here may be all that
    the other environment is there to avoid.
    """

    python: Path
    path: Path
    versions: Mapping[str, str]


def run_python(
    function: str,
    arguments: Mapping[str, Any],
    *,
    timeout: float,
    overlay: Path | None = None,
    environment: Environment | None = None,
) -> Any:
    """Call ``module:name`` with keyword ``arguments`` in a process of its own.

    Arguments and the returned value are JSON plus :class:`pathlib.Path`. ``overlay`` is a folder
    of packages that win over the installed ones (another onnxruntime release); ``environment``
    is another Python to run in. An :class:`errors.EdgeError` raised there is raised here; any
    other end, a native crash included, is :class:`errors.StepFailed` with the last lines printed.
    """
    call = {"function": function, "arguments": _encode(dict(arguments))}
    python = environment.python if environment else sys.executable
    done = run(
        [python, "-P", "-c", "from edge import process; process.child()"],
        timeout=timeout,
        env=_child_environment(overlay, environment),
        stdin=json.dumps(call).encode(),
        check=False,
    )
    name = function.rpartition(":")[2].partition(".")[0]
    if done.returncode != 0 or not done.stdout:
        raise errors.StepFailed(
            f"{name} ended with {describe_exit(done.returncode)}, its last lines:\n"
            f"{done.tail() or '(it printed nothing)'}"
        )
    return _result_of(json.loads(done.stdout))


def _result_of(answer: dict[str, Any]) -> Any:
    if "error" in answer:
        cause = answer["error"]
        kind: type[errors.EdgeError] = getattr(errors, cause["class"])
        raise kind(cause["message"], remedy=cause["remedy"])
    return _decode(answer["value"])


def _child_environment(overlay: Path | None, environment: Environment | None) -> dict[str, str]:
    paths = [str(overlay)] if overlay else []
    if environment:
        paths += [str(environment.path)]
    else:
        paths += [str(PACKAGE_PARENT), os.environ.get("PYTHONPATH", "")]
    joined = os.pathsep.join(path for path in paths if path)
    # Where another Python's own places are said, they are not this environment's.
    strange = ("PYTHONHOME", "VIRTUAL_ENV") if environment else ()
    kept = {name: value for name, value in os.environ.items() if name not in strange}
    # From 1.29 onnxruntime reports its use to its maker unless it is told not to. Sets of
    # strings have another order in every process unless hashes are seeded.
    fixed = {"PYTHONPATH": joined, "ORT_DISABLE_TELEMETRY": "1", "PYTHONHASHSEED": "0"}
    return {**kept, **fixed}


def child() -> None:
    """The other side of :func:`run_python`."""
    _end_with_parent()
    call = json.loads(sys.stdin.read())
    # Standard output is the answer's alone: what libraries print there joins standard error.
    answer = os.dup(1)
    os.dup2(2, 1)
    module, _, name = call["function"].partition(":")
    function = operator.attrgetter(name)(importlib.import_module(module))
    try:
        said = {"value": _encode(function(**_decode(call["arguments"])))}
    except errors.EdgeError as error:
        said = {
            "error": {
                "class": type(error).__name__,
                "message": error.message,
                "remedy": error.remedy,
            }
        }
    with os.fdopen(answer, "w", encoding="utf-8") as stream:
        json.dump(said, stream)


def _end_with_parent() -> None:
    """On Linux, die with the build: one that was killed outright cannot end its children."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _encode(value: Any) -> Any:
    if isinstance(value, Path):
        return {"$path": str(value)}
    if isinstance(value, Mapping):
        return {str(key): _encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(item) for item in value]
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"$path"}:
            return Path(value["$path"])
        return {key: _decode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_decode(item) for item in value]
    return value
