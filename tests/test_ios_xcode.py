"""Measuring on a Mac and on a phone behind it, against stand-ins for Apple's programs.

What they say follows recorded output (see ``tests/fakes/apple.py``); no Mac was at hand.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import bench, bench_apple, errors, field_apple, protocol, samples
from edge.convert.render import render
from edge.devices.base import DeviceSettings
from edge.devices.local import Local
from edge.tools import xcode, xcode_phone
from tests.test_templates_mobile import BASE, TEMPLATES

FAKE = Path(__file__).parent / "fakes" / "apple.py"
PROGRAMS = ("swift", "xcodebuild", "xcrun")
SIZE = {"raw": 1000, "compressed": 400}
WAYS = ("CPUExecutionProvider", "XnnpackExecutionProvider", "CoreMLExecutionProvider",
        "CoreMLExecutionProvider:CPUOnly", "coreml:CPU_AND_NE")  # fmt: skip
EXACT = {"max_abs": 1e-6, "max_rel": None, "floor": 1e-3, "sqnr_db": None, "argmax": None}
MANIFEST: dict[str, Any] = {
    "tolerance": EXACT,
    "sizes": {"artifact": SIZE, "runtime": None, "total": None},
    "runtime": {
        "coreml": {
            "ways": list(WAYS),
            "provider": {"size": {"raw": 1100, "compressed": 450}},
            "native": {
                "size": {"raw": 500, "compressed": 300},
                "tolerance": {**EXACT, "max_abs": None, "sqnr_db": 40.0},
            },
        }
    },
}
QUICK = bench.BenchOptions(quick=True, warmup_seconds=0.0, timeout=60.0)
TEAM = "AB12CD34EF"


def phone(name: str, **changes: Any) -> dict[str, Any]:
    """A device as ``devicectl list devices --json-output`` writes it (Xcode 16)."""
    return {
        "identifier": f"5B4C4E0B-0000-4000-8000-{name:>012}",
        "connectionProperties": {
            "pairingState": changes.get("pairing", "paired"),
            "transportType": "wired",
            "tunnelState": changes.get("tunnel", "connected"),
        },
        "deviceProperties": {
            "developerModeStatus": changes.get("developer", "enabled"),
            "name": name,
            "osVersionNumber": "18.1",
        },
        "hardwareProperties": {
            "marketingName": "iPhone 15 Pro",
            "platform": changes.get("platform", "iOS"),
            "udid": f"00008130-{name:>016}",
        },
    }


class Mac:
    """This machine with Apple's programs on its PATH."""

    def __init__(self, root: Path) -> None:
        self.root, self.fake = root, root / "fake"
        self.device = Local(DeviceSettings("mac-mini", folder=str(root / "home")))
        self.release = root / "release"
        (self.release / "samples").mkdir(parents=True)
        rng = np.random.default_rng(3)
        pairs = [
            ({"x": rng.standard_normal((1, 4)).astype(np.float32)},
             {"y": rng.standard_normal((1, 8)).astype(np.float32)})
            for _ in range(2)
        ]  # fmt: skip
        samples.write(self.release / "samples", pairs)
        render(TEMPLATES / "ios", self.release / "app", BASE)
        self.fake.mkdir()
        self.devices(phone("Jo"))

    def devices(self, *entries: dict[str, Any]) -> None:
        told = {"info": {"outcome": "success"}, "result": {"devices": list(entries)}}
        (self.fake / "devices.json").write_text(json.dumps(told))

    def set(self, name: str, text: str) -> None:
        (self.fake / name).write_text(text)

    def fails(self, program: str, text: str) -> None:
        (self.fake / f"say-{program}").write_text(text)

    def calls(self) -> list[list[str]]:
        return [json.loads(line) for line in (self.fake / "calls").read_text().splitlines()]

    def on_mac(self) -> bench_apple.Spot:
        return bench_apple.on_mac(self.device, str(self.release), "ab" * 32)

    def on_phone(self, wanted: str = "", team: str = TEAM) -> tuple[bench_apple.Spot, xcode.Phone]:
        found = bench_apple.find_phone(self.device, wanted)
        return bench_apple.on_phone(self.device, str(self.release), "ab" * 32, found, team), found

    def measure(
        self, spot: bench_apple.Spot, options: bench.BenchOptions = QUICK, *wanted: str
    ) -> dict[str, bench_apple.Taken]:
        chosen = bench_apple.ways(MANIFEST, wanted)
        golden = self.release / "samples"
        found = bench_apple.measure(spot, chosen, golden, dict, options)
        return {taken.way.provider: taken for taken in found}


