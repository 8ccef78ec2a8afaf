"""coremltools as steps use it: without frameworks that are installed, which stay importable."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from pathlib import Path

import pytest

from edge import errors
from edge.convert import coremltools_library
from tests.convert.golden_setup import need

NAMES = [name for names in coremltools_library.FRAMEWORKS.values() for name in names]


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """Two modules that can be imported; the second one is."""
    names = ("edge_test_absent", "edge_test_present")
    for name in names:
        (tmp_path / f"{name}.py").write_text("")
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, names[1], importlib.import_module(names[1]))
    return names


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_hidden_is_so_for_a_while_only(stand_ins: tuple[str, str], *, fails: bool) -> None:
    absent, present = stand_ins
    before = sys.modules[present]
    try:
        with coremltools_library._absent([absent, present]):
            assert importlib.util.find_spec(absent) is None
            with pytest.raises(ImportError):
                importlib.import_module(absent)
            assert importlib.import_module(present) is before
            if fails:
                raise ImportError("coremltools")
    except ImportError:
        assert fails
    assert sys.modules[present] is before
    assert absent not in sys.modules
    assert importlib.import_module(absent).__name__ == absent
    del sys.modules[absent]


def test_frameworks_can_be_imported_after_it() -> None:
    need("coreml", "coremltools")
    before = {name: importlib.util.find_spec(name) is None for name in NAMES}
    coremltools_library.module()
    assert {name: importlib.util.find_spec(name) is None for name in NAMES} == before
    assert [name for name in NAMES if sys.modules.get(name, "none") is None] == []


def test_a_framework_that_it_cannot_read_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    need("coreml", "coremltools")
    coremltools_library.module()
    from coremltools import _deps

    monkeypatch.setattr(_deps, "_HAS_TORCH", False)
    with pytest.raises(errors.ToolMissing, match="reads no models of torch in this process") as e:
        coremltools_library.module("torch")
    assert "pip install torch" in e.value.remedy


def test_without_coremltools_the_remedy_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "coremltools", None)
    with pytest.raises(errors.ToolMissing, match="coremltools does not import") as e:
        coremltools_library.builder()
    assert e.value.remedy == "pip install 'edgewright[coreml]'"


def test_its_remarks_are_kept_back_and_its_errors_are_not(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    logger = logging.getLogger(coremltools_library.LOGGER)
    caplog.set_level(logging.WARNING, logger=logger.name)  # whatever an import before has set
    with coremltools_library.silent():
        logger.warning("not tested with")
        logger.error("no such operation")
        sys.stderr.write("progress")
    logger.warning("of a user's own code")
    assert [each.message for each in caplog.records] == [
        "no such operation", "of a user's own code",
    ]  # fmt: skip
    assert capsys.readouterr().err == ""
