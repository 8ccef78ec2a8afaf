"""OpenVINO as steps use it: one release, silent, and what it says in one line."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from edge import errors, process
from edge.convert import openvino_library as ov
from tests.convert.openvino_setup import RELEASE, need_openvino

# Recorded from openvino 2026.4.1: silero_vad.onnx with free dimensions.
IF_RANK = """Exception from src/inference/src/cpp/core.cpp:84:
Check 'false' failed at src/frontends/common_translators/src/unconverted_ops_report.cpp:151:
FrontEnd API failed with OpConversionFailure:
Model wasn't fully converted. Failed operations detailed log:
-- Conv-16 with a message:
While validating ONNX node '<Node(Conv): /decoder/Conv_output_0>': Check \
'data.get_partial_shape().rank().is_static()' failed at \
src/frontends/onnx/frontend/src/op/conv.cpp:38:
FrontEnd API failed with GeneralFailure:
The input data tensor's rank has to be known (static)

-- ReduceMean-16 with a message:
Check '(supported_types.find(ov_input.get_element_type()) != supported_types.end())' failed at \
src/frontends/onnx/frontend/src/op/reduce.cpp:134:
While validating ONNX node '<Node(ReduceMean): /ReduceMean_output_0>':
Unsupported input type dynamic

Summary:
-- Conversion is failed for: Conv-16, ReduceMean-16
"""
PROPERTY = """Exception from src/inference/src/dev/plugin.cpp:53:
Exception from src/plugins/intel_cpu/src/config.cpp:475:
NotFound: Unsupported property NONSENSE by CPU plugin.
"""


def test_a_failed_conversion_names_operators_and_reasons() -> None:
    assert ov.reason(RuntimeError(IF_RANK)) == (
        "-- Conv-16: The input data tensor's rank has to be known (static); "
        "-- ReduceMean-16: Unsupported input type dynamic"
    )


def test_the_places_in_openvinos_code_are_left_out() -> None:
    said = ov.reason(RuntimeError(PROPERTY))
    assert said == "NotFound: Unsupported property NONSENSE by CPU plugin."


@pytest.mark.parametrize("text", ["", "\n\n", "Exception from a.cpp:1:", "x" * 5000, "Check 'a'"])
def test_any_message_becomes_one_bounded_line(text: str) -> None:
    said = ov.reason(RuntimeError(text))
    assert said
    assert "\n" not in said
    assert len(said) <= ov.MAX_REASON


def test_another_release_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    present = SimpleNamespace(__version__="2025.1.0-18503-6fec06580ab-releases/2025/1")
    monkeypatch.setitem(sys.modules, "openvino", present)
    with pytest.raises(errors.ToolMissing, match=r"openvino 2026\.4\.1, and 2025\.1\.0 is") as e:
        ov.module("2026.4.1")
    assert e.value.remedy == "pip install openvino==2026.4.1"


def test_without_openvino_the_remedy_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(errors.ToolMissing, match="openvino is not installed"):
        ov.module(RELEASE)


TELEMETRY = f"""
import sys
from edge.convert import openvino_library
openvino_library.module("{RELEASE}")
assert sys.modules["openvino_telemetry"] is None
from openvino.tools.ovc import telemetry_stub, telemetry_utils
assert telemetry_utils.tm is telemetry_stub
"""


@pytest.mark.process
def test_its_telemetry_cannot_be_imported() -> None:
    """openvino 2026.4.1 sends an event when it is imported, if that package can be.

    In a process of its own: other libraries import it, too.
    """
    need_openvino()
    process.run([sys.executable, "-c", TELEMETRY], timeout=120, cwd=process.PACKAGE_PARENT)


def test_our_own_errors_go_through_and_others_are_said() -> None:
    with pytest.raises(errors.RunFailed, match="mine"), ov.refused("does", "1"):
        raise errors.RunFailed("mine")
    with (
        pytest.raises(errors.ModelRefused, match="openvino 1 does: theirs"),
        ov.refused("does", "1"),
    ):
        raise RuntimeError("theirs")


class Port:
    def __init__(self, *names: str) -> None:
        self.names = set(names)

    def get_names(self) -> set[str]:
        return self.names


@pytest.mark.parametrize("names", [["b", "a"], ["a"], ["a", "b", "c"], ["a", "other"]])
def test_outputs_under_other_names_are_refused(names: list[str]) -> None:
    ready: Any = SimpleNamespace(inputs=[Port("x")], outputs=[Port("a", "alias"), Port("b")])
    with pytest.raises(errors.RunFailed, match="has the outputs a, alias; b"):
        ov.infer(ready, {}, names)


def test_an_input_that_is_none_is_refused() -> None:
    import numpy as np

    ready: Any = SimpleNamespace(inputs=[Port("x")], outputs=[])
    with pytest.raises(errors.RunFailed, match="no input y"):
        ov.infer(ready, {"y": np.zeros(1)}, [])
