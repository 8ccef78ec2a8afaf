"""Our reading of configurations held against the parser of the installed runtime."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from edge import errors
from edge.closure import Closure, Entry, Types, union
from edge.closure.proof import missing
from edge.closure.text import as_built, render
from edge.convert import runtime_operators
from tests.closures import of_models

shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
REDUCE_PROD = 'ai.onnx;{};ReduceProd{{"inputs": {{"0": ["{}"]}}}}\n'


@given(of_models())
@shared_folder
def test_both_parsers_read_a_rendered_text_alike(tmp_path: Path, closure: Closure) -> None:
    config = tmp_path / "a.config"
    config.write_text(render(closure, types=True))
    assert runtime_operators.agrees(config, as_built(config.read_text())) is True


@given(of_models(), of_models())
@shared_folder
def test_both_parsers_let_later_types_replace_earlier_ones(
    tmp_path: Path, a: Closure, b: Closure
) -> None:
    config = tmp_path / "a.config"
    config.write_text(render(a, types=True) + render(b, types=True))
    assert runtime_operators.agrees(config, as_built(config.read_text())) is True


@given(of_models(), of_models())
@shared_folder
def test_another_closure_is_told_apart(tmp_path: Path, a: Closure, b: Closure) -> None:
    config = tmp_path / "a.config"
    config.write_text(render(a, types=True))
    if missing(union(a, b), a):
        with pytest.raises(errors.ClosureIncomplete, match="ONNX Runtime's own parser"):
            runtime_operators.agrees(config, union(a, b))


TRIPLE = ("int64_t", "float", "int64_t")


@pytest.mark.parametrize("other", [None, Types(custom=(TRIPLE, TRIPLE[::-1], ("bool",) * 3))])
def test_other_triples_are_told_apart(tmp_path: Path, other: Types | None) -> None:
    config = tmp_path / "a.config"
    config.write_text('ai.onnx;11;OneHot{"custom": [["int64_t", "float", "int64_t"]]}\n')
    assert runtime_operators.agrees(config, as_built(config.read_text()))
    with pytest.raises(errors.ClosureIncomplete, match="reads something else"):
        runtime_operators.agrees(config, Closure((Entry("", "OneHot", 11, other),)))


def test_every_operator_is_read_alike(tmp_path: Path) -> None:
    config = tmp_path / "a.config"
    config.write_text("!no_ops_specified_means_all_ops_are_required\n")
    assert runtime_operators.agrees(config, Closure(every_operator=True))
    with pytest.raises(errors.ClosureIncomplete):
        runtime_operators.agrees(config, Closure())


def test_what_only_a_newer_reader_tracks_is_no_disagreement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from edge.closure import operators

    config = tmp_path / "a.config"
    config.write_text(REDUCE_PROD.format(13, "float"))
    monkeypatch.delitem(operators.TRACKED, ("ai.onnx", "ReduceProd"))
    assert runtime_operators.agrees(config, as_built(config.read_text()))


def test_without_the_runtimes_parser_nothing_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from onnxruntime.tools import reduced_build_config_parser

    monkeypatch.setattr(reduced_build_config_parser, "have_flatbuffers", False)
    assert runtime_operators.agrees(tmp_path / "a.config", Closure()) is False


def test_kernels_of_the_installed_runtime_are_known() -> None:
    kernels = runtime_operators.kernel_ranges()
    assert kernels["ai.onnx", "ReduceProd"][:2] == ((1, 10), (11, 12))
    assert ("ai.onnx", "HardSwish") not in kernels
    assert kernels["com.microsoft.nchwc", "ReorderInput"] == ((1, 2**31 - 1),)
    needed = Closure((Entry("ai.onnx", "ReduceProd", 13, Types(((0, ("int64_t",)),))),))
    assert missing(needed, as_built("ai.onnx;17;ReduceProd"), ranges=kernels) == ()
    assert missing(needed, as_built("ai.onnx;18;ReduceProd"), ranges=kernels) != ()


def test_the_vocabulary_of_the_runtime_holds_the_standard_one() -> None:
    known = runtime_operators.vocabulary()
    assert known.objection("com.microsoft", "QuickGelu", 1) == ""
    assert known.objection("ai.onnx", "Conv", 22) == ""
