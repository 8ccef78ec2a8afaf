"""ONNX Runtime's sources: only the right release, archives that nobody vouches for, the key."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import os
import struct
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge import errors, process
from edge.config import Pin
from edge.store import Store, hash_file
from edge.tools import fetch, ort_source
from edge.tools.ort_source import Dependency
from tests.tools.test_fetch import ar_member, deb_with

TREE = {
    "VERSION_NUMBER": b"1.21.0\n",
    "build.sh": b"#!/bin/sh\n",
    "onnxruntime/core/a.cc": b"int a;\n",
    "cmake/deps.txt": b"a;b\n",
}
SHA256 = "0" * 64


def info(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, link
    return found


def tar_of(
    entries: Iterable[tuple[tarfile.TarInfo, bytes]],
    packed: Callable[[bytes], bytes] = gzip.compress,
) -> bytes:
    """A tar of members that may be anything, compressed."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for member, data in entries:
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return packed(buffer.getvalue())


def sources(
    files: dict[str, bytes] = TREE,
    top: str = "onnxruntime-1.21.0",
    packed: Callable[[bytes], bytes] = gzip.compress,
) -> bytes:
    """An archive of a source tree."""
    entries = []
    for name, data in files.items():
        member = info(f"{top}/{name}")
        member.mode = 0o755 if name.endswith(".sh") else 0o600
        entries.append((member, data))
    return tar_of([(info(top, tarfile.DIRTYPE), b""), *entries], packed)


def plain(data: bytes) -> bytes:
    return data