@pytest.fixture
def mac(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mac:
    programs = tmp_path / "programs"
    programs.mkdir()
    script = programs / "apple.py"
    script.write_text(f"#!{sys.executable}\n{FAKE.read_text()}")
    script.chmod(0o755)
    for name in PROGRAMS:
        (programs / name).symlink_to(script)
    made = Mac(tmp_path)
    monkeypatch.setenv("APPLE_FAKE", str(made.fake))
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return made


# -------------------------------------------------------------------------------- the ways
def test_each_way_has_its_own_size_and_tolerance() -> None:
    found = {way.provider: way for way in bench_apple.ways(MANIFEST)}
    assert tuple(found) == WAYS
    cpu, provider, native = (found[name] for name in (WAYS[0], WAYS[2], WAYS[4]))
    assert (cpu.sizes.artifact.raw, cpu.sizes.runtime) == (1000, None)
    assert provider.sizes.artifact.raw == 1100
    assert (native.sizes.artifact.raw, native.sizes.runtime) == (500, bench_apple.IN_SYSTEM)
    assert (cpu.tolerance.max_abs, native.tolerance.sqnr_db) == (1e-6, 40.0)


def test_an_embedded_runtime_counts_for_what_runs_by_it() -> None:
    sizes = {**MANIFEST["sizes"], "runtime": {"raw": 7000, "compressed": 3000}}
    found = {way.provider: way for way in bench_apple.ways({**MANIFEST, "sizes": sizes})}
    total = found[WAYS[2]].sizes.total
    assert total is not None
    assert total.raw == 8100
    total = found[WAYS[4]].sizes.total
    assert total is not None
    assert total.raw == 500


def test_a_way_that_the_bundle_does_not_have_is_refused() -> None:
    with pytest.raises(errors.UsageError, match="cannot be run by coreml:GPU"):
        bench_apple.ways(MANIFEST, ["coreml:GPU"])
    with pytest.raises(errors.UsageError, match="does not say how"):
        bench_apple.ways({**MANIFEST, "runtime": {}})


# ---------------------------------------------------------------------------- what is said
@pytest.mark.parametrize(
    ("said", "line"),
    [
        ("a\nb: error: c\nd", "b: error: c"),
        ("a\n\nb\n", "b"),
        ("", "it said nothing"),
        ("x\x1b[31m", "x\ufffd[31m"),
        ("ERROR: The device is busy\nmore", "ERROR: The device is busy"),
        ("x.app: errSecInternalComponent\n** BUILD FAILED **", "x.app: errSecInternalComponent"),
    ],
)
def test_the_reason_is_the_line_that_says_an_error(said: str, line: str) -> None:
    assert xcode.reason(said) == line


def test_a_phone_takes_a_profile_by_its_name() -> None:
    words = ["--bundle", "b", "--profile", "x.check-1/profile", "--threads", "1"]
    told = xcode_phone.arguments(words)
    assert told == ["--bundle", "b", "--profile", "profile", "--threads", "1"]


# ---------------------------------------------------------------------------- which phone
def described(*entries: dict[str, Any]) -> tuple[xcode.Phone, ...]:
    return tuple(found for entry in entries if (found := xcode._phone(entry)) is not None)


@pytest.mark.parametrize("name", ["Jo\u2019s iPhone", "Jo's\u00a0iPhone"])
def test_a_phones_name_as_a_keyboard_writes_it(name: str) -> None:
    found = described(phone("Old"), {**phone(name), "identifier": "1A"})
    assert xcode.choose(found, "Jo's iPhone", "mac-mini").name.startswith("Jo")


def test_two_phones_of_one_name() -> None:
    twins = [{**phone("Jo"), "identifier": name} for name in ("1A", "2B")]
    with pytest.raises(errors.Unavailable, match="has 2 phones called Jo") as caught:
        xcode.choose(described(*twins), "Jo", "mac-mini")
    assert "00008130-" in str(caught.value.remedy)


def test_a_tablet_is_a_phone_here() -> None:
    assert len(described(phone("Pad", platform="iPadOS"))) == 1


@pytest.mark.parametrize("wanted", ["", "Jo", "00008130-00000000000000Jo"])
def test_the_phone_that_is_meant(wanted: str) -> None:
    watch, away = phone("Watch", platform="watchOS"), phone("Old", tunnel="unavailable")
    found = xcode.choose(described(watch, away, phone("Jo")), wanted, "mac-mini")
    assert (found.name, found.release, found.model) == ("Jo", "18.1", "iPhone 15 Pro")


@pytest.mark.parametrize(
    ("entries", "wanted", "said"),
    [
        ([], "", "mac-mini has not exactly one phone that can be used; it knows: none"),
        ([phone("A"), phone("B")], "", "it knows: A \\(can be used\\), B \\(can be used\\)"),
        ([phone("A")], "C", "mac-mini has no phone C"),
        ([phone("A", pairing="unpaired")], "A", "the phone A is not paired"),
        ([phone("A", tunnel="unavailable")], "A", "the phone A cannot be reached"),
        ([phone("A", developer="disabled")], "A", "has Developer Mode turned off"),
    ],
)
def test_a_phone_that_cannot_be_used(entries: list[dict[str, Any]], wanted: str, said: str) -> None:
    with pytest.raises(errors.Unavailable, match=said):
        xcode.choose(described(*entries), wanted, "mac-mini")


@pytest.mark.parametrize(
    "entry",
    [
        {},
        {"identifier": 3},
        {"identifier": "x"},
        phone("W", platform="tvOS"),
        {**phone("Jo"), "identifier": "--json-output"},
        {**phone("Jo"), "identifier": "x" * 65},
    ],
)
def test_what_is_no_phone_is_left_out(entry: dict[str, Any]) -> None:
    assert described(entry) == ()


# ------------------------------------------------------------------------------- measuring
@pytest.mark.process
def test_every_way_on_the_mac_itself(mac: Mac) -> None:
    taken = mac.measure(mac.on_mac())
    assert tuple(taken) == WAYS
    trouble = taken["XnnpackExecutionProvider"].trouble
    assert trouble is not None
    assert "built without XnnpackExecutionProvider" in trouble.message
    assert taken["XnnpackExecutionProvider"].absent
    cpu, native = taken[WAYS[0]].measurement, taken["coreml:CPU_AND_NE"].measurement
    assert cpu is not None
    assert native is not None
    worst = native.checked.outputs[0].sqnr_db
    assert worst is not None
    assert 59 < worst < 61
    assert native.summary.median_ns < cpu.summary.median_ns
    provider = taken["CoreMLExecutionProvider"].measurement
    assert provider is not None
    assert provider.checked.providers["CoreMLExecutionProvider"].nodes == 1
    # The program that was built is what the runtime takes; Core ML is the system's.
    program = len((mac.root / "programs" / "apple.py").read_bytes())
    sizes = taken[WAYS[0]].way.sizes
    assert (sizes.runtime and sizes.runtime.raw, sizes.total and sizes.total.raw) == (
        program, program + 1000,
    )  # fmt: skip
    assert taken["coreml:CPU_AND_NE"].way.sizes.runtime == bench_apple.IN_SYSTEM


@pytest.mark.process
def test_nothing_is_built_in_the_release(mac: Mac) -> None:
    before = sorted(path for path in mac.release.rglob("*"))
    spot = mac.on_mac()
    assert sorted(path for path in mac.release.rglob("*")) == before
    assert Path(spot.folder).is_dir()
    assert Path(spot.folder) != mac.release
    assert Path(spot.runner[0]).is_relative_to(mac.root / "home")


@pytest.mark.process
def test_every_way_on_a_phone(mac: Mac) -> None:
    spot, found = mac.on_phone()
    assert spot.program is not None
    assert spot.program.raw == 7000 > spot.program.compressed > 0
    assert found.facts()["os_release"] == "iOS 18.1"
    taken = mac.measure(spot)
    native = taken["coreml:CPU_AND_NE"].measurement
    assert native is not None
    assert native.checked.fetched == 2
    provider = taken["CoreMLExecutionProvider"].measurement
    assert provider is not None
    assert provider.checked.providers["CoreMLExecutionProvider"].nodes == 1
    launches = [call for call in mac.calls() if "launch" in call]
    assert all("--terminate-existing" in call for call in launches)
    records = {call[call.index("--record") + 1] for call in launches}
    assert len(records) == len(launches)  # an earlier run's record is never taken for this one's


@pytest.mark.process
def test_what_was_compiled_before_is_loaded(mac: Mac) -> None:
    options = bench.BenchOptions(
        iterations=30, min_seconds=0.0, repeats=2, warmup_seconds=0.0, cache=str(mac.root / "kept")
    )
    (taken,) = mac.measure(mac.on_mac(), options, "coreml:CPU_AND_NE").values()
    assert taken.measurement is not None
    assert taken.measurement.checked.run.cached is False
    assert [run.cached for run in taken.measurement.runs] == [True, True]
    assert taken.cold() == {"cold_load_ns": 90_000_000}
    assert taken.measurement.options.cache == options.cache


@pytest.mark.process
def test_each_measurement_of_each_way_begins_with_nothing_kept(mac: Mac) -> None:
    """Else the way that is measured first compiles for the others, and a second time none does."""
    options = bench.BenchOptions(
        quick=True, warmup_seconds=0.0, cache=str(mac.root / "kept"), timeout=60.0
    )
    spot = mac.on_mac()
    for natives in (("coreml:CPU_AND_NE", "CoreMLExecutionProvider:CPUOnly"), WAYS[4:]):
        for taken in mac.measure(spot, options, *natives).values():
            assert taken.cold() == {"cold_load_ns": 90_000_000}
    assert list((mac.root / "kept").iterdir()) == []  # a Mac's disk is not filled


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ({"thermal_state": 2, "low_power": True}, {"thermal_state": 2, "low_power": 1}),
        ({"thermal_state": 0, "low_power": False}, {"thermal_state": 0, "low_power": 0}),
        ({"thermal_state": 99, "low_power": "yes"}, {}),
        ({"thermal_state": True, "low_power": 1}, {}),
    ],
)
def test_what_a_runner_says_of_the_devices_state(
    said: Mapping[str, Any], kept: Mapping[str, int]
) -> None:
    last = xcode_phone.last_event('{"event": "memory"}\n' + json.dumps(said) + "\n")
    assert protocol.state(last) == kept


