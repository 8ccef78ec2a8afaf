"""known_hosts files, line by line."""

from __future__ import annotations

import base64
import fnmatch
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.devices import known_hosts
from edge.devices.known_hosts import Verdict

names = st.text("abcxyz01.-:[]", min_size=1, max_size=30)


def _key(seed: str, kind: str = "ssh-ed25519") -> bytes:
    body = seed.encode().ljust(32, b"\0")
    return b"".join(len(part).to_bytes(4, "big") + part for part in (kind.encode(), body))


def _line(patterns: str, key: bytes, marker: str = "", kind: str = "ssh-ed25519") -> str:
    return f"{marker} {patterns} {kind} {base64.b64encode(key).decode()} a comment".strip()


def _verdict(text: str, name: str, key: bytes) -> Verdict:
    return known_hosts.parse(text, "file").verdict(name, key)


@pytest.mark.parametrize(
    ("patterns", "name", "covered"),
    [
        ("pi", "pi", True),
        ("PI", "pi", True),
        ("pi", "pi2", False),
        ("a,pi,b", "pi", True),
        ("*.lab", "pi.lab", True),
        ("*.lab", "[pi.lab]:2222", False),
        ("p?", "pi", True),
        ("p?", "p", False),
        ("*.lab,!secret.lab", "secret.lab", False),
        ("!secret.lab,*.lab", "secret.lab", False),
        ("!other", "pi", False),
        ("[127.0.0.1]:2222", "[127.0.0.1]:2222", True),
        ("[127.0.0.1]:2222", "1", False),
        ("*", "anything", True),
        ("", "", True),
    ],
)
def test_patterns(patterns: str, name: str, covered: bool) -> None:
    entry = known_hosts.Entry("f:1", "", patterns, "ssh-ed25519", b"")
    assert entry.covers(name) is covered


@given(pattern=st.text("ab*?", max_size=12), name=st.text("ab", max_size=12))
def test_wildcards_agree_with_fnmatch(pattern: str, name: str) -> None:
    entry = known_hosts.Entry("f:1", "", pattern, "ssh-ed25519", b"")
    assert entry.covers(name) is fnmatch.fnmatchcase(name, pattern)


def test_a_hostile_pattern_costs_no_time() -> None:
    entry = known_hosts.Entry("f:1", "", "*a" * 100 + "b", "ssh-ed25519", b"")
    assert not entry.covers("a" * 250)


@given(name=names, other=names, salt=st.binary(min_size=20, max_size=20))
def test_hashed_names(name: str, other: str, salt: bytes) -> None:
    entry = known_hosts.Entry("f:1", "", known_hosts.hashed(name, salt), "ssh-ed25519", b"")
    assert entry.covers(name)
    assert entry.covers(other) is (other == name)


# A key, its line for [127.0.0.1]:2222 after ssh-keygen -H, and what ssh-keygen -l says of it.
OPENSSH_KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIE9RQbT4j6UaZSAQ5gymZvM8nPA4uetXa3kgtjSdEu1a"
HASHED = "|1|4MV05l7qRQ0RXrwWCD2Y6SvZ4hU=|3nLlhC+g2fP03QArJcSF3UOXwAA="
OPENSSH_LINE = f"{HASHED} ssh-ed25519 {OPENSSH_KEY}"
OPENSSH_FINGERPRINT = "SHA256:NmU6Neg9laeaMEgNmobmTAY71xSck9jfvMFIHvTiAss"


def test_what_openssh_wrote() -> None:
    key = base64.b64decode(OPENSSH_KEY)
    assert _verdict(OPENSSH_LINE, "[127.0.0.1]:2222", key) is Verdict.KNOWN
    assert _verdict(OPENSSH_LINE, "[127.0.0.1]:2223", key) is Verdict.UNKNOWN
    assert known_hosts.fingerprint(key) == OPENSSH_FINGERPRINT


@given(st.text())
def test_any_text_can_be_read(text: str) -> None:
    found = known_hosts.parse(text, "file")
    assert found.verdict("pi", _key("a")) is Verdict.UNKNOWN


@given(st.lists(st.sampled_from(["junk", "@weird pi ssh-rsa AAAA", "# pi", "", "\0\x01"])))
def test_other_lines_do_not_hide_a_key(lines: list[str]) -> None:
    text = "\n".join([*lines, _line("pi", _key("a"))])
    assert _verdict(text, "pi", _key("a")) is Verdict.KNOWN


def test_verdicts() -> None:
    text = "\n".join(
        [
            _line("pi", _key("a")),
            _line("*.lab", _key("bad"), "@revoked"),
            _line("ca.lab", _key("c"), "@cert-authority"),
        ]
    )
    assert _verdict(text, "pi", _key("a")) is Verdict.KNOWN
    assert _verdict(text, "pi", _key("b")) is Verdict.CHANGED
    assert _verdict(text, "new", _key("a")) is Verdict.UNKNOWN
    assert _verdict(text, "x.lab", _key("bad")) is Verdict.REVOKED
    assert _verdict(text, "ca.lab", _key("c")) is Verdict.UNKNOWN
    assert [e.where for e in known_hosts.parse(text, "f").authorities("ca.lab")] == ["f:3"]


def test_a_revoked_key_stays_refused_where_it_is_known_too() -> None:
    text = _line("pi", _key("a")) + "\n" + _line("*", _key("a"), "@revoked")
    assert _verdict(text, "pi", _key("a")) is Verdict.REVOKED


def test_a_line_whose_key_is_of_another_type_is_not_used() -> None:
    found = known_hosts.parse(_line("pi", _key("a"), kind="ssh-rsa"), "file")
    assert (found.entries, found.unread) == ((), ("file:1",))


@pytest.mark.parametrize(
    ("host", "port", "name"),
    [("Pi.Lab", 22, "pi.lab"), ("PI", 2222, "[pi]:2222"), ("::1", 22, "::1")],
)
def test_lookup_name(host: str, port: int, name: str) -> None:
    assert known_hosts.lookup_name(host, port) == name


def test_files_are_joined_and_missing_ones_left_out(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.write_text(_line("pi", _key("a")) + "\nrubbish\n")
    two.write_text(_line("pi", _key("b")))
    found = known_hosts.load([one, tmp_path / "none", two])
    assert len(found.keys("pi")) == 2
    assert found.unread == (f"{one}:2",)


def test_a_file_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_hosts, "MAX_BYTES", 10)
    (tmp_path / "big").write_text("x" * 11)
    with pytest.raises(errors.ConfigError, match="more than 10 bytes"):
        known_hosts.load([tmp_path / "big"])