def write_tree(folder: Path, files: dict[str, bytes] = TREE) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def content(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def empty(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def archive(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "sources.tar"
    path.write_bytes(data)
    return path


# --------------------------------------------------------------------------------- finding
@pytest.mark.parametrize("packed", [gzip.compress, bz2.compress, lzma.compress, plain])
def test_an_archive_is_found_and_placed(
    tmp_path: Path, empty: Store, packed: Callable[[bytes], bytes]
) -> None:
    given = archive(tmp_path, sources(packed=packed))
    found = ort_source.find(empty, "1.21.0", None, given)
    assert (found.path, found.size) == (given, given.stat().st_size)
    ort_source.place(found.path, tmp_path / "placed")
    assert content(tmp_path / "placed") == TREE


def test_a_folder_is_found_and_placed(tmp_path: Path, empty: Store) -> None:
    given = write_tree(tmp_path / "tree")
    (given / "build.sh").chmod(0o755)
    (given / "elsewhere").symlink_to(tmp_path)  # not followed: no end, and not in the key
    (given / "dangling").symlink_to("nothing")
    found = ort_source.find(empty, "1.21.0", None, given)
    assert found.path == given
    ort_source.place(found.path, tmp_path / "placed")
    assert content(tmp_path / "placed") == TREE
    assert os.access(tmp_path / "placed" / "build.sh", os.X_OK)
    assert not os.access(tmp_path / "placed" / "VERSION_NUMBER", os.X_OK)


def test_given_sources_win_over_the_pin_and_that_over_a_clone(tmp_path: Path, empty: Store) -> None:
    pinned = archive(tmp_path, sources())
    pin = Pin(package=f"file:{pinned}", sha256=hash_file(pinned)[0])
    assert ort_source.find(empty, "1.21.0", pin, None).sha256 == pin.sha256
    tree = write_tree(tmp_path / "tree")
    assert ort_source.find(empty, "1.21.0", pin, tree).path == tree


@pytest.mark.parametrize("folder", [True, False])
def test_sources_of_another_release_are_refused_with_what_to_do(
    tmp_path: Path, empty: Store, folder: bool
) -> None:
    files = {**TREE, "VERSION_NUMBER": b"1.20.1\n"}
    given = write_tree(tmp_path / "t", files) if folder else archive(tmp_path, sources(files))
    with pytest.raises(errors.ConfigError) as caught:
        ort_source.find(empty, "1.21.0", None, given)
    assert caught.value.message == (
        f"the sources in {given} are ONNX Runtime 1.20.1, the target pins 1.21.0"
    )
    assert "give the sources of 1.21.0" in caught.value.remedy
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    "said",
    [b"", b"\n", b"1.21.0\n1.21.0\n", b"\xff\xfe", b"1" * 41, b"1.21.0\x1b[31m", b"1" * 10**6],
)  # fmt: skip
@pytest.mark.parametrize("folder", [True, False])
def test_what_names_no_version_is_no_tree(tmp_path: Path, said: bytes, folder: bool) -> None:
    files = {**TREE, "VERSION_NUMBER": said}
    given = write_tree(tmp_path / "t", files) if folder else archive(tmp_path, sources(files))
    with pytest.raises(errors.ConfigError, match="it has no VERSION_NUMBER") as caught:
        ort_source.check_version(given, "1.21.0")
    assert "--ort-source" in caught.value.remedy


def test_a_version_below_the_top_folder_says_nothing(tmp_path: Path) -> None:
    entries = [(info("a/b/VERSION_NUMBER"), b"1.21.0"), (info("VERSION_NUMBER"), b"1.21.0")]
    with pytest.raises(errors.ConfigError, match="no VERSION_NUMBER"):
        ort_source.check_version(archive(tmp_path, tar_of(entries)), "1.21.0")


def test_a_version_that_is_a_link_to_itself_is_none(tmp_path: Path) -> None:
    name = "top/VERSION_NUMBER"
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
        data = tar_of([(info(name, kind, name), b""), (info("top/a"), b"a")])
        with pytest.raises(errors.ConfigError, match="no VERSION_NUMBER"):
            ort_source.check_version(archive(tmp_path, data), "1.21.0")


def test_a_path_that_is_not_there(tmp_path: Path, empty: Store) -> None:
    with pytest.raises(errors.UsageError, match="cannot read"):
        ort_source.find(empty, "1.21.0", None, tmp_path / "nowhere")


def test_a_folder_without_a_tree_is_refused_before_it_is_read(tmp_path: Path, empty: Store) -> None:
    (tmp_path / "home").mkdir()
    with pytest.raises(errors.ConfigError, match="no source tree of ONNX Runtime"):
        ort_source.find(empty, "1.21.0", None, tmp_path / "home")


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort_source, "MAX_FILES", len(TREE) - 1)
    with pytest.raises(errors.ConfigError, match=f"more than {len(TREE) - 1} files"):
        ort_source._tree(write_tree(tmp_path / "t"), "1.21.0")


# ---------------------------------------------------------------------------------- the key
def digest(folder: Path) -> str:
    return ort_source._tree(folder, "1.21.0").sha256


names = st.sampled_from([*TREE, "onnxruntime/new.cc", "a b", "x\ny"])


@settings(max_examples=40)
@given(name=names, data=st.binary(max_size=3))
def test_any_byte_and_any_name_changes_the_digest(
    tmp_path_factory: pytest.TempPathFactory, name: str, data: bytes
) -> None:
    folder = write_tree(tmp_path_factory.mktemp("t") / "tree")
    before = digest(folder)
    changed = {**TREE, name: data if name != "VERSION_NUMBER" else b"1.21.0"}
    write_tree(folder, changed)
    assert (digest(folder) == before) is (changed == TREE)
    path = folder / name
    moved = path.rename(path.with_name("renamed")) if name != "VERSION_NUMBER" else path
    if moved != path:
        assert digest(folder) != before


def test_names_and_contents_cannot_be_exchanged(tmp_path: Path) -> None:
    first = write_tree(tmp_path / "1", {**TREE, "a": b"b", "b": b"a"})
    second = write_tree(tmp_path / "2", {**TREE, "a": b"a", "b": b"b"})
    assert digest(first) != digest(second)


def test_times_modes_and_what_a_checkout_adds_do_not_count(tmp_path: Path) -> None:
    plain_tree = write_tree(tmp_path / "plain")
    checkout = write_tree(tmp_path / "checkout")
    for path in checkout.rglob("*"):
        os.utime(path, (1, 1))
    write_tree(
        checkout,
        {
            ".git/config": b"x",
            "cmake/external/onnx/.git": b"gitdir: /home/me/.git/modules/onnx\n",
            "tools/python/__pycache__/a.pyc": b"x",
            "build/Linux/Release/a.o": b"x",
        },
    )
    (checkout / "build.sh").chmod(0o700)
    assert digest(checkout) == digest(plain_tree)
    ort_source.place(checkout, tmp_path / "placed")
    assert content(tmp_path / "placed") == TREE


def test_build_is_left_out_at_the_top_alone(tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "t", {**TREE, "tools/build/a.py": b"x"})
    assert "tools/build/a.py" in ort_source._listed(folder)


def test_names_that_are_no_text_have_a_digest(tmp_path: Path) -> None:
    folder = write_tree(tmp_path / "t")
    before = digest(folder)
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff.cc")).write_bytes(b"")
    assert digest(folder) != before


def test_a_folder_that_cannot_be_read_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tree(tmp_path / "t")
    scandir = os.scandir

    def forbidden(path: str) -> object:
        if Path(path).name == "cmake":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", forbidden)
    with pytest.raises(errors.UsageError, match=r"cannot read .*cmake: Permission denied"):
        digest(folder)


# ------------------------------------------------------------------------------- unpacking
@pytest.mark.parametrize("name", ["../a", "top/../../a", "/a", "//a", "top/..", "..", "top/a\0b"])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE])
def test_a_name_that_leaves_the_archive_is_refused(tmp_path: Path, name: str, kind: bytes) -> None:
    member = info("top/placeholder", kind, "a")
    member.pax_headers = {"path": name}  # as it stands, a NUL too
    data = tar_of([(info("top/good"), b"good"), (member, b"")])
    with pytest.raises(errors.ConfigError, match="which leaves it"):
        ort_source.unpack(archive(tmp_path, data), tmp_path / "in" / "out")
    assert content(tmp_path / "in") == {"out/good": b"good"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "sources.tar"]