@pytest.mark.process
def test_the_phones_state_is_recorded(mac: Mac) -> None:
    mac.set("state.json", '{"thermal_state": 2, "low_power": true}')
    (taken,) = mac.measure(mac.on_phone()[0], QUICK, WAYS[0]).values()
    assert taken.measurement is not None
    kept = {"thermal_state": 2, "low_power": 1}
    assert (taken.measurement.before, taken.measurement.after) == (kept, kept)


@pytest.mark.parametrize(
    "said", ["", "x", "[]", "[" * 5000, '{"event": "end"', '{"a": "' + "b" * 70_000 + '"}']
)
def test_a_last_line_that_is_no_event(said: str) -> None:
    assert protocol.state(xcode_phone.last_event(said)) == {}


@pytest.mark.process
def test_outputs_outside_the_tolerance_are_told(mac: Mac) -> None:
    manifest = json.loads(json.dumps(MANIFEST))
    manifest["runtime"]["coreml"]["native"]["tolerance"]["sqnr_db"] = 80.0
    chosen = bench_apple.ways(manifest, ["coreml:CPU_AND_NE", WAYS[0]])
    golden = mac.release / "samples"
    first, second = bench_apple.measure(mac.on_mac(), chosen, golden, dict, QUICK)
    assert isinstance(first.trouble, errors.ParityFailed)
    assert second.measurement is not None


