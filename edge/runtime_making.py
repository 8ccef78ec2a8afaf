"""Whether and how a target's runtime is built: what the command line wishes, what the host has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edge import config, errors
from edge.devices import DeviceSettings, open_device
from edge.job import PENDING, Making
from edge.probe import python_of
from edge.registry import Lack
from edge.store import File, Store
from edge.tools import ort_source, ort_toolchain, remote_build, tensorrt_host
from edge.tools.reduced_plan import Request

Kind = Literal["", "prebuilt", "reduced", "reuse-superset"]
# ONNX Runtime's own builds, which need no other engine's libraries.
REDUCIBLE = ("onnxruntime", "onnxruntime-android", "onnxruntime-swift", "onnxruntime-web")
PLANS = "tensorrt"  # the runtime whose engines are made on a machine with the GPU
KINDS: tuple[Kind, ...] = ("prebuilt", "reduced", "reuse-superset")


@dataclass(frozen=True)
class RuntimeWish:
    """What the user says of runtimes.

    ``kind``: empty is what the target is made for. ``planned``: nothing is built, the bundle
    says how. ``source``: where the sources are. ``on``: the device to build on, None here.
    ``plans_on``: where native TensorRT plans are made, which this machine may be, too; None:
    nowhere.
    """

    kind: Kind = ""
    planned: bool = False
    source: Path | None = None
    on: DeviceSettings | None = None
    plans_on: DeviceSettings | None = None

    def of(self, target: config.Target) -> Kind:
        """What it means for one target; :class:`errors.UsageError` for what cannot be had."""
        if self.kind == "prebuilt" and not target.runtime.prebuilt:
            raise errors.UsageError(
                f"target {target.name} has no prebuilt runtime, it is always built",
                remedy="leave --runtime out, or take the target without -reduced",
            )
        if self.kind not in ("", "prebuilt") and target.runtime.name not in REDUCIBLE:
            raise errors.UsageError(
                f"target {target.name}: {target.runtime.name} cannot be built for its models",
                remedy="leave --runtime out",
            )
        return self.kind or ("prebuilt" if target.runtime.prebuilt else "reduced")


def in_all(target: config.Target) -> bool:
    """Whether ``--target all`` takes it: no runtime is built, and no GPU host is needed."""
    return target.runtime.prebuilt and target.runtime.name != PLANS


def wish(
    kind: str, *, planned: bool, source: Path | None, on: DeviceSettings | None = None
) -> RuntimeWish:
    """The options of the command line, checked; a device that is this machine is none."""
    if kind and kind not in KINDS:
        raise errors.UsageError(
            f"--runtime {kind!r} is not known", remedy=errors.did_you_mean(kind, KINDS)
        )
    if source is not None and not source.exists():
        raise errors.UsageError(f"--ort-source: {source} is not there")
    if on and planned:
        raise errors.UsageError(
            f"--plan builds nothing, so nothing can be built --on {on.name}",
            remedy="leave one of them out",
        )
    if on and on.os == "windows":
        raise errors.UsageError(
            f"nothing can be built on {on.name}: its builds need a POSIX shell",
            remedy="build --on a Linux or macOS machine",
        )
    return RuntimeWish(kind, planned, source, on if on and on.kind != "local" else None, on)


def making(
    target: config.Target,
    wish: RuntimeWish,
    store: Store,
    fetch: Callable[[config.Pin], File],
    *,
    dry: bool,
) -> Making | None:
    """How the target's runtime is built; None when it is taken as it comes.

    A dry run does not connect: what a device has is unknown then, and the build is still to do.
    """
    if target.runtime.name == PLANS:
        return _making_plans(target, wish, store, dry=dry)
    kind = wish.of(target)
    if kind == "prebuilt":
        return None
    unknown = File(Path(PENDING), PENDING, 0)
    if wish.planned:
        return Making(planned=True, source=unknown)
    reduced, version = target.runtime.reduced, target.runtime.version
    pins = ort_source.dependencies(version) if reduced.dependencies == "pinned" else {}
    if dry and wish.source is None:
        source = fetch(reduced.source) if reduced.source else unknown
    else:
        source = ort_source.find(store, version, reduced.source, wish.source)
    return Making(
        planned=False,
        reuse=kind == "reuse-superset",
        source=source,
        dependencies={name: fetch(pin) for name, pin in pins.items()},
        toolchain=_toolchain(target, wish, dry=dry),
        where={
            "log": str(store.root / "ort" / f"build-{target.name}.log"),
            **({"device": remote_build.to_json(wish.on)} if wish.on else {}),
        },
    )


def _making_plans(
    target: config.Target, wish: RuntimeWish, store: Store, *, dry: bool
) -> Making | None:
    """Where native plans are made, and what that machine is; None: the bundle says how."""
    if wish.plans_on is None:
        return None
    unknown = dict.fromkeys(tensorrt_host.Host().versions(), PENDING)
    host = tensorrt_host.Host(**unknown) if dry else _plan_host(target, wish.plans_on)
    return Making(
        planned=False,
        source=File(Path(PENDING), PENDING, 0),
        toolchain=host.versions(),
        where={
            "program": host.program,
            "log": str(store.root / "ort" / f"plan-{target.name}.log"),
            "device": remote_build.to_json(wish.plans_on),
        },
    )


def _plan_host(target: config.Target, on: DeviceSettings) -> tensorrt_host.Host:
    with open_device(on) as device:
        ask = remote_build.ask_of(device)
        return tensorrt_host.survey(ask, target.tensorrt.builder, python_of(on))


def _plan_lacks(target: config.Target, on: DeviceSettings | None) -> list[Lack]:
    if on is None:
        how = "edge build --on a device of devices.toml that has both; --plan only writes how"
        return [Lack(target.name, "a GPU host with TensorRT", how)]
    wanted = target.tensorrt
    missing = tensorrt_host.missing(
        _plan_host(target, on),
        wanted.builder,
        target.runtime.version,
        wanted.compute_capabilities,
    )
    return [Lack(target.name, f"{what} on {on.name}", how) for what, how in missing.items()]


def _request(target: config.Target) -> Request:
    reduced = target.runtime.reduced
    return Request(target.runtime.version, target.platform, pinned=reduced.dependencies == "pinned")


@contextmanager
def _host(wish: RuntimeWish) -> Iterator[ort_toolchain.Ask]:
    """Asks the machine that builds."""
    if wish.on is None:
        yield ort_toolchain.local
        return
    with open_device(wish.on) as device:
        yield remote_build.ask_of(device)


def _toolchain(target: config.Target, wish: RuntimeWish, *, dry: bool) -> dict[str, str]:
    request = _request(target)
    if dry and wish.on:
        names = ort_toolchain.versions(ort_toolchain.survey(request, lambda _words: None))
        return dict.fromkeys(names, f"unknown: {wish.on.name} is not asked")
    with _host(wish) as ask:
        return ort_toolchain.versions(ort_toolchain.survey(request, ask))


def toolchain_lacks(targets: Iterable[config.Target], wish: RuntimeWish) -> list[Lack]:
    """What the machine that builds lacks for the runtimes that are to be built on it.

    Raises :class:`errors.UsageError` for a device where nothing is to be built, for a plan of
    nothing, and
    :class:`errors.DeviceUnreachable` and :class:`errors.HostKeyRejected`.
    """
    targets = list(targets)
    plans = [t for t in targets if t.runtime.name == PLANS and not wish.planned]
    lacks = [lack for t in plans for lack in _plan_lacks(t, wish.plans_on)]
    built = [t for t in targets if wish.of(t) != "prebuilt"]
    if wish.planned and not built and not any(t.runtime.name == PLANS for t in targets):
        raise errors.UsageError(
            f"--plan: {', '.join(t.name for t in targets)} builds no runtime that could be planned",
            remedy="leave --plan out; it is for --runtime reduced, -reduced targets and "
            "tensorrt-plan",
        )
    building = [] if wish.planned else built
    if wish.on and not building and not plans:
        raise errors.UsageError(
            f"--on {wish.on.name}: no target builds its runtime",
            remedy="say --runtime reduced, or leave --on out",
        )
    if not building:
        return lacks
    with _host(wish) as ask:
        return lacks + [
            Lack(target.name, what, remedy)
            for target in building
            for what, remedy in _missing(_request(target), wish.on, ask).items()
        ]


def _missing(request: Request, on: DeviceSettings | None, ask: ort_toolchain.Ask) -> dict[str, str]:
    found = dict(ort_toolchain.missing(ort_toolchain.survey(request, ask)))
    if on is None:
        return found
    found |= remote_build.lacks(request, ask)
    return {
        f"{what} on {on.name}": f"on {on.name}, for commands over SSH: {how}"
        for what, how in found.items()
    }
