"""Keys to log in with: what is wrong with one is said."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from edge import errors
from edge.devices import keys
from edge.devices.ssh_config import Hop


def _private(
    kind: str,
) -> ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
    if kind == "ecdsa":
        return ec.generate_private_key(ec.SECP256R1())
    if kind == "rsa":
        return rsa.generate_private_key(65537, 2048)
    return ed25519.Ed25519PrivateKey.generate()


def _write(path: Path, passphrase: bytes = b"", kind: str = "ed25519") -> Path:
    private = _private(kind)
    form = serialization.PrivateFormat.OpenSSH
    lock: serialization.KeySerializationEncryption = serialization.NoEncryption()
    if passphrase:
        lock = serialization.BestAvailableEncryption(passphrase)
    path.write_bytes(private.private_bytes(serialization.Encoding.PEM, form, lock))
    public = private.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.with_name(path.name + ".pub").write_bytes(public + b" me@here\n")
    return path


def _hop(*identities: Path, identity: Path | None = None, only: bool = False) -> Hop:
    return Hop("pi", 22, "me", identity, identities, only, ())


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_keys_of_all_kinds(tmp_path: Path, kind: str) -> None:
    key = keys.load(_write(tmp_path / "key", kind=kind))
    assert kind[:3] in key.get_name()


def test_a_passphrase_is_said_with_the_remedy(tmp_path: Path) -> None:
    path = _write(tmp_path / "key", b"secret")
    with pytest.raises(errors.DeviceUnreachable, match="passphrase") as caught:
        keys.load(path)
    assert caught.value.remedy == f"ssh-add {path}"


def test_the_public_key_is_told_from_the_private_one(tmp_path: Path) -> None:
    path = _write(tmp_path / "key")
    with pytest.raises(errors.ConfigError, match="public key") as caught:
        keys.load(path.with_name("key.pub"))
    assert str(path) in caught.value.remedy


@pytest.mark.parametrize(
    "text",
    ["", "junk", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----"],
)
def test_what_is_no_key(tmp_path: Path, text: str) -> None:
    (tmp_path / "key").write_text(text)
    with pytest.raises(errors.ConfigError, match="no private key"):
        keys.load(tmp_path / "key")


def test_a_key_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match=r"cannot read the key .*No such file"):
        keys.load(tmp_path / "none")


def test_a_huge_file_is_no_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MAX_BYTES", 10)
    (tmp_path / "key").write_text("x" * 11)
    with pytest.raises(errors.ConfigError, match="too large"):
        keys.load(tmp_path / "key")


def test_the_named_key_is_the_only_one(tmp_path: Path) -> None:
    named, other = _write(tmp_path / "named"), _write(tmp_path / "other")
    with keys.candidates(_hop(other, identity=named)) as found:
        assert [one.label for one in found] == [str(named)]


def test_unusable_keys_of_the_configuration_are_passed_over(tmp_path: Path) -> None:
    locked, good = _write(tmp_path / "locked", b"secret"), _write(tmp_path / "good")
    with keys.candidates(_hop(tmp_path / "none", locked, good, good)) as found:
        assert [one.label for one in found] == [str(good)]


def test_only_a_few_keys_are_offered(tmp_path: Path) -> None:
    many = [_write(tmp_path / f"key{number}") for number in range(8)]
    with keys.candidates(_hop(*many)) as found:
        assert len(found) == keys.MAX_OFFERS
