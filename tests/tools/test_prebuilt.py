"""Sizes, alignment and slices of prebuilt runtimes, from small archives made in memory."""

from __future__ import annotations

import contextlib
import hashlib
import io
import plistlib
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge import errors
from edge.config import ProjectFile
from edge.registry import Registry
from edge.store import Store
from edge.tools import prebuilt
from edge.tools.fetch import fetch
from edge.tools.prebuilt import Aar, NativeLibrary, read_aar, read_xcframework
from tests.elf_files import elf64

PAGE = 16384
ALIGNED = elf64([(6, 64, 64, 8), (1, 0, 0, PAGE), (1, 0x1000, 0x5000, PAGE)])
OLD = elf64([(1, 0, 0, 4096), (1, 0x1000, 0x2000, PAGE)])


def write_zip(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def write_tgz(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


# ------------------------------------------------------------------------------------ AAR
def aar_files() -> dict[str, bytes]:
    return {
        "AndroidManifest.xml": b"<manifest/>",
        "classes.jar": b"PK",
        "jni/x86_64/libonnxruntime.so": OLD + bytes(50_000),
        "jni/arm64-v8a/libonnxruntime.so": ALIGNED + bytes(100_000),
        "jni/arm64-v8a/libonnxruntime4j_jni.so": ALIGNED,
    }


def test_aar_names_sizes_and_alignment(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.aar", aar_files())
    aar = read_aar(path)
    assert aar.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert aar.size == path.stat().st_size
    assert [(lib.abi, lib.name, lib.size) for lib in aar.libraries] == [
        ("arm64-v8a", "libonnxruntime.so", len(ALIGNED) + 100_000),
        ("arm64-v8a", "libonnxruntime4j_jni.so", len(ALIGNED)),
        ("x86_64", "libonnxruntime.so", len(OLD) + 50_000),
    ]
    assert [lib.loads_on_16k_pages for lib in aar.libraries] == [True, True, False]
    with zipfile.ZipFile(path) as archive:
        inside = archive.getinfo("jni/arm64-v8a/libonnxruntime.so")
    assert aar.libraries[0].compressed == inside.compress_size < 1000


def test_stored_library_is_deflated_to_be_compared(tmp_path: Path) -> None:
    stored = read_aar(write_zip(tmp_path / "s.aar", aar_files(), zipfile.ZIP_STORED))
    packed = read_aar(write_zip(tmp_path / "p.aar", aar_files()))
    assert stored.libraries == packed.libraries
    assert stored.sha256 != packed.sha256


def test_libraries_of_abis() -> None:
    library = NativeLibrary("arm64-v8a", "libonnxruntime.so", 1, 1, PAGE)
    aar = Aar("0" * 64, 1, (library,))
    assert aar.of(["arm64-v8a"]) == (library,)
    with pytest.raises(errors.UsageError, match="libraries for arm64-v8a, not x86"):
        aar.of(["arm64-v8a", "x86"])


def test_zip_without_libraries_is_no_aar(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="nothing in jni"):
        read_aar(write_zip(tmp_path / "a.aar", {"classes.jar": b""}))


def test_text_file_is_no_aar(tmp_path: Path) -> None:
    (tmp_path / "a.aar").write_text("hello")
    with pytest.raises(errors.UsageError, match=r"cannot read .*a\.aar"):
        read_aar(tmp_path / "a.aar")


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "a/./b", "a\\b", "a\nb", "jni/../x"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    path = write_zip(tmp_path / "a.aar", {**aar_files(), name: b"x"})
    with pytest.raises(errors.UsageError, match="holds the name"):
        read_aar(path)


def test_too_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prebuilt, "MAX_ENTRIES", 3)
    with pytest.raises(errors.UsageError, match="too large"):
        read_aar(write_zip(tmp_path / "a.aar", aar_files()))


def test_too_large_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prebuilt, "MAX_ENTRY_BYTES", 60_000)
    with pytest.raises(errors.UsageError, match="too large"):
        read_aar(write_zip(tmp_path / "a.aar", aar_files()))


def test_size_that_deflate_cannot_reach_is_a_lie(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.aar", {"jni/x86/lib.so": ALIGNED})
    raw = bytearray(path.read_bytes())
    directory = raw.rindex(b"PK\x01\x02")
    struct.pack_into("<I", raw, directory + 24, 500_000_000)
    path.write_bytes(raw)
    with pytest.raises(errors.UsageError, match="lies about its size"):
        read_aar(path)


def test_damaged_content(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "a.aar", {"jni/x86/lib.so": ALIGNED})
    raw = bytearray(path.read_bytes())
    raw[50:70] = b"\xff" * 20
    path.write_bytes(raw)
    with pytest.raises(errors.UsageError, match=r"cannot read jni/x86/lib\.so"):
        read_aar(path)


@settings(max_examples=60, deadline=None)
@given(place=st.integers(0, 2000), value=st.integers(0, 255))
def test_one_changed_byte_never_escapes(
    tmp_path_factory: pytest.TempPathFactory, place: int, value: int
) -> None:
    path = write_zip(tmp_path_factory.mktemp("a") / "a.aar", aar_files())
    raw = bytearray(path.read_bytes())
    raw[place % len(raw)] = value
    path.write_bytes(raw)
    with contextlib.suppress(errors.UsageError):
        assert read_aar(path).size == len(raw)


# ---------------------------------------------------------------------------- xcframework
def library(identifier: str, variant: str = "", binary: str = "") -> dict[str, object]:
    entry: dict[str, object] = {
        "LibraryIdentifier": identifier,
        "LibraryPath": "ort.framework",
        "SupportedArchitectures": ["arm64"],
        "SupportedPlatform": "ios",
    }
    entry.update({"SupportedPlatformVariant": variant} if variant else {})
    return {**entry, "BinaryPath": binary} if binary else entry


def framework_files(top: str = "") -> dict[str, bytes]:
    root = f"{top}ort.xcframework"
    listed = [library("ios-arm64-simulator", "simulator"), library("ios-arm64")]
    info = {"MinimumOSVersion": "15.1", "CFBundleShortVersionString": "1.29.0"}
    return {
        f"{root}/Info.plist": plistlib.dumps({"AvailableLibraries": listed, "Other": 1}),
        f"{root}/ios-arm64-simulator/ort.framework/ort": b"s" * 70,
        f"{root}/ios-arm64/ort.framework/ort": b"d" * 40,
        f"{root}/ios-arm64/ort.framework/Info.plist": plistlib.dumps(info),
        f"{root}/ios-arm64/ort.framework/Headers/c.h": b"h" * 5,
    }


def write_folder(folder: Path, files: dict[str, bytes]) -> Path:
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return folder


def test_slices_of_a_folder(tmp_path: Path) -> None:
    files = framework_files()
    found = read_xcframework(write_folder(tmp_path, files) / "ort.xcframework")
    device, simulator = found.slices
    info = len(files["ort.xcframework/ios-arm64/ort.framework/Info.plist"])
    assert found.name == "ort.xcframework"
    assert device == prebuilt.Slice(
        "ios-arm64", "ios", "", ("arm64",), "ort.framework/ort", 40, 45 + info, "15.1", "1.29.0"
    )
    assert (simulator.variant, simulator.size, simulator.version) == ("simulator", 70, "")


def test_folder_zip_and_tar_say_the_same(tmp_path: Path) -> None:
    files = framework_files("package/Plugins/iOS~/")
    folder = write_folder(tmp_path / "f", files)
    expected = read_xcframework(folder)
    assert read_xcframework(write_zip(tmp_path / "x.zip", files)) == expected
    assert read_xcframework(write_tgz(tmp_path / "x.tgz", files)) == expected
    assert read_xcframework(folder / "package/Plugins/iOS~/ort.xcframework") == expected


@pytest.mark.parametrize("count", [0, 2])
def test_exactly_one_framework(tmp_path: Path, count: int) -> None:
    files = {"readme": b""}
    for top in ("a/", "b/")[:count]:
        files |= framework_files(top)
    with pytest.raises(errors.UsageError, match=f"holds {count} xcframeworks"):
        read_xcframework(write_zip(tmp_path / "x.zip", files))


@pytest.mark.parametrize(
    ("plist", "message"),
    [
        (b"hello", "is no property list"),
        (b'<?xml version="1.0"?><!DOCTYPE p [<!ENTITY e "x">]><plist>&e;</plist>', "no property"),
        (plistlib.dumps([1]), "names and values"),
        (plistlib.dumps({}), "lists no libraries"),
        (plistlib.dumps({"AvailableLibraries": ["x"]}), "LibraryIdentifier is None"),
        (plistlib.dumps({"AvailableLibraries": [library("../up")]}), "LibraryIdentifier is"),
        (plistlib.dumps({"AvailableLibraries": [library("ios-x")]}), "lacks ios-x"),
    ],
)
def test_property_list_that_does_not_fit(tmp_path: Path, plist: bytes, message: str) -> None:
    files = {**framework_files(), "ort.xcframework/Info.plist": plist}
    with pytest.raises(errors.UsageError, match=message):
        read_xcframework(write_zip(tmp_path / "x.zip", files))


@pytest.mark.parametrize("name", ["../x", "/etc/x", "a/../../x"])
def test_tar_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    path = write_tgz(tmp_path / "x.tgz", {name: b"x", **framework_files()})
    with pytest.raises(errors.UsageError, match="holds the name"):
        read_xcframework(path)


def test_truncated_tar(tmp_path: Path) -> None:
    path = write_tgz(tmp_path / "x.tgz", framework_files())
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(errors.UsageError, match="cannot read"):
        read_xcframework(path)


# ------------------------------------------------------------------------------------ zip
def test_zip_is_the_same_whatever_it_was_made_from(tmp_path: Path) -> None:
    files = framework_files("package/")
    folder = write_folder(tmp_path / "f", dict(reversed(files.items())))
    sources = [folder, write_zip(tmp_path / "x.zip", files), write_tgz(tmp_path / "x.tgz", files)]
    hashes = set()
    for number, source in enumerate(sources):
        out = tmp_path / f"out{number}.zip"
        digest = prebuilt.xcframework_zip(source, out)
        assert digest == hashlib.sha256(out.read_bytes()).hexdigest()
        hashes.add(digest)
    assert len(hashes) == 1
    assert read_xcframework(tmp_path / "out0.zip") == read_xcframework(folder)


def test_zip_has_the_framework_at_its_top_without_times(tmp_path: Path) -> None:
    prebuilt.xcframework_zip(
        write_tgz(tmp_path / "x.tgz", framework_files("p/")), tmp_path / "o.zip"
    )
    with zipfile.ZipFile(tmp_path / "o.zip") as archive:
        entries = archive.infolist()
    assert [entry.filename for entry in entries] == sorted(framework_files())
    assert {entry.date_time for entry in entries} == {(1980, 1, 1, 0, 0, 0)}
    assert list(tmp_path.glob(".xcframework-*")) == []


def test_zip_of_some_slices_lists_only_these(tmp_path: Path) -> None:
    source = write_folder(tmp_path, framework_files())
    prebuilt.xcframework_zip(source, tmp_path / "o.zip", slices=["ios-arm64"])
    kept = read_xcframework(tmp_path / "o.zip")
    assert [one.identifier for one in kept.slices] == ["ios-arm64"]
    with zipfile.ZipFile(tmp_path / "o.zip") as archive:
        names = archive.namelist()
        plist = plistlib.loads(archive.read("ort.xcframework/Info.plist"))
    assert not [name for name in names if "simulator" in name]
    assert plist["Other"] == 1


def test_zip_of_a_slice_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="no slice tvos") as caught:
        prebuilt.xcframework_zip(
            write_folder(tmp_path, framework_files()), tmp_path / "o.zip", slices=["tvos"]
        )
    assert "ios-arm64, ios-arm64-simulator" in caught.value.remedy


def test_zip_refuses_slices_made_of_links(tmp_path: Path) -> None:
    binary = "ort.framework/Versions/A/ort"
    listed = [library("ios-arm64"), library("macos", binary=binary)]
    files = {
        **framework_files(),
        "ort.xcframework/Info.plist": plistlib.dumps({"AvailableLibraries": listed}),
        f"ort.xcframework/macos/{binary}": b"m",
    }
    source = write_zip(tmp_path / "x.zip", files)
    with pytest.raises(errors.UsageError, match="no slice macos"):
        prebuilt.xcframework_zip(source, tmp_path / "o.zip")
    prebuilt.xcframework_zip(source, tmp_path / "o.zip", slices=["ios-arm64"])
    assert len(read_xcframework(tmp_path / "o.zip").slices) == 1


# -------------------------------------------------------------------------- the real thing
AAR_MEMBER = "package/Plugins/Android/onnxruntime.aar"
AAR_SHA256 = "98cddbac92640b4a6af72a03c42e0491851f366d3da66bbaeb5dd66310946cf2"


@pytest.fixture(scope="module")
def npm_package(download_store: Store) -> Path:
    """The npm package that carries official 1.29.0 builds (150 MB), as the ios target pins it."""
    target = Registry(Path("/nonexistent")).target("ios", ProjectFile(), "tests")
    return fetch(download_store, target.runtime.embeddable[0]).path


@pytest.mark.models
def test_official_aar(npm_package: Path, tmp_path: Path) -> None:
    with tarfile.open(npm_package) as archive:
        member = archive.extractfile(AAR_MEMBER)
        assert member is not None
        (tmp_path / "ort.aar").write_bytes(member.read())
    aar = read_aar(tmp_path / "ort.aar")
    assert (aar.sha256, aar.size) == (AAR_SHA256, 51_897_725)
    arm64 = aar.of(["arm64-v8a"])[0]
    assert (arm64.size, arm64.compressed) == (32_120_992, 12_122_455)
    assert all(lib.loads_on_16k_pages for lib in aar.libraries)
    assert len({lib.abi for lib in aar.libraries}) == 4


@pytest.mark.models
def test_official_xcframework(npm_package: Path, tmp_path: Path) -> None:
    found = {one.identifier: one for one in read_xcframework(npm_package).slices}
    device = found["ios-arm64"]
    assert (device.size, device.minimum_os, device.version) == (48_347_664, "15.1", "1.29.0")
    kept = ["ios-arm64", "ios-arm64_x86_64-simulator"]
    prebuilt.xcframework_zip(npm_package, tmp_path / "o.zip", slices=kept)
    assert [s.identifier for s in read_xcframework(tmp_path / "o.zip").slices] == kept
