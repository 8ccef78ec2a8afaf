"""Words on their way to a program on Windows, held against the documented rules.

The rules are modelled in ``fake_powershell`` from the documentation; the tables here are examples
that the documentation and public reports give, and hold the models first.
"""

from __future__ import annotations

import base64
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from edge import errors
from edge.devices import powershell
from edge.devices.windows import native
from tests.devices import fake_powershell as model

# learn.microsoft.com, "Parsing C command-line arguments", the table of results.
DOCUMENTED = [
    ('"abc" d e', ["abc", "d", "e"]),
    (r'a\\\b d"e f"g h', [r"a\\\b", "de fg", "h"]),
    (r"a\\\"b c d", [r"a\"b", "c", "d"]),
    (r'a\\\\"b c" d e', [r"a\\b c", "d", "e"]),
    ('a"b"" c d', ['ab" c d']),
]
HOSTILE = [
    "", " ", "a b", "it's", "''", '"', '""', 'a"b c', "a\\", "a b\\", '\\"', '\\\\"', "\\\\",
    "\t", "a\nb", "a \\\n", "\u2018", "\u2019; exit 1 #", "\u201a\u201b", "'+$(exit 1)+'",
    "$env:PATH", "`n", "%PATH%", "&calc", "a|b", "^", "!x!", "é", "\U0001f600", "-x", "/F",
    "{body}", "@{a=1}", "<word>", ";", "a,b",
]  # fmt: skip
WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))


@pytest.mark.parametrize(("line", "words"), DOCUMENTED)
def test_the_model_is_the_documented_one(line: str, words: list[str]) -> None:
    assert model.split_command_line(line) == words


def test_the_model_shows_what_powershell_5_does_to_quotes() -> None:
    """PowerShell puts quotes around a word with blanks and escapes none in it.

    Recorded on 5.1 (anomalyco/opencode #42402): the word 'a "b c" d' arrives as two. It is why no
    argument of ours goes that way.
    """
    assert model.split_command_line('"a "b c" d"') == ["a b", "c d"]


@pytest.mark.parametrize(
    ("literal", "value"),
    [("'it''s'", "it's"), ("'$x `n'", "$x `n"), ("''", ""), ("'\u2019\u2019'", "\u2019")],
)
def test_the_model_of_string_literals(literal: str, value: str) -> None:
    """about_Quoting_Rules, and IsSingleQuote of PowerShell's CharTraits.cs."""
    assert model.match("<word>", literal) == [value]


def test_a_typographic_quote_ends_a_string_too() -> None:
    assert model.match("<word>", "'a\u2019;exit 1'") is None
    assert model.match("<word>", powershell.literal("a\u2019;exit 1")) == ["a\u2019;exit 1"]


@given(WORDS)
def test_every_word_survives_as_a_literal(word: str) -> None:
    assert model.match("<word>", powershell.literal(word)) == [word]


@given(st.lists(WORDS, max_size=5))
@example(HOSTILE)
def test_every_word_survives_the_command_line(words: list[str]) -> None:
    line = " ".join(powershell.argument(word) for word in words)
    assert model.split_command_line(line) == words


@given(st.lists(WORDS, max_size=5), WORDS, st.booleans())
@example(HOSTILE, "C:\\it's \u2018here\u2019", True)
def test_every_word_reaches_the_program(words: list[str], home: str, fed: bool) -> None:
    """The whole way: word, command line, literal, script, base64, and back by the models."""
    program = "C:\\a b\\it's.exe"
    body = powershell.start([program, *words], home, 10, stdin="C:\\in" if fed else "")
    text = powershell.command(powershell.framed(body, "ab12"))
    script = base64.b64decode(text.rpartition(" ")[2], validate=True).decode("utf-16-le")
    framed = model.match(model.FRAME, script)
    assert framed
    holes = model.match(model.FED_START if fed else model.START, framed[1])
    assert holes
    assert (holes[0], holes[2], holes[-1]) == (program, home, "20000")
    assert model.split_command_line(holes[1]) == words


