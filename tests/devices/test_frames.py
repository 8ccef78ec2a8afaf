"""The marks around a command's output."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.devices import frames
from edge.devices.frames import Frame

NONCE = "0123456789abcdef"
START = b"\n@@edge-0123456789abcdef+41+40\n"
END = b"\n@@edge-0123456789abcdef-7\n"


def _feed(frame: Frame, data: bytes, sizes: list[int]) -> bytes:
    out = bytearray()
    for size in sizes:
        out += frame.feed(data[:size])
        data = data[size:]
    return bytes(out + frame.feed(data))


@given(
    noise=st.binary(max_size=200),
    payload=st.binary(max_size=500),
    sizes=st.lists(st.integers(1, 60), max_size=30),
)
def test_output_is_exact_however_it_is_cut(noise: bytes, payload: bytes, sizes: list[int]) -> None:
    frame = Frame(NONCE)
    out = _feed(frame, noise + START + payload + END + b"left behind", sizes)
    assert out == payload
    assert (frame.process, frame.parent, frame.code) == (41, 40, 7)


def test_nothing_is_lost_when_the_end_never_comes() -> None:
    frame = Frame(NONCE)
    out = frame.feed(START + b"half an answer\n@@edge-0123")
    assert out + frame.rest() == b"half an answer\n@@edge-0123"
    assert frame.code is None


def test_marks_of_another_command_are_output() -> None:
    frame = Frame(NONCE)
    other = END.replace(b"0123", b"9999")
    assert frame.feed(START + other + END) == other


def test_what_a_login_script_says_is_kept_for_the_error() -> None:
    frame = Frame(NONCE)
    assert frame.feed(b"x" * 500_000 + b"This account is not available") == b""
    assert frame.noise.endswith(b"not available")
    assert frame.process is None


@pytest.mark.parametrize(
    ("shell", "expected"),
    [(0, 0), (1, 1), (127, 127), (128, 128), (137, -9), (139, -11), (255, 255)],
)
def test_signals_are_negative(shell: int, expected: int) -> None:
    assert frames.returncode(shell) == expected


@given(st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))))
def test_words_come_back_as_they_were(words: list[str]) -> None:
    text = frames.command(words, NONCE, 10)
    assert shlex.split(text)[-len(words) :] == words or not words
    assert text.startswith("exec sh -c ")