def test_links_and_devices_are_left_out(tmp_path: Path) -> None:
    kinds = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)
    odd = [(info(f"top/odd{n}", kind, "/etc/passwd"), b"") for n, kind in enumerate(kinds)]
    # A file "below" a link: the link is not there, so it lies in a folder of that name.
    through = [(info("top/link", tarfile.SYMTYPE, "/tmp"), b""), (info("top/link/x"), b"x")]
    data = tar_of([*odd, *through, (info("top/file"), b"f")])
    ort_source.unpack(archive(tmp_path, data), tmp_path / "out")
    assert content(tmp_path / "out") == {"file": b"f", "link/x": b"x"}
    assert not any(path.is_symlink() for path in (tmp_path / "out").rglob("*"))


def test_only_the_x_bit_of_a_mode_is_kept(tmp_path: Path) -> None:
    script, other = info("top/run"), info("top/file")
    script.mode, other.mode = 0o6777, 0o000
    ort_source.unpack(archive(tmp_path, tar_of([(script, b"x"), (other, b"y")])), tmp_path / "out")
    modes = {path.name: path.stat().st_mode & 0o7777 for path in (tmp_path / "out").iterdir()}
    assert modes == {"run": 0o755, "file": 0o644}


def test_root_and_only_choose(tmp_path: Path) -> None:
    boost = ("include/boost/mp11.hpp", "include/boost/mp11/a.hpp", "include/boost/mp11x/b.hpp")
    names = [f"usr/{name}" for name in (*boost, "include2/boost/mp11.hpp", "share/doc/x")]
    data = tar_of([(info(f"./{name}"), name.encode()) for name in names])
    dependency = Dependency(
        package="debian:pool/b_1.83.deb", sha256=SHA256, root="usr/include",
        only=("boost/mp11", "boost/mp11.hpp"),
    )  # fmt: skip
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "CMakeLists.txt").write_text("there before\n")
    ort_source.place_dependency(archive(tmp_path, data), dependency, tmp_path / "out")
    assert sorted(content(tmp_path / "out")) == [
        "CMakeLists.txt",
        "boost/mp11.hpp",
        "boost/mp11/a.hpp",
    ]


def test_a_debian_package_is_unpacked(tmp_path: Path) -> None:
    package = archive(tmp_path, deb_with({"usr/include/a.h": b"int a;\n", "usr/share/doc/a": b"x"}))
    ort_source.unpack(package, tmp_path / "out", root="usr/include")
    assert content(tmp_path / "out") == {"a.h": b"int a;\n"}


@pytest.mark.parametrize("root", ["", "usr/include", "top/file/below"])
def test_an_archive_that_holds_nothing_there(tmp_path: Path, root: str) -> None:
    data = tar_of([(info("top/folder", tarfile.DIRTYPE), b""), (info("file"), b"x")])
    where = root or "its top folder"
    with pytest.raises(errors.ConfigError, match=f"holds nothing below {where}") as caught:
        ort_source.unpack(archive(tmp_path, data), tmp_path / "out", root=root)
    assert caught.value.remedy


