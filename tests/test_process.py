"""Processes: deadlines, large outputs on both streams, crashes that are failures."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from edge import errors, process


def test_a_unit_test_cannot_start_a_process() -> None:
    with pytest.raises(AssertionError, match="mark it"):
        process.run([sys.executable, "-c", ""], timeout=5)


@pytest.mark.process
def test_both_streams_are_read_however_large() -> None:
    script = "import sys; sys.stderr.write('e' * 4_000_000); sys.stdout.write('o' * 4_000_000)"
    done = process.run([sys.executable, "-c", script], timeout=60)
    assert (len(done.stdout), len(done.stderr)) == (4_000_000, 4_000_000)


@pytest.mark.process
def test_the_deadline_ends_the_whole_process_group(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    script = (
        "import subprocess, sys, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        f"open({str(marker)!r}, 'w').write(str(child.pid)); time.sleep(60)"
    )
    with pytest.raises(errors.RunFailed, match="did not end within 3 s"):
        process.run([sys.executable, "-c", script], timeout=3)
    time.sleep(0.2)
    state = Path(f"/proc/{marker.read_text()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


@pytest.mark.process
def test_a_failure_carries_the_last_lines() -> None:
    script = "import sys; print('first'); sys.stderr.write('cause\\n'); sys.exit(7)"
    with pytest.raises(errors.RunFailed, match=r"exit code 7:\ncause"):
        process.run([sys.executable, "-c", script], timeout=20)


@pytest.mark.process
def test_a_missing_program_is_a_missing_tool() -> None:
    with pytest.raises(errors.ToolMissing, match="no-such-program") as caught:
        process.run(["/nowhere/no-such-program"], timeout=5)
    assert caught.value.exit_code == 3


# ------------------------------------------------------------------------ what runs for long
def logged(folder: Path, script: str, timeout: float = 60) -> process.Completed:
    words = [sys.executable, "-c", script]
    env = {**os.environ, "GIVEN": "yes"}
    return process.run_logged(words, folder / "log", timeout=timeout, cwd=folder, env=env)


@pytest.mark.process
def test_both_streams_of_a_long_run_lie_in_its_log_as_they_came(tmp_path: Path) -> None:
    script = (
        "import os, sys; print('one', flush=True); sys.stderr.write('two\\n'); sys.stderr.flush();"
        "print(os.environ['GIVEN'], os.getcwd()); sys.exit(3)"
    )
    done = logged(tmp_path, script)
    assert (tmp_path / "log").read_text() == f"one\ntwo\nyes {tmp_path}\n"
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == (tmp_path / "log").read_text()
    assert done.argv[0] == sys.executable
    assert done.seconds > 0


@pytest.mark.process
def test_of_a_long_log_the_last_part_is_kept_in_memory(tmp_path: Path) -> None:
    script = "import sys; sys.stdout.buffer.write(b'\\xc3\\xa9' * 200_000 + b'the end')"
    done = logged(tmp_path, script)
    assert (tmp_path / "log").stat().st_size == 400_007
    assert len(done.stdout.encode()) <= process.LAST_PART + 3  # a character cut in two
    assert done.stdout.endswith("éé" + "the end")


@pytest.mark.process
def test_a_log_can_be_watched_and_starts_anew(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("of the build before\n" * 1000)
    script = (
        "import pathlib, sys, time; print('tick', flush=True);"
        "log = pathlib.Path('log').read_text(); print(repr(log), flush=True)"
    )
    assert logged(tmp_path, script).stdout == "tick\n'tick\\n'\n"


@pytest.mark.process
def test_a_long_run_that_does_not_end_is_stopped_with_its_children(tmp_path: Path) -> None:
    script = (
        "import subprocess, sys, time;"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']);"
        "print(child.pid, flush=True); time.sleep(60)"
    )
    with pytest.raises(errors.RunFailed, match="did not end within 3 s"):
        logged(tmp_path, script, timeout=3)
    time.sleep(0.2)
    state = Path(f"/proc/{(tmp_path / 'log').read_text().strip()}/stat")
    assert not state.exists() or state.read_text().split()[2] == "Z"


@pytest.mark.process
def test_a_long_run_of_a_missing_program(tmp_path: Path) -> None:
    with pytest.raises(errors.ToolMissing, match="no-such-program"):
        process.run_logged(
            ["/nowhere/no-such-program"], tmp_path / "log", timeout=5, cwd=tmp_path, env={}
        )


@pytest.mark.process
def test_a_long_run_that_ends_by_a_signal(tmp_path: Path) -> None:
    done = logged(tmp_path, "import os; print('last', flush=True); os.kill(os.getpid(), 9)")
    assert (done.returncode, done.stdout) == (-9, "last\n")


def test_exits_in_words() -> None:
    assert process.describe_exit(3) == "exit code 3"
    assert process.describe_exit(-11) == "signal 11 (SIGSEGV)"


# Called in a child by run_python: "tests.test_process:<name>".
def add(a: int, b: int, where: Path) -> dict[str, object]:
    return {"sum": a + b, "where": where / "x"}


def chatter() -> str:
    os.write(1, b"a native library talks here\n")
    sys.stdout.write("and so does Python\n")
    return "answer"


def refuse() -> None:
    raise errors.ModelRefused("no model", remedy="bring one")


def crash() -> None:
    sys.stderr.write("about to die\n")
    sys.stderr.flush()
    os.kill(os.getpid(), signal.SIGSEGV)


@pytest.mark.process
def test_a_call_in_a_child_keeps_paths_and_values() -> None:
    arguments = {"a": 1, "b": 2, "where": Path("/tmp")}
    answer = process.run_python("tests.test_process:add", arguments, timeout=30)
    assert answer == {"sum": 3, "where": Path("/tmp/x")}


@pytest.mark.process
def test_what_libraries_print_is_no_part_of_the_answer() -> None:
    assert process.run_python("tests.test_process:chatter", {}, timeout=30) == "answer"


@pytest.mark.process
def test_an_error_in_a_child_is_the_same_error_here() -> None:
    with pytest.raises(errors.ModelRefused, match="no model") as caught:
        process.run_python("tests.test_process:refuse", {}, timeout=30)
    assert caught.value.remedy == "bring one"


@pytest.mark.process
def test_a_crash_in_a_child_is_a_failed_step_with_its_last_lines() -> None:
    with pytest.raises(errors.StepFailed, match=r"SIGSEGV.*\nabout to die"):
        process.run_python("tests.test_process:crash", {}, timeout=30)


# ------------------------------------------------------------------------------------ threads
def test_results_keep_the_order_of_their_items() -> None:
    def slow_first(item: int) -> int:
        time.sleep(0.05 if item == 0 else 0)
        return item * 10

    assert process.in_threads(slow_first, range(4), 3) == [0, 10, 20, 30]
    assert process.in_threads(slow_first, [], 1) == []


def test_what_a_thread_raises_is_raised_here() -> None:
    def refuse(item: int) -> int:
        raise errors.RunFailed(f"no {item}")

    with pytest.raises(errors.RunFailed, match="no 7"):
        process.in_threads(refuse, [7], 1)


def test_a_signal_that_a_thread_is_given_is_seen() -> None:
    """Its handler runs in the main thread, which waits for the other one."""
    seen = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.set())

    def given(_: int) -> bool:
        time.sleep(0.5)  # the main thread waits by then
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)
        return seen.wait(5)

    try:
        assert process.in_threads(given, [0], 1) == [True]
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_work_that_did_not_begin_does_not_after_a_stop() -> None:
    begun = []

    def stop(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    def work(item: int) -> None:
        begun.append(item)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
        time.sleep(2 * process.WAKE)

    before = signal.signal(signal.SIGUSR1, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            process.in_threads(work, range(5), 1)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert begun == [0]
