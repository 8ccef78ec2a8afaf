"""ONNX Runtime beside Core ML, rendered from recorded device results and from a live run's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from edge import report_sides
from edge.report_sides import COLUMNS, Sides, answer, cells, sides
from edge.results import Record, Results, Size, Sizes
from edge.stats import Verdict
from tests.reports import OUTPUT, RECORD, SUMMARY

VALID = Verdict("valid")
MODEL = Sizes(Size(3_180_000, 2_900_000), None, None)
PACKAGE = Sizes(Size(1_600_000, 1_450_000), Size(0, 0), Size(1_600_000, 1_450_000))


def record(provider: str, ms: float, **changes: Any) -> Record:
    """What was measured of one way on a phone; ``ms`` is its median."""
    native = provider.startswith("coreml:")
    ns = ms * 1e6
    summary = replace(SUMMARY, median_ns=ns, low_ns=0.98 * ns, high_ns=1.02 * ns)
    options = {"threads": 1, "provider": provider, "cached": [None, None], "providers": {}}
    made = replace(
        RECORD, id=f"{provider}-{ms}", target="ios", device="Jo", runner="swift",
        runtime="coreml 18.1.0" if native else "onnxruntime 1.29.0", verdict=VALID,
        options={**options, **changes.pop("options", {})}, summary=summary,
        sizes=PACKAGE if native else MODEL, load_ns=(40_000_000, 42_000_000),
        outputs=(replace(OUTPUT, sqnr_db=61.5 if native else 120.0),),
    )  # fmt: skip
    return replace(made, **changes)


def sharp(provider: str, ms: float) -> Record:
    """With a narrow interval."""
    made = record(provider, ms)
    low, high = 0.999 * ms * 1e6, 1.001 * ms * 1e6
    return replace(made, summary=replace(made.summary, low_ns=low, high_ns=high))


CPU = record("CPUExecutionProvider", 2.0)
PARTS = {"CoreMLExecutionProvider": {"nodes": 2, "ns": 9, "node_share": 0.4, "time_share": 0.9}}
PROVIDER = record(
    "CoreMLExecutionProvider", 1.5, load_ns=(900_000_000, 50_000_000, 60_000_000),
    options={"cached": [False, True, True], "providers": PARTS},
)  # fmt: skip
NATIVE = record("coreml:CPU_AND_NE", 1.0)
ALL = (NATIVE, PROVIDER, CPU)


def only(*records: Record) -> Sides:
    (found,) = sides(records)
    return found


def row(found: Sides, provider: str) -> dict[str, str]:
    (way,) = [way for way in found.ways if way.provider == provider]
    return dict(zip(COLUMNS, cells(way), strict=True))


def test_ways_stand_beside_each_other_in_a_fixed_order() -> None:
    found = only(*ALL)
    names = [way.provider for way in found.ways]
    assert names == ["CPUExecutionProvider", "CoreMLExecutionProvider", "coreml:CPU_AND_NE"]
    assert found == only(*reversed(ALL))
    assert "ONNX Runtime and Core ML on Jo, 1 thread: magika 3.3" in found.title


def test_a_row_says_all_that_the_choice_needs() -> None:
    assert row(only(*ALL), "coreml:CPU_AND_NE") == {
        "way": "coreml:CPU_AND_NE",
        "target": "ios",
        "model": "1.60 MB (1.45 MB)",
        "runtime": "in the system",
        "load": "41 ms",
        "load, kept": "-",
        "first run": "3 ms",
        "p50 (95 % interval)": "1 ms (980 us to 1.02 ms)",
        "times as fast": "2.00",
        "cores busy": "1.0",
        "peak memory": "61.50 MB",
        "SQNR": "61.5 dB",
        "CoreML parts": "-",
        "verdict": "valid",
    }


def test_loading_what_was_compiled_stands_apart_from_compiling() -> None:
    found = row(only(*ALL), "CoreMLExecutionProvider")
    assert (found["load"], found["load, kept"]) == ("900 ms", "55 ms")
    assert found["CoreML parts"] == "2"


def test_the_health_run_compiled_and_the_others_found_it() -> None:
    kept = {**PROVIDER.options, "cached": [True, True, True], "cold_load_ns": 800_000_000}
    found = row(only(CPU, replace(PROVIDER, options=kept)), "CoreMLExecutionProvider")
    assert (found["load"], found["load, kept"]) == ("800 ms", "60 ms")


def test_nodes_that_the_provider_did_not_take() -> None:
    none = {"CPUExecutionProvider": {"nodes": 5, "ns": 9, "node_share": 1.0, "time_share": 1.0}}
    other = replace(PROVIDER, options={**PROVIDER.options, "providers": none})
    assert row(only(CPU, other), "CoreMLExecutionProvider")["CoreML parts"] == "0"


@pytest.mark.parametrize(
    ("records", "said"),
    [
        (ALL, "Core ML runs faster here: coreml:CPU_AND_NE is 2.00 times as fast"),
        ((CPU, record("coreml:ALL", 3.0)),
         "ONNX Runtime runs faster here: CPUExecutionProvider is 1.50 times as fast"),
        ((CPU, record("coreml:ALL", 2.01)), "ONNX Runtime and Core ML run equally fast here"),
        ((sharp("CPUExecutionProvider", 2.0), sharp("coreml:ALL", 1.95)),
         "no difference that would be noticed: coreml:ALL is 1.03 times as fast as CPU"),
        ((CPU, replace(NATIVE, verdict=Verdict("throttled"))), "no answer"),
        ((PROVIDER, NATIVE), "no answer"),
    ],
)  # fmt: skip
def test_the_answer_says_no_more_than_the_figures(records: tuple[Record, ...], said: str) -> None:
    assert answer(only(*records)).startswith(said)


def test_what_the_faster_way_costs_is_said() -> None:
    """A judgement from the time of a run alone would be none."""
    slow = replace(CPU, load_ns=(12_000_000,), peak_bytes=60_000_000)
    fast = replace(NATIVE, load_ns=(4_200_000_000,), peak_bytes=90_000_000)
    said = answer(only(slow, fast))
    assert "its first load takes 4.2 s (the other's 12 ms)" in said
    assert "its memory peaks at 90.00 MB (60.00 MB)" in said
    assert "its outputs have 61.5 dB (120.0 dB)" in said
    same = replace(CPU, outputs=NATIVE.outputs)
    assert ";" not in answer(only(same, NATIVE))


def test_ways_that_are_as_fast_are_named() -> None:
    also = record("coreml:ALL", 1.01)
    assert "(and so are coreml:ALL)" in answer(only(CPU, NATIVE, also))
    assert "and so are" not in answer(only(CPU, NATIVE, record("coreml:ALL", 1.3)))


def lost(each: Record, *names: str) -> Record:
    return replace(each, options={**each.options, "lost": dict.fromkeys(names, "14 dB < 40 dB")})


def test_a_way_that_failed_is_told_and_its_older_figures_are_not() -> None:
    old = replace(NATIVE, created="2025-01-01T00:00:00+00:00")
    found = only(old, lost(CPU, "coreml:CPU_AND_NE"), lost(PROVIDER, "coreml:CPU_AND_NE"))
    assert [way.provider for way in found.ways] == [
        "CPUExecutionProvider", "CoreMLExecutionProvider",
    ]  # fmt: skip
    assert report_sides.notes(found)[1:] == ["coreml:CPU_AND_NE: no measurement: 14 dB < 40 dB"]
    assert len(only(lost(CPU, "coreml:ALL")).ways) == 1  # the failure alone is worth a table


def test_a_way_that_works_again_is_no_failure() -> None:
    new = replace(NATIVE, created="2027-01-01T00:00:00+00:00")
    found = only(lost(CPU, "coreml:CPU_AND_NE"), new)
    assert (found.lost, len(found.ways)) == ((), 2)


def test_more_cores_than_threads_are_said() -> None:
    """Core ML takes no number of threads: what it takes instead is measured."""
    busy = replace(NATIVE, summary=replace(NATIVE.summary, cpu_share=3.7))
    assert row(only(CPU, busy), "coreml:CPU_AND_NE")["cores busy"] == "3.7"
    said = "3.7 cores were busy where ONNX Runtime had 1 thread, measure with more --threads"
    assert said in answer(only(CPU, busy))
    assert "cores busy" not in answer(only(CPU, NATIVE))


def test_a_provider_that_took_no_node_is_not_core_ml() -> None:
    none = {"CPUExecutionProvider": {"nodes": 5, "ns": 9, "node_share": 1.0, "time_share": 1.0}}
    idle = replace(PROVIDER, options={**PROVIDER.options, "providers": none})
    assert answer(only(CPU, idle)).startswith("no answer")
    assert answer(only(CPU, PROVIDER)).startswith("Core ML runs faster here")


def test_of_each_way_the_newest_counts() -> None:
    newer = replace(CPU, created="2027-01-01T00:00:00+00:00", id="new", load_ns=(7_000_000,))
    assert row(only(newer, *ALL), "CPUExecutionProvider")["load"] == "7 ms"
    assert row(only(*ALL, newer), "CPUExecutionProvider")["load"] == "7 ms"


@pytest.mark.parametrize(
    "changes",
    [
        {"device": "another"},
        {"samples_sha256": "99" * 32},
        {"runner": "c"},
        {"options": {"threads": 4, "provider": "CPUExecutionProvider"}},
    ],
)
def test_what_cannot_be_compared_is_not(changes: dict[str, Any]) -> None:
    assert sides([replace(CPU, **changes), NATIVE]) == ()


def test_ways_without_core_ml_are_no_comparison() -> None:
    assert sides([CPU, record("XnnpackExecutionProvider", 1.0)]) == ()
    assert sides([RECORD]) == ()


@pytest.mark.parametrize(
    "odd",
    [
        {"cached": 3},
        {"cached": [True]},
        {"providers": []},
        {"providers": {"x": 1}},
        {"threads": "n"},
    ],
)
def test_options_of_another_release_are_no_end(odd: dict[str, Any]) -> None:
    one, two = (replace(each, options={**each.options, **odd}) for each in (CPU, PROVIDER))
    assert len(only(one, two).ways) == 2


def test_the_targets_coreml_and_ios_share_a_table() -> None:
    alone = replace(record("coreml:ALL", 1.2), target="coreml")
    assert [way.record.target for way in only(CPU, alone, record("coreml:ALL", 1.3)).ways] == [
        "ios", "coreml", "ios",
    ]  # fmt: skip


def test_names_cannot_steer_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    report_sides.show(sides([replace(each, device="a\x1b[31mb") for each in ALL]))
    out = "".join(capsys.readouterr())
    assert "\x1b[31m" not in out
    assert "Core ML runs faster here" in out


def test_from_the_database(tmp_path: Path) -> None:
    database = Results(tmp_path / "results.db")
    for each in ALL:
        database.add(each, ())
    assert len(sides(database.find())[0].ways) == 3