def test_two_top_folders_are_not_mixed(tmp_path: Path) -> None:
    data = tar_of([(info("one/a"), b"a"), (info("two/b"), b"b")])
    with pytest.raises(errors.ConfigError, match="more than one top folder"):
        ort_source.unpack(archive(tmp_path, data), tmp_path / "out")


# ------------------------------------------------------------------- made to do damage
@pytest.mark.parametrize(("limit", "value"), [("MAX_FILES", 3), ("MAX_UNPACKED", 1000)])
def test_what_is_not_wanted_counts_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(ort_source, limit, value)
    entries = [(info(f"top/{n}"), b"x" * 400) for n in range(4)]
    with pytest.raises(errors.ConfigError, match="too large to be unpacked"):
        ort_source.unpack(
            archive(tmp_path, tar_of(entries)), tmp_path / "out", root="top", only=("0",)
        )


def with_size(data: bytes, size: bytes, at: int = 0) -> bytes:
    """The tar with another size in the header at ``at``, its checksum right."""
    header = bytearray(data[at : at + 512])
    header[124:136] = size
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    return data[:at] + bytes(header) + data[at + 512 :]


NEGATIVE = b"\xff" * 10 + struct.pack(">h", -1024)
HUGE = b"\x80" + b"\0" * 3 + struct.pack(">q", 2**62)


@pytest.mark.parametrize("size", [NEGATIVE, HUGE], ids=["negative", "huge"])
@pytest.mark.parametrize("kind", [tarfile.REGTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_sizes_that_would_go_round_or_take_all_memory(
    tmp_path: Path, size: bytes, kind: bytes
) -> None:
    data = tar_of([(info("top/a"), b"a"), (info("top/b", kind), b"b")], plain)
    path = archive(tmp_path, with_size(data, size, 1024))
    with pytest.raises(errors.ConfigError, match=r"cannot be read|too large"):
        ort_source.unpack(path, tmp_path / "out")


def test_a_negative_size_in_an_extension(tmp_path: Path) -> None:
    member = info("top/b")
    member.pax_headers = {"size": "-1024"}
    with pytest.raises(errors.ConfigError, match="cannot be read"):
        ort_source.unpack(
            archive(tmp_path, tar_of([(info("top/a"), b"a"), (member, b"b")])), tmp_path / "out"
        )


def test_an_extension_of_many_bytes_is_not_read(tmp_path: Path) -> None:
    member = info("top/b")
    member.pax_headers = {"comment": "x" * (fetch.MAX_EXTENSION_BYTES + 1)}
    with pytest.raises(errors.ConfigError, match="a header gives a size"):
        ort_source.unpack(
            archive(tmp_path, tar_of([(info("top/a"), b"a"), (member, b"b")])), tmp_path / "out"
        )


def test_extensions_without_end(tmp_path: Path) -> None:
    header = info("x", tarfile.XHDTYPE).tobuf(tarfile.USTAR_FORMAT)
    path = archive(tmp_path, header * 5000 + sources(packed=plain))
    with pytest.raises(errors.ConfigError, match="cannot be read"):
        ort_source.unpack(path, tmp_path / "out")


def test_a_damaged_header_is_not_the_end(tmp_path: Path) -> None:
    data = bytearray(sources(packed=plain))
    data[data.index(b"cmake/deps.txt")] ^= 1
    with pytest.raises(errors.ConfigError, match="damaged header"):
        ort_source.unpack(archive(tmp_path, bytes(data)), tmp_path / "out")


def test_a_name_that_is_file_and_folder_is_an_error(tmp_path: Path) -> None:
    data = tar_of([(info("top/a"), b"a"), (info("top/a/b"), b"b")])
    with pytest.raises(errors.StepFailed, match="cannot write"):
        ort_source.unpack(archive(tmp_path, data), tmp_path / "out")


def test_a_full_disk_is_not_the_archives_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = archive(tmp_path, sources())

    def full(*_words: object, **_options: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "chmod", full)
    with pytest.raises(errors.StepFailed, match="No space left") as caught:
        ort_source.unpack(path, tmp_path / "out")
    assert "space" in caught.value.remedy


def test_without_lzma_the_remedy_is_another_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(errors.ToolMissing, match="without lzma"):
        ort_source.check_version(archive(tmp_path, sources(packed=lzma.compress)), "1.21.0")
    ort_source.check_version(archive(tmp_path, sources()), "1.21.0")


@pytest.mark.parametrize(
    "data", [b"", b"x", b"PK\x03\x04", b"!<arch>\n", gzip.compress(b"x" * 600, mtime=0)]
)
def test_what_is_no_archive(tmp_path: Path, data: bytes) -> None:
    path = archive(tmp_path, data)
    with pytest.raises(errors.ConfigError, match="cannot be read as an archive") as caught:
        ort_source.check_version(path, "1.21.0")
    assert "\n" not in caught.value.message
    assert ".tar.xz" in caught.value.remedy


DEB = deb_with({"top/VERSION_NUMBER": b"1.21.0\n", "top/a": b"int a;\n" * 50})
PACKED = {
    "tar": sources(packed=plain),
    "gz": sources(),
    "bz2": sources(packed=bz2.compress),
    "xz": sources(packed=lzma.compress),
    "deb": DEB,
    "pax": tar_of(
        [(info("top/" + "long/" * 60 + "ü"), b"x"), (info("top/VERSION_NUMBER"), b"1")], plain
    ),
}


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(sorted(PACKED.values()))))
    for _ in range(draw(st.integers(0, 4))):
        data[draw(st.integers(0, len(data) - 1))] ^= 1 << draw(st.integers(0, 7))
    cut = draw(st.integers(0, len(data)))
    data = data[:cut] if draw(st.booleans()) else data
    extra = draw(st.binary(max_size=600))
    at = draw(st.integers(0, len(data)))
    return bytes(data[:at] + extra + data[at:]) if draw(st.booleans()) else bytes(data)


