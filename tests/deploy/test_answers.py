"""What devices answer while deploying: read with no device at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.deploy import lock, scripts, shell, storage
from edge.devices import frames
from edge.process import Completed

ID = "a" * 64


def _state(history: str = "", current: str = "", blobs: str = "") -> storage.State:
    return shell.read_state(
        f"@hash none\n@blobs\n{blobs}\n@history\n{history}\n@current\n{current}\n@end"
    )


def test_states() -> None:
    state = _state(ID, f"lrwxrwxrwx 1 0 0 9 Jan 1 00:00 bundles/x/current -> releases/{ID}")
    assert (state.history, state.hashes, state.tar, state.links) == ((ID,), False, False, False)
    assert _state(current=f"releases/{ID}").history == (ID,)
    assert _state(history=ID).history == ()
    listing = f"total 4\n-rw-r--r-- 1 0 0 17 Jan  1 00:00 {ID}\n-rw-r--r-- 1 0 0 x Jan 1 0 {ID}\n"
    assert _state(blobs=listing).blobs == {ID: 17}


@given(st.text())
def test_any_answer_gives_a_state_or_an_error(text: str) -> None:
    with pytest.raises(errors.DeployFailed, match="did not say"):
        shell.read_state(text)
    state = shell.read_state(f"{text}\n@end")
    assert all(len(one) == 64 for one in state.history)


@given(st.lists(st.sampled_from("abcd")), st.sampled_from("abcd"))
def test_a_history_ends_with_the_active_release(history: list[str], current: str) -> None:
    found = storage.true_history(history, current)
    assert found[-1] == current
    assert len(set(found)) == len(found)
    assert set(found) <= {*history, current}


def test_histories_after_a_crash() -> None:
    assert storage.true_history(["a", "b", "c"], "b") == ("a", "b")
    assert storage.true_history(["a", "b"], "c") == ("a", "b", "c")
    assert storage.true_history(["a", "b", "a"], "a") == ("b", "a")
    assert storage.true_history(["a"], None) == ()


def test_an_answer_without_an_end_collects_nothing() -> None:
    listing = f"@blobs\n-rw-r--r-- 1 0 0 17 Jan  1 00:00 {ID}\n"
    assert not storage.garbage(shell.read_stored(listing), "demo", ())
    whole = shell.read_stored(f"{listing}@end")
    assert storage.garbage(whole, "demo", ()) == storage.Unneeded(blobs=(ID,))


def test_what_a_kept_release_needs_stays() -> None:
    other = "b" * 64
    stored = storage.Stored(
        (ID, other), {("demo", ID): frozenset({ID}), ("else", ID): frozenset({other})}
    )
    assert storage.garbage(stored, "demo", (ID,)) == storage.Unneeded()
    assert storage.garbage(stored, "demo", ()) == storage.Unneeded((("demo", ID),), (ID,))


def test_scripts_fit_into_what_a_dropbear_takes() -> None:
    names = [name for name in vars(scripts) if name.isupper() and not name.startswith("_")]
    texts = [text for name in names if isinstance(text := getattr(scripts, name), str)]
    assert len(texts) >= 10
    for text in texts:
        assert len(frames.command(["sh", "-c", text, "sh"], "0" * 16, 99)) < 5000


@pytest.mark.parametrize(
    ("code", "stderr", "words"),
    [
        (scripts.LOST, "", "took the lock of pi over"),
        (scripts.DAMAGED, "", "were damaged"),
        (scripts.FULL, "", "the disk of pi is full"),
        (1, "cp: write error: No space left on device", "the disk of pi is full"),
        (1, "sh: can't create lock/1: Read-only file system", "cannot be written"),
        (-9, "", "signal 9"),
    ],
)
def test_failures_of_steps(code: int, stderr: str, words: str) -> None:
    error = lock.failure(Completed(("sh",), code, "", stderr, 0.0), "pi")
    assert words in error.message
