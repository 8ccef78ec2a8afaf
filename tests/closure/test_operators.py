from __future__ import annotations

import pytest

from edge.closure import operators
from edge.closure.operators import OPEN, TRACKED, Vocabulary, serves, standard


def test_ranges_are_the_versions_of_an_operator() -> None:
    assert standard().ranges("ai.onnx", "Conv") == ((1, 10), (11, 21), (22, OPEN))
    assert standard().ranges("com.microsoft", "FusedConv") == ((1, OPEN),)
    assert standard().ranges("ai.onnx", "Sw") == ()


def test_the_runtime_knows_more_than_onnx() -> None:
    # LayerNormalization is fused into graphs of any opset.
    assert standard().ranges("ai.onnx", "LayerNormalization") == ((1, 16), (17, OPEN))
    assert standard().objection("ai.onnx", "SimplifiedLayerNormalization", 13) == ""
    assert standard().objection("com.ms.internal.nhwc", "QLinearConv", 10) == ""
    assert standard().objection("com.ms.internal.nhwc", "QLinearConvTranspose", 1) == ""


def test_since_is_the_last_version_up_to_the_opset() -> None:
    assert [standard().since("ai.onnx", "Conv", opset) for opset in (1, 10, 11, 21, 28)] == [
        1, 1, 11, 11, 22,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("registration", "since", "served"),
    [((13, 17), 13, True), ((13, 17), 17, True), ((13, 17), 18, False), ((13, 17), 12, False),
     ((13, OPEN), 13, True), ((13, OPEN), 14, False)],
)  # fmt: skip
def test_an_open_kernel_serves_its_first_version_only(
    registration: tuple[int, int], since: int, served: bool
) -> None:
    assert serves(registration, since) is served


def test_an_extended_vocabulary_leaves_the_first_as_it_was() -> None:
    first = Vocabulary({}).extended([("d", "A", 2)])
    more = first.extended([("d", "A", 4), ("e", "B", 1)])
    assert first.ranges("d", "A") == ((2, OPEN),)
    assert more.ranges("d", "A") == ((2, 3), (4, OPEN))
    assert first.objection("e", "B", 1) == "the domain e is not known"


def test_the_tracked_places_are_those_of_the_runtimes_own_reader() -> None:
    from onnxruntime.tools.ort_format_model import operator_type_usage_processors as theirs

    read = {}
    for processor in theirs._create_operator_type_usage_processors().values():
        key = (processor.domain, processor.optype)
        if isinstance(processor, theirs.OneHotProcessor):
            read[key] = operators.Tracked(inputs=(), custom=True)
            continue
        always = frozenset(processor._required_input_types.get(0, ()))
        assert not processor._required_output_types
        assert set(processor._required_input_types) <= {0}
        read[key] = operators.Tracked(
            tuple(processor._input_types), tuple(processor._output_types), always
        )
    # A release may track fewer operators than the newest, never other places of them.
    assert {key: TRACKED.get(key) for key in read} == read
    assert set(TRACKED) - set(read) <= {("com.microsoft", "GatherPacked")}


def test_the_type_names_are_those_of_the_runtimes_own_reader() -> None:
    from onnxruntime.tools.ort_format_model.types import FbsTypeInfo

    assert FbsTypeInfo.tensordatatype_to_string == operators.CPP_TYPES


def test_every_operator_of_the_installed_runtime_is_known() -> None:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    unknown = {
        (each.domain or "ai.onnx", each.name, each.since_version)
        for each in state.get_all_operator_schema()
        if standard().objection(each.domain or "ai.onnx", each.name, each.since_version)
        and not each.name.endswith("_TRT")
    }
    assert unknown == set()


def test_versions_are_never_wider_than_the_runtimes_registrations() -> None:
    from edge.convert import runtime_operators

    kernels = runtime_operators.kernel_ranges()
    assert len(kernels) > 200
    for key, registrations in kernels.items():
        for first, last in runtime_operators.vocabulary().ranges(*key):
            serving = [each for each in registrations if serves(each, first)]
            held = [each for each in serving if each[0] <= first and each[1] >= last]
            assert bool(serving) == bool(held), (key, first, last, serving)