@settings(max_examples=300)
@given(damaged())
def test_damage_never_raises_anything_but_our_own(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("d")
    path = archive(folder, data)
    with contextlib.suppress(errors.EdgeError):
        ort_source.unpack(path, folder / "in" / "out")
    with contextlib.suppress(errors.EdgeError):
        ort_source.check_version(path, "1.21.0")
    assert {path.name for path in folder.iterdir()} <= {"in", "sources.tar"}
    path.unlink()


@pytest.mark.parametrize(
    "size", [b"-60       ", b"          ", b"1_0       ", b"x         ", b"9999999999"]
)
def test_sizes_in_a_debian_package_that_are_none(tmp_path: Path, size: bytes) -> None:
    first = ar_member("debian-binary", b"2.0\n")
    path = archive(tmp_path, fetch.AR + first[:48] + size + first[58:] + ar_member("data.tar", b""))
    with pytest.raises(errors.ConfigError, match="cannot be read"):
        ort_source.unpack(path, tmp_path / "out")


# --------------------------------------------------------------------------------- cloning
def test_a_clone_is_made_once_and_whole(empty: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []

    def cloned(words: tuple[str, ...], *, timeout: float) -> None:
        calls.append(words)
        write_tree(Path(words[-1]), {**TREE, ".git/HEAD": b"x"})

    monkeypatch.setattr(process, "run", cloned)
    found = [ort_source.find(empty, "1.21.0", None, None) for _ in range(2)]
    assert found[0] == found[1]
    assert len(calls) == 1
    assert calls[0][:-1] == ort_source.clone_words("1.21.0", "")[:-1]
    assert found[0].path == empty.root / "ort" / "source-1.21.0"
    assert [path.name for path in found[0].path.parent.iterdir()] == ["source-1.21.0"]


def test_a_clone_that_fails_leaves_nothing_and_says_what_to_do(
    empty: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(words: tuple[str, ...], *, timeout: float) -> None:
        write_tree(Path(words[-1]))
        raise errors.RunFailed("git ended with exit code 128:\nfatal: unable to access")

    monkeypatch.setattr(process, "run", fails)
    with pytest.raises(errors.FetchFailed, match=r"v1\.21\.0: fatal: unable to access") as caught:
        ort_source.find(empty, "1.21.0", None, None)
    assert "--ort-source" in caught.value.remedy
    assert caught.value.exit_code == 3
    assert list((empty.root / "ort").iterdir()) == []
