"""The way to a device, from the SSH configuration."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors, process
from edge.devices import DeviceSettings, ssh_config
from edge.process import Completed
from tests.support import need

CONFIG = """
Host pi
  HostName 10.0.0.7
  Port 2022
  User maker
  IdentityFile ~/keys/%h-%r
  UserKnownHostsFile /tmp/one /tmp/two
  HostKeyAlias the-pi
Host far
  HostName far.lab
  ProxyJump gate,second@middle:2200
Host gate
  HostName 10.0.0.1
  User keeper
  ProxyJump outer
Host outer
  Port 99
Host loop
  ProxyJump pool
Host pool
  ProxyJump loop
Host program
  ProxyCommand nc %h %p
"""


def _device(tmp_path: Path, host: str, text: str = CONFIG, **changes: object) -> DeviceSettings:
    (tmp_path / "config").write_text(text)
    return DeviceSettings(
        name="lab",
        kind="ssh",
        host=host,
        ssh_config=tmp_path / "config",
        **changes,  # type: ignore[arg-type]
    )


@pytest.fixture(params=["ssh", "paramiko"])
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to read a configuration: with an ssh program and without one."""
    if request.param == "ssh":
        need("ssh")
    else:
        monkeypatch.setattr(process, "which", lambda name: None)
    return str(request.param)


@pytest.mark.ssh
def test_settings_of_a_host(tmp_path: Path, reader: str) -> None:
    (hop,) = ssh_config.route(_device(tmp_path, "pi"))
    assert (hop.host, hop.port, hop.user) == ("10.0.0.7", 2022, "maker")
    assert hop.identities == (Path.home() / "keys/10.0.0.7-maker",)
    assert hop.known_hosts[:2] == (Path("/tmp/one"), Path("/tmp/two"))
    assert hop.key_alias == "the-pi"


@pytest.mark.ssh
def test_the_device_wins(tmp_path: Path, reader: str) -> None:
    key, known = tmp_path / "key", tmp_path / "known"
    device = _device(tmp_path, "pi", port=1, user="me", identity_file=key, known_hosts=known)
    (hop,) = ssh_config.route(device)
    assert (hop.port, hop.user, hop.identity, hop.known_hosts[0]) == (1, "me", key, known)


@pytest.mark.ssh
def test_the_name_is_the_host_where_none_is_given(tmp_path: Path, reader: str) -> None:
    (hop,) = ssh_config.route(_device(tmp_path, ""))
    assert (hop.host, hop.port) == ("lab", 22)


@pytest.mark.ssh
def test_jump_hosts_in_order(tmp_path: Path, reader: str) -> None:
    hops = ssh_config.route(_device(tmp_path, "far"))
    assert [(hop.host, hop.port) for hop in hops] == [
        ("outer", 99), ("10.0.0.1", 22), ("middle", 2200), ("far.lab", 22)
    ]  # fmt: skip
    assert [hop.user for hop in hops[1:3]] == ["keeper", "second"]


@pytest.mark.ssh
@pytest.mark.parametrize(("host", "words"), [("loop", "twice"), ("program", "ProxyCommand")])
def test_what_cannot_be_followed(tmp_path: Path, reader: str, host: str, words: str) -> None:
    with pytest.raises(errors.ConfigError, match=words) as caught:
        ssh_config.route(_device(tmp_path, host))
    assert caught.value.remedy


@pytest.mark.ssh
def test_include_and_match_are_resolved_by_ssh(tmp_path: Path) -> None:
    need("ssh")
    (tmp_path / "more").write_text("Host pi\n  Port 77\n")
    text = f"Include {tmp_path / 'more'}\nMatch host pi\n  User matched\n"
    (hop,) = ssh_config.route(_device(tmp_path, "pi", text))
    assert (hop.port, hop.user) == (77, "matched")


@pytest.mark.ssh
def test_a_broken_configuration_is_said(tmp_path: Path) -> None:
    need("ssh")
    with pytest.raises(errors.ConfigError, match="Bad configuration option"):
        ssh_config.route(_device(tmp_path, "pi", "Nonsense yes\n"))


@pytest.mark.parametrize("line", ["Include other", "  match all", "MATCH host=x"])
def test_without_ssh_include_and_match_are_refused(
    tmp_path: Path, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "which", lambda name: None)
    with pytest.raises(errors.ConfigError, match="only ssh itself resolves"):
        ssh_config.route(_device(tmp_path, "pi", f"Host pi\n{line}\n  Port 1\n"))


@pytest.mark.parametrize("host", ["-oProxyCommand=x", "a b", "a;b", "a\nb", "$(x)", "", "ä" * 300])
def test_host_names_cannot_be_options(tmp_path: Path, host: str) -> None:
    device = DeviceSettings(name=host, kind="ssh", ssh_config=None)
    with pytest.raises(errors.ConfigError, match="no host name"):
        ssh_config.route(device)


def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    device = DeviceSettings(name="pi", kind="ssh", ssh_config=tmp_path / "none")
    with pytest.raises(errors.ConfigError, match="does not exist"):
        ssh_config.route(device)


@given(st.text(max_size=300))
def test_any_answer_of_ssh_gives_a_way_or_an_error(answer: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "which", lambda name: Path("/usr/bin/ssh"))
        done = Completed(("ssh",), 0, answer, "", 0.0)
        patch.setattr(process, "run", lambda *words, **options: done)
        try:
            hops = ssh_config.route(DeviceSettings(name="pi", kind="ssh"))
        except errors.ConfigError:
            return
        assert hops[-1].host


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("gate", ("gate", None, None)),
        ("me@gate:22", ("gate", 22, "me")),
        ("ssh://me@gate:2200", ("gate", 2200, "me")),
        ("[::1]:22", ("::1", 22, None)),
    ],
)
def test_forms_of_a_jump(text: str, expected: tuple[str, int | None, str | None]) -> None:
    jump = ssh_config._jump(text)
    assert (jump.host, jump.port, jump.user) == expected