# ------------------------------------------------------------------------- on one Mac at once
@pytest.mark.process
def test_what_was_built_of_other_releases_goes(mac: Mac) -> None:
    builds = mac.root / "home" / "xcode"
    with field_apple.alone(mac.device):
        bench_apple.on_mac(mac.device, str(mac.release), "cd" * 32)
        (builds / ("cd" * 8) / "0123456789abcdef").mkdir()  # of a run that was cut off
        mac.on_phone()
        kept = {path.name for path in builds.iterdir()}
        assert kept == {"lock", "ab" * 8}
    assert {path.name for path in (builds / ("ab" * 8)).iterdir()} == {"bundle", "app"}


@pytest.mark.process
def test_two_do_not_measure_at_once(mac: Mac, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge.deploy.lock.WAIT", 0.0)
    with field_apple.alone(mac.device):
        (until,) = (mac.root / "home/xcode/lock").glob("*/until")
        assert int(until.read_text()) - until.stat().st_mtime > 7000  # longer than it is measured
        with (
            pytest.raises(errors.Unavailable, match="mac-mini is building or measuring already"),
            field_apple.alone(mac.device),
        ):
            pass
    with field_apple.alone(mac.device):
        pass


class Cut:
    """A device whose connection breaks with the second provider."""

    def __init__(self, device: bench.Device, at: str) -> None:
        self._device, self._at = device, at

    def run(self, argv: Any, **more: Any) -> Any:
        if self._at in argv:
            raise errors.DeviceUnreachable("the connection to mac-mini broke: it was ended")
        return self._device.run(argv, **more)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


@pytest.mark.process
def test_what_was_measured_before_the_connection_broke_is_kept(mac: Mac) -> None:
    spot = mac.on_mac()
    cut = bench_apple.Spot(Cut(spot.device, WAYS[3]), spot.runner, spot.folder)
    taken = mac.measure(cut)
    assert tuple(taken) == WAYS[:4]  # nothing after it was tried
    assert taken[WAYS[0]].measurement is not None
    assert isinstance(taken[WAYS[3]].trouble, errors.DeviceUnreachable)


# --------------------------------------------------------------------------- what goes wrong
@pytest.mark.process
def test_an_app_that_dies_is_told_and_the_others_are_measured(mac: Mac) -> None:
    mac.set("crash", WAYS[4])
    taken = mac.measure(mac.on_phone()[0], QUICK, WAYS[4], WAYS[0])
    trouble = taken[WAYS[4]].trouble
    assert trouble is not None
    assert "stopped without its 'first' event" in trouble.message
    assert "App terminated due to signal 11." in trouble.message
    assert not taken[WAYS[4]].absent
    assert taken[WAYS[0]].measurement is not None


@pytest.mark.process
def test_a_record_with_its_end_counts_whatever_devicectl_ends_with(mac: Mac) -> None:
    mac.set("launched", "1")
    (taken,) = mac.measure(mac.on_phone()[0], QUICK, WAYS[0]).values()
    assert taken.measurement is not None


@pytest.mark.process
@pytest.mark.parametrize("name", ["..", "/", "Documents/-x"])
def test_a_file_that_the_app_names_is_one_of_its_own(mac: Mac, name: str) -> None:
    mac.set("profile", name)
    (taken,) = mac.measure(mac.on_phone()[0], QUICK, WAYS[2]).values()
    assert taken.trouble is not None
    assert "Jo names a file" in taken.trouble.message


@pytest.mark.process
def test_nothing_of_the_phone_stays_on_the_mac(mac: Mac) -> None:
    spot, _ = mac.on_phone()
    mac.measure(spot, QUICK, WAYS[4])
    scratch = mac.root / "home" / "xcode" / ("ab" * 8)
    assert {path.name for path in scratch.iterdir()} == {"bundle", "app"}


UNSIGNED = 'error: Signing for "EdgeBenchApp" requires a development team.'
NO_KEY = "EdgeBenchApp.app: errSecInternalComponent\n** BUILD FAILED **"
TOOLS_ONLY = "xcode-select: error: tool 'xcodebuild' requires Xcode, but active developer directory"
NO_LICENSE = "You have not agreed to the Xcode license agreements. Please run 'sudo xcodebuild'."
NO_PLATFORM = "iOS 18.1 is not installed. To use with Xcode, download and install the platform"
UNREGISTERED = "ERROR: This provisioning profile cannot be installed on this device. (0xe8008012)"
LOCKED = "ERROR: Unable to launch x because the device was not, or could not be, unlocked."


@pytest.mark.process
@pytest.mark.parametrize(
    ("program", "said", "remedy"),
    [
        ("xcodebuild", UNSIGNED, "team"),
        ("xcodebuild", NO_KEY, "unlock-keychain"),
        ("xcodebuild", TOOLS_ONLY, "xcode-select -s"),
        ("xcodebuild", NO_LICENSE, "xcodebuild -license accept"),
        ("xcodebuild", NO_PLATFORM, "-downloadPlatform iOS"),
        ("xcrun", LOCKED, "unlock the phone"),
        ("xcrun", UNREGISTERED, "register the phone with the team"),
    ],
)
def test_what_helps_is_said(mac: Mac, program: str, said: str, remedy: str) -> None:
    mac.fails(program, said)
    with pytest.raises(errors.RunFailed, match="mac-mini cannot") as caught:
        mac.on_phone()
    assert remedy in str(caught.value.remedy)


@pytest.mark.process
def test_an_app_that_does_not_start_is_no_measurement(mac: Mac) -> None:
    spot, _ = mac.on_phone()
    mac.measure(spot, QUICK, WAYS[0])
    said = "ERROR: The application failed to launch: not been explicitly trusted by the user"
    mac.fails("xcrun", said)
    (taken,) = mac.measure(spot, QUICK, WAYS[0]).values()
    assert taken.measurement is None
    assert taken.trouble is not None
    assert "trust the developer" in str(taken.trouble.remedy)


@pytest.mark.process
def test_a_mac_without_xcode(mac: Mac, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    with pytest.raises(errors.ToolMissing, match="mac-mini has no swift"):
        mac.on_mac()


@pytest.mark.process
@pytest.mark.parametrize("text", ["", "[]", "{}", "[" * 5000, '{"result": []}'])
def test_what_is_no_json_of_devicectl(mac: Mac, text: str) -> None:
    (mac.fake / "devices.json").write_text(text)
    with pytest.raises(errors.RunFailed, match="devicectl on mac-mini"):
        mac.on_phone()


@pytest.mark.process
@pytest.mark.parametrize("team", ["", "short", "AB12CD34EF; rm -rf /", "ab12cd34ef"])
def test_a_team_is_ten_letters_and_digits(mac: Mac, team: str) -> None:
    with pytest.raises(errors.ConfigError, match="no development team"):
        mac.on_phone(team=team)
