"""Connecting: host keys, logins, jump hosts, and every way it can fail."""

from __future__ import annotations

import base64
import re
import shlex
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge import errors, process
from edge.devices import DeviceSettings, known_hosts, open_device
from edge.devices.ssh import Ssh
from tests.devices.faults import answering, forwarder
from tests.sshd import EMPTY_CONFIG, Sshd, make_key, public, start
from tests.support import need

pytestmark = pytest.mark.ssh


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def _connects(settings: DeviceSettings) -> bool:
    with open_device(settings) as device:
        return device.run(["echo", "in"], timeout=20).stdout == "in\n"


def _known(tmp_path: Path, *lines: str) -> Path:
    (tmp_path / "known").write_text("\n".join(lines) + "\n")
    return tmp_path / "known"


def _fingerprint(key: Path) -> str:
    return known_hosts.fingerprint(base64.b64decode(public(key).split()[1]))


def _rejected(settings: DeviceSettings) -> errors.HostKeyRejected:
    with pytest.raises(errors.HostKeyRejected) as caught, open_device(settings):
        pass
    return caught.value


def test_an_unknown_key_is_shown_with_the_command_to_trust_it(sshd: Sshd, tmp_path: Path) -> None:
    need("ssh-keyscan")
    settings = sshd.settings(known_hosts=tmp_path / "known")
    error = _rejected(settings)
    assert f"the host key of [127.0.0.1]:{sshd.port} is not known" in error.message
    assert _fingerprint(sshd.host_key) in error.message
    command = error.remedy.partition("then: ")[2]
    process.run(["sh", "-c", command], timeout=30)  # what a person would paste
    assert _connects(settings)


def test_a_changed_key(sshd: Sshd, tmp_path: Path) -> None:
    other = make_key(tmp_path / "other")
    name = f"[127.0.0.1]:{sshd.port}"
    settings = sshd.settings(known_hosts=_known(tmp_path, f"{name} {public(other)}"))
    error = _rejected(settings)
    assert "has changed" in error.message
    assert _fingerprint(sshd.host_key) in error.message
    assert _fingerprint(other) in error.message
    command = re.sub(r"^.*anew: ", "", error.remedy)
    process.run(["sh", "-c", command], timeout=30)
    assert _connects(settings)


def test_a_revoked_key(sshd: Sshd, tmp_path: Path) -> None:
    key = public(sshd.host_key)
    lines = (f"[127.0.0.1]:{sshd.port} {key}", f"@revoked * {key}")
    error = _rejected(sshd.settings(known_hosts=_known(tmp_path, *lines)))
    assert "is revoked" in error.message


def test_a_known_key_of_another_type(sshd: Sshd, tmp_path: Path) -> None:
    process.run(
        [need("ssh-keygen"), "-q", "-t", "ecdsa", "-N", "", "-f", tmp_path / "ec"], timeout=30
    )
    line = f"[127.0.0.1]:{sshd.port} {public(tmp_path / 'ec')}"
    error = _rejected(sshd.settings(known_hosts=_known(tmp_path, line)))
    assert "offers no host key of the types known for it (ecdsa-sha2-nistp256)" in error.message


def test_the_known_type_is_asked_for(tmp_path: Path) -> None:
    # The server prefers ed25519; only its ecdsa key is known (paramiko #350).
    process.run(
        [need("ssh-keygen"), "-q", "-t", "ecdsa", "-N", "", "-f", tmp_path / "ec"], timeout=30
    )
    with start(tmp_path / "sshd", options=[f"HostKey {tmp_path / 'ec'}"]) as server:
        line = f"[127.0.0.1]:{server.port} {public(tmp_path / 'ec')}"
        assert _connects(server.settings(known_hosts=_known(tmp_path, line)))


