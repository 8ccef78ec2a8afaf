"""Runner protocol: a whole run, every way it may be wrong, and text that nobody foresaw."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge import errors, protocol
from edge.protocol import End, Env, Memory, Output, Warmup, parse

ENV = {
    "event": "env", "protocol": 1, "runner": "c", "runtime": "onnxruntime", "version": "1.32.0",
    "arch": "x86_64", "os": "linux", "threads": 1, "provider": "CPUExecutionProvider",
    "optimization": "disabled",
}  # fmt: skip
LOAD = {"event": "load", "ns": 1200}
FIRST = {"event": "first", "ns": 0}
OUTPUT = {
    "event": "output", "sample": 0, "index": 0, "name": "label", "dtype": "float32",
    "shape": [1, 214], "file": "000.output.0.bin", "sha256": "ab" * 32,
}  # fmt: skip
WARMUP = {"event": "warmup", "runs": 40, "ns": 600, "stable": True}
SAMPLE = {"event": "sample", "ns": [10, 11, 12]}
MEMORY = {"event": "memory", "peak_bytes": 4096, "load_peak_bytes": -1}
PROFILE = {"event": "profile", "file": "/tmp/p.json"}
END = {"event": "end", "runs": 6, "wall_ns": 70, "cpu_ns": -1, "involuntary_switches": 2}
CHECK = (ENV, LOAD, FIRST, OUTPUT, MEMORY, END | {"runs": 0})
TIMED = (ENV, LOAD, FIRST, OUTPUT, WARMUP, SAMPLE, SAMPLE, MEMORY, PROFILE, END)


def text(*events: dict[str, Any]) -> str:
    return "".join(json.dumps(event) + "\n" for event in events)


def refused(*events: dict[str, Any]) -> str:
    with pytest.raises(errors.RunFailed) as caught:
        parse(text(*events))
    return caught.value.message


# ----------------------------------------------------------------------------- good runs
def test_a_timed_run() -> None:
    run = parse(text(*TIMED))
    assert run.env == Env(
        "c", "onnxruntime", "1.32.0", "x86_64", "linux", 1, "CPUExecutionProvider", "disabled"
    )
    assert (run.load_ns, run.first_ns, run.profile) == (1200, 0, "/tmp/p.json")
    assert run.samples_ns == (10, 11, 12, 10, 11, 12)
    assert (run.warmup, run.memory) == (Warmup(40, 600, stable=True), Memory(4096, -1))
    assert run.end == End(6, 70, -1, 2)


def test_a_gpu_and_a_kept_compiled_model_are_told() -> None:
    plain = parse(text(*CHECK))
    assert (plain.env.gpu, plain.cached) == ("", None)
    for cached in (True, False):
        run = parse(text(ENV | {"gpu": "H200\x07"}, LOAD | {"cached": cached}, *CHECK[2:]))
        assert (run.env.gpu, run.load_ns, run.cached) == ("H200\\x07", 1200, cached)


def test_outputs_know_their_size() -> None:
    (output,) = parse(text(*CHECK)).outputs
    assert output == Output(0, 0, "label", "float32", (1, 214), "000.output.0.bin", "ab" * 32)
    assert output.nbytes == 856


def test_a_health_run_has_no_warmup_and_no_samples() -> None:
    run = parse(text(*CHECK))
    assert (run.warmup, run.samples_ns, run.profile) == (None, (), None)


def test_memory_may_be_left_out() -> None:
    events = [event for event in CHECK if event is not MEMORY]
    assert parse(text(*events)).memory == Memory(-1, -1)


def test_several_outputs_in_order_and_without_files() -> None:
    second = OUTPUT | {"index": 1, "file": None, "shape": []}
    run = parse(text(ENV, LOAD, FIRST, OUTPUT, second, OUTPUT | {"sample": 1}, END | {"runs": 0}))
    assert [(o.sample, o.index, o.file) for o in run.outputs] == [
        (0, 0, "000.output.0.bin"), (0, 1, None), (1, 0, "000.output.0.bin"),
    ]  # fmt: skip
    assert run.outputs[1].nbytes == 4


def test_a_coarse_clock_gives_batches() -> None:
    run = parse(text(*TIMED[:-1], END | {"batch": 25, "runs": 150}))
    assert (run.end.batch, run.end.runs) == (25, 150)


def test_unknown_fields_and_windows_line_ends_are_ignored() -> None:
    run = parse(text(ENV | {"browser": "x"}, *TIMED[1:]).replace("\n", "\r\n"))
    assert run == parse(text(*TIMED))


def test_names_keep_unicode_and_lose_control_characters() -> None:
    line = OUTPUT | {"name": "ä\u2028\x1b[31m\ud800"}
    (output,) = parse(text(ENV, LOAD, FIRST, line, END | {"runs": 0})).outputs
    assert output.name == "ä\\x2028\\x1b[31m\\xd800"


# ---------------------------------------------------------------------------- failures
def test_the_runners_own_error_is_told() -> None:
    failed = {"event": "error", "stage": "load", "message": "no kernel for Gelu(20)\x1b[2J"}
    assert refused(ENV, failed) == "the runner failed (load): no kernel for Gelu(20)\\x1b[2J"


def test_another_protocol_is_told_with_a_remedy() -> None:
    with pytest.raises(errors.RunFailed, match="speaks protocol 2") as caught:
        parse(text(ENV | {"protocol": 2}, *CHECK[1:]))
    assert "deploy" in caught.value.remedy


@pytest.mark.parametrize("missing", range(len(CHECK)))
def test_a_run_cut_short_is_no_run(missing: int) -> None:
    with pytest.raises(errors.RunFailed, match="stopped without"):
        parse(text(*CHECK[:missing]))


@pytest.mark.parametrize("left_out", [ENV, LOAD, FIRST, OUTPUT])
def test_a_run_with_a_hole_is_no_run(left_out: dict[str, Any]) -> None:
    message = refused(*(event for event in CHECK if event is not left_out))
    assert f"without its {left_out['event']!r} event" in message


@pytest.mark.parametrize(
    "events",
    [
        (LOAD, ENV),
        (ENV, ENV),
        (ENV, LOAD, FIRST, OUTPUT, OUTPUT),
        (ENV, LOAD, FIRST, OUTPUT | {"index": 1}, OUTPUT),
        (ENV, LOAD, FIRST, OUTPUT, WARMUP, OUTPUT | {"index": 1}),
    ],
)
def test_another_order_is_refused(events: tuple[dict[str, Any], ...]) -> None:
    assert "out of order" in refused(*events)


@pytest.mark.parametrize("line", [json.dumps(END), json.dumps(ENV), "Aborted", ""])
def test_nothing_may_come_after_the_end(line: str) -> None:
    with pytest.raises(errors.RunFailed, match="after the end"):
        parse(text(*TIMED) + line + "\n")


def test_an_unknown_event_is_refused() -> None:
    assert "unknown event 'hello'" in refused(ENV, {"event": "hello"})


def test_samples_and_runs_must_agree() -> None:
    assert "6 samples came of 7 runs" in refused(*TIMED[:-1], END | {"runs": 7})
    assert "6 samples" in refused(*(event for event in TIMED if event is not WARMUP))


@pytest.mark.parametrize(
    ("event", "change"),
    [
        (ENV, {"protocol": True}), (ENV, {"provider": 1}), (ENV, {"threads": -1}),
        (ENV, {"version": "v" * 65}), (ENV, {"gpu": 1}), (LOAD, {"cached": 1}),
        (LOAD, {"ns": -1}), (LOAD, {"ns": 1.5}), (LOAD, {"ns": "1"}), (LOAD, {"ns": 10**16}),
        (OUTPUT, {"sha256": "AB" * 32}), (OUTPUT, {"file": "../x"}), (OUTPUT, {"file": ".."}),
        (OUTPUT, {"file": ""}), (OUTPUT, {"dtype": "complex64"}), (OUTPUT, {"dtype": None}),
        (OUTPUT, {"shape": [-1]}), (OUTPUT, {"shape": "1x2"}), (OUTPUT, {"shape": [1] * 33}),
        (OUTPUT, {"shape": [2**16, 2**16]}), (OUTPUT, {"sample": 10**6}),
        (OUTPUT, {"name": "n" * 1025}), (OUTPUT, {"index": None}),
        (WARMUP, {"stable": 1}), (WARMUP, {"runs": None}),
        (SAMPLE, {"ns": []}), (SAMPLE, {"ns": [1] * 101}), (SAMPLE, {"ns": [1, True]}),
        (SAMPLE, {"ns": [-1]}), (SAMPLE, {"ns": 5}),
        (MEMORY, {"peak_bytes": -2}), (PROFILE, {"file": None}),
        (END, {"runs": "6"}), (END, {"cpu_ns": -2}), (END, {"batch": 0}), (END, {"wall_ns": 1e3}),
    ],
)  # fmt: skip
def test_a_field_out_of_range_is_named(event: dict[str, Any], change: dict[str, Any]) -> None:
    message = refused(*(e | change if e is event else e for e in TIMED))
    assert f"{event['event']!r} has {next(iter(change))} = " in message


@pytest.mark.parametrize(
    "line",
    ["", "{", "[]", "null", "NaN", '{"event": 1}', "Segmentation fault", "[" * 5000,
     '{"event":"load","ns":NaN}', '{"event":"load","ns":' + "9" * 5000 + "}"],
)  # fmt: skip
def test_a_line_that_is_no_event_is_shown(line: str) -> None:
    with pytest.raises(errors.RunFailed, match="no event"):
        parse(text(ENV) + line + "\n")


def test_size_and_counts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "a line has more than" in refused(ENV | {"x": "y" * protocol.MAX_LINE})
    for name, limit in (("MAX_TEXT", 100), ("MAX_SAMPLES", 5), ("MAX_TENSORS", 0)):
        with monkeypatch.context() as changed:
            changed.setattr(protocol, name, limit)
            assert "more than" in refused(*TIMED)


# -------------------------------------------------------------------------------- fuzz
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=5,
)


def survives(output: str) -> None:
    message = ""
    try:
        parse(output)
    except errors.RunFailed as error:
        message = error.message
    assert b"\x1b" not in message.encode()  # what is told can be printed


@given(st.text())
def test_any_text_is_a_run_or_a_failed_one(output: str) -> None:
    survives(output)


@settings(max_examples=200)
@given(st.data())
def test_any_change_of_a_run_is_a_run_or_a_failed_one(data: st.DataObject) -> None:
    events = [dict(event) for event in TIMED]
    for _ in range(data.draw(st.integers(1, 2))):
        event = data.draw(st.sampled_from(events))
        event[data.draw(st.sampled_from(sorted(event)))] = data.draw(JSON)
    survives(text(*events))


@given(st.permutations(range(len(TIMED))), st.integers(0, len(TIMED)))
def test_any_order_is_a_run_or_a_failed_one(order: list[int], count: int) -> None:
    survives(text(*(TIMED[n] for n in order[:count])))


@given(st.integers(0, len(text(*TIMED))))
def test_a_stream_cut_anywhere_is_a_failed_run(length: int) -> None:
    whole = text(*TIMED).rstrip("\n")
    if length < len(whole):
        with pytest.raises(errors.RunFailed):
            parse(whole[:length])
