"""Build a bundle's runner on a Mac: the program for the Mac itself, or the app for a phone.

Both are built in a copy of the release, since Xcode writes into the projects that it opens.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from edge import errors
from edge.devices.base import SHORT, Device, DeviceSettings, device_path
from edge.tools import xcode
from edge.tools.xcode import BUILD, Phone

TOOL = "edge-bench"
APP = "EdgeBenchApp"
FOLDER = "xcode"  # below the Mac's folder
INSTALL = 900.0  # seconds: the app holds the model, and a phone may be on Wi-Fi
# Parameters: the folder of all builds, the name of one. Other releases' builds go (there would be
# one for each), and of this one all but what compilers made.
_TIDY = r"""set -e
cd "$1"
for d in *; do case $d in lock | "$2") ;; *) rm -rf "./$d" ;; esac; done
cd "./$2"
for d in *; do case $d in tool | app) ;; *) rm -rf "./$d" ;; esac; done
"""
_TEAM = re.compile(r"[0-9A-Z]{10}")
_BUNDLE_ID = re.compile(r"[0-9A-Za-z.-]{3,155}")


# Parameter: a file. Its bytes, and those of it under gzip -9.
_SIZES = 'wc -c <"$1" && gzip -9 -c "$1" | wc -c'


@dataclass(frozen=True)
class Place:
    """Where a release is built on a Mac: its copy, and a scratch folder of its own."""

    bundle: str
    scratch: str


def folder(mac: DeviceSettings) -> str:
    """Where a Mac's builds lie."""
    return f"{device_path(mac.folder)}/{FOLDER}"


def prepare(mac: Device, release: str, digest: str) -> Place:
    """A fresh copy of the release beside what was built of it before.

    Only one at a time may do this with a Mac: see ``edge.field_apple.alone``.
    """
    builds, own = folder(mac.settings), digest[:16]
    scratch = f"{builds}/{own}"
    place = Place(f"{scratch}/bundle", scratch)
    mac.make_folder(scratch)
    mac.run(["sh", "-c", _TIDY, "sh", builds, own], timeout=5 * SHORT)
    mac.run(["cp", "-R", release, place.bundle], timeout=5 * SHORT)
    return place


def tool(mac: Device, place: Place) -> str:
    """Path of the runner's program for the Mac."""
    words = ["swift", "build", "--package-path", f"{place.bundle}/app/EdgeBenchTool"]
    words += ["--scratch-path", f"{place.scratch}/tool", "-c", "release"]
    xcode.run(mac, words, timeout=BUILD, doing="build the runner")
    shown = xcode.run(mac, [*words, "--show-bin-path"], timeout=xcode.ASK, doing="find the runner")
    lines = shown.stdout.strip().splitlines()
    if not lines:
        raise errors.RunFailed(f"swift on {mac.settings.name} does not say where it builds")
    return f"{lines[-1].strip()}/{TOOL}"


def app(mac: Device, place: Place, phone: Phone, team: str) -> str:
    """Build the app, install it on the phone, and return its bundle identifier."""
    if not _TEAM.fullmatch(team):
        raise errors.ConfigError(
            f"{team!r} is no development team's identifier",
            remedy="ten letters and digits: developer.apple.com, Membership details",
        )
    built, product = f"{place.scratch}/app", _product(place)
    words = ["xcodebuild", "build", "-project", f"{place.bundle}/app/{APP}/{APP}.xcodeproj"]
    words += ["-scheme", APP, "-configuration", "Release", "-derivedDataPath", built]
    words += ["-destination", "generic/platform=iOS", "-allowProvisioningUpdates"]
    xcode.run(mac, [*words, f"DEVELOPMENT_TEAM={team}"], timeout=BUILD, doing="build the app")
    install = ("device", "install", "app", "--device", phone.identifier, product)
    doing = f"install the app on {phone.name}"
    told = xcode.asked(mac, install, place.scratch, doing=doing, timeout=INSTALL)
    apps = told.get("installedApplications")
    first = apps[0] if isinstance(apps, list) and apps else {}
    found = first.get("bundleID") if isinstance(first, dict) else None
    if not isinstance(found, str) or not _BUNDLE_ID.fullmatch(found):
        raise errors.RunFailed(f"devicectl on {mac.settings.name} does not say what it installed")
    return found


def app_program(place: Place) -> str:
    """The built app's program, which the runtime is linked into."""
    return f"{_product(place)}/{APP}"


def _product(place: Place) -> str:
    return f"{place.scratch}/app/Build/Products/Release-iphoneos/{APP}.app"


def size(mac: Device, program: str) -> tuple[int, int] | None:
    """Bytes of a file there, as it is and compressed; None where the Mac does not say."""
    done = mac.run(["sh", "-c", _SIZES, "sh", program], timeout=5 * SHORT, check=False)
    said = done.stdout.split()
    if (
        done.returncode != 0
        or len(said) != 2
        or not all(re.fullmatch("[0-9]{1,15}", n) for n in said)
    ):
        return None
    return int(said[0]), int(said[1])
