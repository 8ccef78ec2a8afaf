"""The reduced runtime of a target, for its recipe: planned, or proven to cover, built, proven.

1. The plan: what would be built, by which commands.
2. Before anything is compiled: the sources register a kernel for every node of the closure, and
   the build's options keep it.
3. The build, or with ``--runtime reuse-superset`` a stored one that can do all of it and more.
4. For Linux: the built library computes the golden outputs, refuses a model outside its closure,
   and is an ELF file as the platform wants it; its sizes beside the full library's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from edge import errors
from edge.convert import prove_runtime
from edge.convert.build_reduced import UNSTRIPPED, build_reduced
from edge.convert.check_library import check_library
from edge.convert.closure_within import closure_within
from edge.convert.measure_parity import against_golden, hold
from edge.convert.operator_closure import CLOSURE
from edge.convert.plan_reduced import plan_reduced
from edge.convert.prove_coverage import prove_coverage
from edge.convert.runtime_sizes import runtime_sizes
from edge.job import OPERATORS, PENDING, Job
from edge.samples import INDEX
from edge.store import File, Result
from edge.tools import emulator
from edge.tools.ort_cmake import LINUX
from edge.tools.reduced_plan import Request

# What the table says beside how it is built.
NOT_BUILT = ("source", "files", "full")
PLANNED = "the reduced runtime: run plan/plan.sh where its needs are met"


@dataclass(frozen=True)
class Reduced:
    """``plan``: the plan's files; ``built``: the build's, None when it is only planned.

    ``wanted``: false where the bundle takes the prebuilt runtime, and the plan is an offer.
    """

    plan: Result
    built: Result | None
    facts: Mapping[str, Any]
    wanted: bool = True

    @property
    def planned(self) -> tuple[str, ...]:
        """What the bundle says is still to be done; nothing where its plan is only an offer."""
        return (PLANNED,) if self.wanted and self.built is None else ()

    @property
    def product(self) -> File:
        """The library, archive or ``.wasm``."""
        return self.file((self.built.facts["product"] if self.built else None) or PENDING)

    def file(self, name: str) -> File:
        """One file that was built."""
        if self.built is None:
            raise errors.StepFailed("the reduced runtime is planned and not built")
        return self.built.file(name)


def request_of(job: Job, **platform: Any) -> dict[str, Any]:
    """What is to be built: the target's wishes, and what only its platform has."""
    wishes = job.target.runtime.reduced.model_dump()
    wishes["extended"] = wishes.pop("minimal") == "extended"
    wishes["pinned"] = wishes.pop("dependencies") == "pinned"
    known = {key: value for key, value in wishes.items() if key not in NOT_BUILT}
    request = Request(
        version=job.target.runtime.version, platform=job.target.platform, **known, **platform
    )
    return {key: list(v) if isinstance(v, tuple) else v for key, v in asdict(request).items()}


def reduced(job: Job, **platform: Any) -> Reduced:
    """Plan, prove and build the target's reduced runtime, as ``job.making`` says."""
    request = request_of(job, **platform)
    plan = job.step(plan_reduced, config=job.operators(), request=request)
    making = job.making
    if making is None:
        return Reduced(plan, None, {}, wanted=False)
    if making.planned:
        return Reduced(plan, None, {"needs": plan.facts["needs"]})
    covered = job.step(
        prove_coverage,
        closure=job.operator_closure().file(CLOSURE),
        config=job.operators(),
        source=making.source,
        request=request,
    )
    built = _superset(job, request, plan) if making.reuse else None
    reused = built is not None
    if built is None:
        built = job.step(
            build_reduced, **_ingredients(job, request, plan), where=dict(making.where)
        )
    return Reduced(plan, built, {"coverage": dict(covered.facts), "reused": reused})


def _ingredients(job: Job, request: Mapping[str, Any], plan: Result) -> dict[str, Any]:
    making = job.making
    if making is None:
        raise errors.StepFailed("no reduced runtime was asked for")
    return {
        "config": job.operators(),
        "source": making.source,
        "request": dict(request),
        "toolchain": {**making.toolchain, "plan": plan.facts["digest"]},
        **making.dependencies,
    }


def _superset(job: Job, request: Mapping[str, Any], plan: Result) -> Result | None:
    """A stored runtime, made of all the same but another configuration that holds ours.

    The smallest of them; the very one, if it was built, is no larger than any.
    """
    found = job.steps.alike(build_reduced, _ingredients(job, request, plan), but="config")
    for candidate in sorted(found, key=lambda each: each.file(each.facts["product"]).size):
        within = job.step(
            closure_within,
            closure=job.operator_closure().file(CLOSURE),
            config=candidate.file(OPERATORS),
        )
        if within.facts["missing"] == []:  # unknown in a dry run
            job.steps.used.append(candidate)
            return candidate
    return None


# --------------------------------------------------------------------------------- proofs
def prove(job: Job, made: Reduced, runner: File) -> dict[str, Any]:
    """Facts of a built Linux library: by what it was proven, its outputs, what it refused.

    ``by`` is ``unverified`` where nothing on this host can run it. Raises
    :class:`errors.ParityFailed` for outputs outside the target's tolerance, and
    :class:`errors.ClosureIncomplete` when it loads what it was not built for.
    """
    platform = job.target.platform
    if made.built is None or platform not in LINUX:
        return {}
    by = emulator.name(platform)
    if not by:
        return {"by": "unverified", "why": f"no {platform} on this host: {emulator.INSTALL}"}
    library = made.product
    flag = job.target.requires.get("cpu_flags", "")
    machine = f"{platform}+{flag}" if flag else platform
    shared: dict[str, Any] = {"library": library, "runner": runner, "platform": machine}
    golden = job.samples.tree(INDEX)
    ran = job.step(prove_runtime.run_with_library, **shared, model=job.built(), golden=golden)
    if ran.facts["runtime"] not in {None, job.target.runtime.version}:  # None: a dry run
        raise errors.StepFailed(
            f"the built {library.path.name} says that it is {ran.facts['runtime']}, "
            f"the target pins {job.target.runtime.version}"
        )
    what = f"the built {library.path.name} computes something else"
    held = against_golden(job, ran, job.tolerance)
    outputs = hold(job, held, what, remedy="look at [runtime.reduced] of the target")
    stranger = job.step(prove_runtime.outsider, config=made.built.file(OPERATORS))
    refused = job.step(
        prove_runtime.refuses,
        **shared,
        model=stranger.file(prove_runtime.OUTSIDER),
        operator=stranger.facts["operator"],
    )
    return {"by": by, "outputs": outputs, "refused": refused.facts["operator"]}


def requires(job: Job, made: Reduced) -> dict[str, str]:
    """What the target requires of devices, and what the built library does (``glibc`` ...)."""
    glibc = job.target.requires.get("glibc", "")
    checked = job.step(
        check_library, library=made.product, platform=job.target.platform, glibc=glibc
    )
    return {**job.target.requires, **(checked.facts["requires"] or {})}


def sizes(job: Job, made: Reduced) -> dict[str, Any]:
    """The size report of a built Linux library, beside the full library that the target pins."""
    if made.built is None or job.target.platform not in LINUX:
        return {}
    pin = job.target.runtime.reduced.full
    library = made.product
    linked = made.built.file(f"{UNSTRIPPED}/{library.path.name}")
    full = {"full": job.fetch(pin)} if pin else {}
    return dict(job.step(runtime_sizes, library=linked, stripped=library, **full).facts)