def test_hashed_names_and_odd_lines(
    sshd: Sshd, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    name = f"[127.0.0.1]:{sshd.port}"
    key = public(sshd.host_key)
    known = _known(
        tmp_path,
        f"@cert-authority * {key}",
        "what is this",
        f"{known_hosts.hashed(name, b'salt of 20 bytes ok.')} {key}",
    )
    assert _connects(sshd.settings(known_hosts=known))
    assert f"{known}:1: @cert-authority is not supported" in capfd.readouterr().err


def test_an_authority_makes_nothing_known(sshd: Sshd, tmp_path: Path) -> None:
    known = _known(tmp_path, f"@cert-authority * {public(sshd.host_key)}")
    assert "is not known" in _rejected(sshd.settings(known_hosts=known)).message


def test_a_wrong_key(sshd: Sshd, tmp_path: Path) -> None:
    settings = sshd.settings(identity_file=make_key(tmp_path / "stranger"))
    with pytest.raises(errors.DeviceUnreachable, match="refused the login") as caught:
        _connects(settings)
    assert "ssh-copy-id" in caught.value.remedy
    assert str(tmp_path / "stranger") in caught.value.remedy


def test_no_key_at_all(sshd: Sshd) -> None:
    with pytest.raises(errors.DeviceUnreachable, match="no key to log in") as caught:
        _connects(sshd.settings(identity_file=None))
    assert "identity_file" in caught.value.remedy


def test_too_many_wrong_keys(tmp_path: Path) -> None:
    with start(tmp_path / "sshd", options=["MaxAuthTries 2"]) as server:
        keys = [make_key(tmp_path / f"key{number}") for number in range(4)]
        config = tmp_path / "config"
        lines = "\n".join(f"IdentityFile {key}" for key in keys)
        config.write_text(EMPTY_CONFIG.replace("IdentityFile none", lines))
        settings = server.settings(identity_file=None, ssh_config=config)
        with pytest.raises(errors.DeviceUnreachable, match="refused the login"):
            _connects(settings)


def test_a_server_that_wants_a_password(tmp_path: Path) -> None:
    options = ["PubkeyAuthentication no", "PasswordAuthentication yes"]
    with (
        start(tmp_path / "sshd", options=options) as server,
        pytest.raises(errors.DeviceUnreachable, match="it takes no keys, only password"),
    ):
        _connects(server.settings())


def test_a_second_factor(tmp_path: Path) -> None:
    options = ["AuthenticationMethods publickey,password", "PasswordAuthentication yes"]
    with (
        start(tmp_path / "sshd", options=options) as server,
        pytest.raises(errors.DeviceUnreachable, match="also wants password"),
    ):
        _connects(server.settings())


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty ssh-agent in the environment; the socket's path."""
    path = tmp_path / "agent"
    done = process.run([need("ssh-agent"), "-s", "-a", path], timeout=30)
    found = re.search(r"SSH_AGENT_PID=(\d+)", done.stdout)
    assert found
    monkeypatch.setenv("SSH_AUTH_SOCK", str(path))
    try:
        yield path
    finally:
        process.run(["kill", found[1]], timeout=10)


def test_the_agent_unlocks_a_protected_key(sshd: Sshd, tmp_path: Path, agent: Path) -> None:
    locked = tmp_path / "locked"
    locked.write_bytes(sshd.key.read_bytes())
    locked.chmod(0o600)
    locked.with_name("locked.pub").write_text(public(sshd.key))
    change: list[str | Path] = [need("ssh-keygen"), "-q", "-p", "-N", "secret", "-f", locked]
    process.run(change, timeout=30)
    settings = sshd.settings(identity_file=locked)
    with pytest.raises(errors.DeviceUnreachable, match="passphrase"):
        _connects(settings)
    process.run([need("ssh-add"), "-q", sshd.key], timeout=30)
    assert _connects(settings)
    assert _connects(sshd.settings(identity_file=None))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _unreachable(sshd: Sshd, **changes: Any) -> errors.DeviceUnreachable:
    with pytest.raises(errors.DeviceUnreachable) as caught:
        _connects(sshd.settings(connect_timeout=1, **changes))
    assert caught.value.remedy
    assert "\n" not in caught.value.message
    return caught.value


def test_nobody_listens(sshd: Sshd) -> None:
    port = _free_port()
    assert _unreachable(sshd, port=port).message == f"127.0.0.1:{port} refused the connection"


def test_no_such_name(sshd: Sshd) -> None:
    error = _unreachable(sshd, host="no-such-host.invalid")
    assert "no-such-host.invalid cannot be resolved" in error.message


def test_a_port_that_is_no_ssh_server(sshd: Sshd) -> None:
    with answering(b"HTTP/1.1 400 Bad Request\r\n" * 200) as port:
        assert _unreachable(sshd, port=port).message == f"127.0.0.1:{port} is no SSH server"


def test_a_server_that_says_nothing(sshd: Sshd) -> None:
    with answering(b"") as port:
        assert "did not identify itself within 1 s" in _unreachable(sshd, port=port).message


def test_a_server_that_stops_after_its_name(sshd: Sshd) -> None:
    with answering(b"SSH-2.0-nothing\r\n") as port:
        assert "did not identify itself" in _unreachable(sshd, port=port).message
    # paramiko's timer would keep the whole program from ending.
    assert not [one for one in threading.enumerate() if isinstance(one, threading.Timer)]


def test_a_host_that_does_not_answer(sshd: Sshd) -> None:
    # A listener whose queue is full drops new connections, as a switched-off host does.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        port = int(listener.getsockname()[1])
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        try:
            assert "did not answer within 1 s" in _unreachable(sshd, port=port).message
        finally:
            for filler in fillers:
                filler.close()


def test_a_server_that_hangs_up_is_tried_again(sshd: Sshd, tmp_path: Path) -> None:
    with forwarder(sshd.port, drop_first=1) as network:
        known = _known(tmp_path, f"[127.0.0.1]:{network.port} {public(sshd.host_key)}")
        assert _connects(sshd.settings(port=network.port, known_hosts=known))
        assert network.seen == 2


def test_a_server_that_always_hangs_up(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge.devices.link.random.uniform", lambda low, high: 0.001)
    with forwarder(sshd.port, drop_first=99) as network:
        error = _unreachable(sshd, port=network.port)
        assert "ended the connection before the login" in error.message
        assert network.seen == 4


def test_a_session_too_many(tmp_path: Path) -> None:
    with (
        start(tmp_path / "sshd", options=["MaxSessions 0"]) as server,
        pytest.raises(errors.DeviceUnreachable, match="opens no more sessions"),
    ):
        _connects(server.settings())


def test_the_socket_is_tuned(sshd: Sshd) -> None:
    with open_device(sshd.settings()) as device:
        assert isinstance(device, Ssh)
        assert device._link
        tcp = device._link.tcp
        assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert tcp.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert tcp.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
        assert "gcm" in device._link.transport.remote_cipher


def _jump_config(tmp_path: Path, target: Sshd, gate: Sshd) -> Path:
    """Hosts ``gate``, ``second`` (through it) and ``far`` (through both)."""
    known = _known(
        tmp_path, target.known_hosts.read_text().strip(), gate.known_hosts.read_text().strip()
    )
    common = f"  HostName 127.0.0.1\n  UserKnownHostsFile {known}\n  GlobalKnownHostsFile none\n"
    config = tmp_path / "config"
    config.write_text(
        f"Host gate\n{common}  Port {gate.port}\n  IdentityFile {gate.key}\n"
        f"Host second\n{common}  Port {target.port}\n  IdentityFile {target.key}\n"
        f"  ProxyJump gate\n"
        f"Host far\n{common}  Port {gate.port}\n  IdentityFile {gate.key}\n"
        f"  ProxyJump gate,second\n"
    )
    return config


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with start(tmp_path_factory.mktemp("gate")) as server:
        yield server


@pytest.mark.parametrize("host", ["gate", "second", "far"])
def test_jump_hosts(sshd: Sshd, gate: Sshd, tmp_path: Path, host: str) -> None:
    config = _jump_config(tmp_path, sshd, gate)
    settings = DeviceSettings("lab", kind="ssh", host=host, ssh_config=config)
    before = gate.log().count("Accepted publickey")
    assert _connects(settings)
    # The way to "far" ends at the gate again, inside the second hop.
    assert gate.log().count("Accepted publickey") == before + (2 if host == "far" else 1)


def test_the_key_behind_a_jump_host_is_checked_too(sshd: Sshd, gate: Sshd, tmp_path: Path) -> None:
    config = _jump_config(tmp_path, sshd, gate)
    _known(tmp_path, gate.known_hosts.read_text())
    error = _rejected(DeviceSettings("lab", kind="ssh", host="second", ssh_config=config))
    assert f"[127.0.0.1]:{sshd.port} is not known" in error.message
    assert "ssh -J" in error.remedy
    assert shlex.split(error.remedy.partition("by hand: ")[2])[0] == "ssh"


def test_the_key_of_the_jump_host_is_checked(sshd: Sshd, gate: Sshd, tmp_path: Path) -> None:
    config = _jump_config(tmp_path, sshd, gate)
    _known(tmp_path, sshd.known_hosts.read_text())
    error = _rejected(DeviceSettings("lab", kind="ssh", host="second", ssh_config=config))
    assert f"[127.0.0.1]:{gate.port} is not known" in error.message


def test_a_jump_host_that_does_not_get_there(sshd: Sshd, gate: Sshd, tmp_path: Path) -> None:
    config = _jump_config(tmp_path, sshd, gate)
    port = _free_port()
    config.write_text(config.read_text().replace(f"Port {sshd.port}", f"Port {port}"))
    settings = DeviceSettings("lab", kind="ssh", host="second", ssh_config=config)
    with pytest.raises(errors.DeviceUnreachable, match=f"cannot reach 127.0.0.1:{port}"):
        _connects(settings)