@given(st.lists(WORDS, max_size=3))
@example(HOSTILE)
def test_no_shell_finds_anything_in_the_command(words: list[str]) -> None:
    """What cmd.exe and PowerShell act on, by ``cmd /?``, ss64.com/nt/syntax-esc and about_Parsing.

    Base64 of UTF-16 whose first letter is ASCII begins with a letter, so neither takes it for a
    number or a switch.
    """
    body = powershell.start(["x", *words], "C:\\", 10)
    text = powershell.command(powershell.framed(body, "ab12"))
    assert re.fullmatch(
        "powershell -NoProfile -NonInteractive -EncodedCommand [A-Za-z][0-9A-Za-z+/]*={0,2}", text
    )
    assert not set(text) & set("&|<>()@^%!\"'`$;,{}#\n\r\t")


def _cmd_c(command: str) -> str:
    """What cmd.exe runs for ``cmd /c "COMMAND"``, as ``cmd /?`` says.

    The quotes stay only when there are exactly two, nothing of ``&<>()@^|`` is between them, and
    what is between them is a program's name; else the first and the last one go.
    """
    line = f'"{command}"'
    special = set(command) & set("&<>()@^|")
    program = line.count('"') == 2 and not special and " " not in command
    return line if program else line[1:].rpartition('"')[0]


def test_cmd_runs_the_command_as_it_is() -> None:
    text = powershell.command(powershell.framed(powershell.space("C:\\"), "ab12"))
    assert _cmd_c(text) == text
    assert _cmd_c(powershell.killer(1234)) == "taskkill /F /T /PID 1234"


def test_scripts_fit_into_what_cmd_takes() -> None:
    scripts = [powershell.hashes("C:\\" + "x" * 200), powershell.copies("C:\\" + "x" * 200)]
    for body in scripts:
        assert len(powershell.command(powershell.framed(body, "0" * 16))) < 4000
    assert len(powershell.command(powershell.from_file("C:\\" + "x" * 250))) < 1500


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_words_that_no_windows_command_can_hold(word: str) -> None:
    with pytest.raises(errors.RunFailed, match="cannot be a word"):
        powershell.start(["x", word], "C:\\", 10)


@pytest.mark.parametrize(
    "program", ["a.bat", "x\\A.CMD", "a.bat. .", "a.bat\u00a0", "a.cmd.\t .", 'a".exe']
)
def test_programs_that_are_none(program: str) -> None:
    with pytest.raises(errors.RunFailed, match="no program for a device with Windows"):
        powershell.start([program], "C:\\", 10)


def test_a_command_line_has_an_end() -> None:
    with pytest.raises(errors.RunFailed, match="more than 32000 letters"):
        powershell.start(["x", "y" * 33_000], "C:\\", 10)


@pytest.mark.parametrize(
    ("path", "spelled"),
    [
        ("C:/Users/ann/a b", "C:\\Users\\ann\\a b"),
        ("/C:/Users", "C:\\Users"),
        ("//nas/share/x", "\\\\nas\\share\\x"),
        ("/root/x", "/root/x"),
    ],
)
def test_native_paths(path: str, spelled: str) -> None:
    assert native(path) == spelled


# As Windows PowerShell 5.1 writes it to a redirected standard error.
CLIXML = (
    "#< CLIXML\r\n"
    '<Objs Version="1.1.0.1" xmlns="http://schemas.microsoft.com/powershell/2004/04">'
    '<Obj S="progress" RefId="0"><MS><PR N="Record"><AV>Preparing modules for first use.</AV>'
    '</PR></MS></Obj><S S="Error">Cannot invoke method._x000D__x000A_</S>'
    '<S S="Error">Only &lt;core&gt; types are supported.</S></Objs>'
)


def test_errors_in_clixml_are_read() -> None:
    assert powershell.plain(f"before\n{CLIXML}\nafter") == (
        "before\nCannot invoke method.\r\nOnly <core> types are supported.\nafter"
    )
    assert powershell.plain("nothing of it") == "nothing of it"


def test_letters_beyond_the_first_plane_come_as_two_units() -> None:
    text = '<Objs ><S S="Error">_xD83D__xDE00_ and _xD83D_</S></Objs>'
    assert powershell.plain(text) == "\U0001f600 and \ufffd"


@pytest.mark.parametrize("part", ["<Objs ", '<Objs ><S S="Error">'])
def test_words_without_an_end_take_no_time(part: str) -> None:
    start = time.monotonic()
    powershell.plain(part * 100_000 + "</Objs>")
    assert time.monotonic() < start + 2


@given(st.text())
def test_any_words_on_standard_error_are_taken(text: str) -> None:
    assert isinstance(powershell.plain("#< CLIXML\r\n<Objs " + text), str)
