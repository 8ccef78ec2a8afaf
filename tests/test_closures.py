"""``edge closure``: the operators of what ships, and whether a reduced build would have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edge import closures
from edge.closure import Closure, Entry, Types
from edge.closure.coverage import Cover, Stranger
from edge.closures import Report
from edge.store import Store
from tests.command import edge

TARGET = "linux-x64-reduced"
ADD = Entry("", "Add", 14, Types(((0, ("float",)),)), "sum")
RELU = Entry("", "Relu", 14, node="act")


def report(*covers: Cover, strangers: tuple[Stranger, ...] = (), minimal: str = "base") -> Report:
    return Report("t", Closure((ADD, RELU)), covers, strangers, minimal)


def cover(operator: str, *, base: bool, extended: bool) -> Cover:
    reason = "" if base and extended else "only compiled into extended builds"
    return Cover("ai.onnx", operator, 14, "sum", base, extended, reason)


# ------------------------------------------------------------------------------- the report
def test_what_is_covered_is_not_refused() -> None:
    assert closures.refusal(report(cover("Add", base=True, extended=True))) is None
    assert closures.refusal(report()) is None


def test_what_an_extended_build_has_is_the_remedy() -> None:
    found = report(cover("Add", base=False, extended=True), cover("Relu", base=True, extended=True))
    refusal = closures.refusal(found)
    assert refusal is not None
    assert refusal.exit_code == 1
    assert refusal.message == (
        "t: a reduced build (base minimal) would not do: node 'sum' needs ai.onnx Add at opset "
        "14: only compiled into extended builds"
    )
    assert refusal.remedy == 'say minimal = "extended" in [runtime.reduced] of the target'
    assert closures.refusal(report(*found.covers, minimal="extended")) is None


def test_what_no_reduced_build_has_is_said() -> None:
    refusal = closures.refusal(report(cover("Add", base=False, extended=False)))
    assert refusal is not None
    assert "full runtime" in refusal.remedy


def test_strangers_are_refused_too_and_many_are_counted() -> None:
    strangers = tuple(Stranger("ai.onnx", f"X{n}", 1, "is not known") for n in range(5))
    refusal = closures.refusal(report(strangers=strangers))
    assert refusal is not None
    assert "ai.onnx;1;X0: is not known; ai.onnx;1;X1" in refusal.message
    assert refusal.message.endswith("; and 2 more")
    assert "X3" not in refusal.message


def test_json_has_every_operator_with_what_is_known_of_it() -> None:
    told = report(cover("Add", base=False, extended=True)).to_json()
    assert told["operators"] == [
        {"domain": "ai.onnx", "operator": "Add", "opset": 14, "node": "sum",
         "types": {"inputs": {"0": ["float"]}}, "base": False, "extended": True,
         "reason": "only compiled into extended builds"},
        {"domain": "ai.onnx", "operator": "Relu", "opset": 14, "node": "act", "types": None},
    ]  # fmt: skip


# ------------------------------------------------------------------------------ the command
def uncovered(path: Path) -> None:
    """x[2, 4] -> com.microsoft TransposeMatMul -> Relu -> y: upstream's tool drops its kernel."""
    nodes = [
        helper.make_node("TransposeMatMul", ["x", "w"], ["h"], "odd_one", domain="com.microsoft"),
        helper.make_node("Relu", ["h"], ["y"], "relu"),
    ]
    weights = onnx.numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    ports = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4]),
             helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])]  # fmt: skip
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], [weights])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


@pytest.mark.models
def test_a_model_that_is_covered(tmp_path: Path, store: Store, mlp: Path) -> None:
    words = ("closure", TARGET, "-m", mlp.name, "--dim", "batch=2")
    done = edge(tmp_path, store, *words, "--json")
    assert done.code == 0, done.err
    told = done.json
    assert (told["target"], told["minimal"], told["exit_code"]) == (TARGET, "base", 0)
    assert told["strangers"] == []
    assert "error" not in told
    (row,) = told["operators"]
    assert (row["domain"], row["operator"]) == ("com.microsoft", "FusedGemm")
    assert (row["base"], row["extended"], row["reason"]) == (True, True, "")
    assert f"operators of {TARGET}" in done.err
    assert "FusedGemm" in done.err
    assert "--ort-source" not in done.err

    again = edge(tmp_path, store, *words)
    assert (again.code, again.out, again.steps) == (0, "", [])


@pytest.mark.models
def test_a_node_without_a_kernel_is_named(tmp_path: Path, store: Store) -> None:
    uncovered(tmp_path / "odd.onnx")
    done = edge(tmp_path, store, "closure", TARGET, "-m", "odd.onnx", "--json")
    assert done.code == 1
    assert done.err.count("a reduced build (base minimal) would not do: node 'odd_one' needs") == 1
    told = done.json  # one document, also when the answer is no
    assert told["exit_code"] == 1
    assert "node 'odd_one' needs com.microsoft TransposeMatMul" in told["error"]["message"]
    by_name = {row["operator"]: row for row in told["operators"]}
    assert by_name["Relu"]["base"] is True
    assert (by_name["TransposeMatMul"]["base"], by_name["TransposeMatMul"]["extended"]) == (
        False,
        False,
    )
    assert by_name["TransposeMatMul"]["reason"]


@pytest.mark.models
def test_without_sources_the_operators_alone_are_listed(
    tmp_path: Path, store: Store, mlp: Path
) -> None:
    done = edge(tmp_path, store, "closure", "android", "-m", mlp.name, "--dim", "batch=2", "--json")
    assert done.code == 0, done.err
    assert "give --ort-source to see what a reduced build of ONNX Runtime would hold" in done.err
    assert [row["operator"] for row in done.json["operators"]] == ["FusedGemm"]
    assert "base" not in done.json["operators"][0]


@pytest.mark.models
def test_sources_of_another_release_are_refused(
    tmp_path: Path, store: Store, mlp: Path, ort_source: Path
) -> None:
    words = ("closure", "android", "-m", mlp.name, "--dim", "batch=2", "--json")
    done = edge(tmp_path, store, *words, "--ort-source", str(ort_source))
    assert done.code == 2
    message = "are ONNX Runtime 1.21.0, the target pins 1.29.0"
    assert message in done.json["error"]["message"]
    assert "fix: give the sources of 1.29.0" in done.err


@pytest.mark.process
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("android,ios",), "android,ios is no single target"),
        (("androyd",), "did you mean 'android'"),
        (("android", "--ort-source", "nowhere"), "--ort-source: nowhere is not there"),
    ],
)
def test_wrong_usage(
    tmp_path: Path, store: Store, mlp: Path, words: tuple[str, ...], said: str
) -> None:
    done = edge(tmp_path, store, "closure", *words, "-m", mlp.name)
    assert done.code == 2
    assert said in done.err
