"""PyTorch's files: recognised, not opened blindly, and exported to the same bytes everywhere."""

from __future__ import annotations

import io
import json
import os
import re
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import graph, process
from edge.sources import torch_files, torch_module
from tests.sources import torch_models
from tests.sources.torch_models import X, export_file, onnx_outputs, options, refusal, saved

torch = torch_models.library()
pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning", "ignore:.*LeafSpec.*:FutureWarning"
)


def test_a_program_says_its_own_inputs(tmp_path: Path) -> None:
    free = {0: torch.export.Dim.DYNAMIC}
    model, mask = torch_models.Keywords().eval(), torch.ones(3, 4)
    program = torch.export.export(
        model, (torch.rand(3, 8),), {"mask": mask, "scale": 3},
        dynamic_shapes={"x": free, "mask": free, "scale": None},
    )  # fmt: skip
    torch.export.save(program, tmp_path / "m.pt2")
    facts = export_file(tmp_path / "m.pt2", tmp_path / "o")
    assert [port["name"] for port in facts["inputs"]] == ["x", "mask"]
    # The mask goes through: its name is taken by the input.
    assert [port["name"] for port in facts["outputs"]] == ["y", "mask_out"]
    (free_name,) = {port["shape"][0] for port in facts["inputs"]}
    assert isinstance(free_name, str)
    run = torch_module.runner(tmp_path / "m.pt2", "", options())
    feeds = {"x": np.ones((5, 8), np.float32), "mask": np.eye(5, 4, dtype=np.float32)}
    x, mask = map(torch.from_numpy, feeds.values())
    with torch.no_grad():
        expected = model(x, mask=mask, scale=3)["y"].numpy()
    np.testing.assert_allclose(run(feeds)[0], expected, rtol=0, atol=1e-6)
    actual = onnx_outputs(tmp_path / "o" / "model.onnx", feeds)
    np.testing.assert_allclose(actual[0], expected, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(actual[1], feeds["mask"])


def test_pickles_are_recognised_and_not_opened(tmp_path: Path) -> None:
    model = torch_models.Small().eval()
    for modern in (True, False):
        torch.save(model, tmp_path / "m.pt", _use_new_zipfile_serialization=modern)
        error = refusal(export_file, tmp_path / "m.pt", tmp_path / f"m{modern}", X)
        assert "a pickled object (tests.sources.torch_models.Small)" in error.message
        assert "--allow-pickle" in error.remedy
        torch.save(model.state_dict(), tmp_path / "w.pt", _use_new_zipfile_serialization=modern)
        error = refusal(export_file, tmp_path / "w.pt", tmp_path / f"w{modern}", X)
        assert "weights only (a state_dict)" in error.message
        assert 'source = "package.module:callable"' in error.remedy


def test_a_pickled_module_is_opened_when_that_is_allowed(tmp_path: Path) -> None:
    torch.save(torch_models.Small().eval(), tmp_path / "m.pt")
    facts = export_file(tmp_path / "m.pt", tmp_path / "o", X, allow_pickle=True)
    assert facts["outputs"] == [{"name": "output", "dtype": "float32", "shape": ["batch", 4]}]


class Evil:
    """Its pickle calls a function when it is opened."""

    def __reduce__(self) -> Any:
        return (pytest.fail, ("the pickle was opened",))


def test_a_pickle_in_an_exported_program_is_not_opened(tmp_path: Path) -> None:
    evil = io.BytesIO()
    torch.save(Evil(), evil)
    path = changed_program(tmp_path, {"data/sample_inputs/model.pt": lambda _: evil.getvalue()})
    assert "holds more than tensors" in refusal(export_file, path, tmp_path / "o", X).message


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("torch.ops.aten.relu.default", "torch.serialization.os.system", "which is no operator"),
        ("torch.ops.aten.relu.default", "torch.ops.load_library", "which is no operator"),
        ("torch.ops.aten.relu.default", "torch.ops.aten.from_file.default", "is no operator"),
        ("Symbol('s77', positive=True, integer=True)", "__import__('os').getpid()", "computed by"),
        ("Symbol('s77', positive=True, integer=True)", "Max('open(1)', 2)", "are computed by"),
        ('"guards_code": []', '"guards_code": ["__import__(1)"]', "are computed by"),
        ('\\"type\\": null', '\\"__enum__\\": true, \\"type\\": null', "name a Python class"),
    ],
)
def test_code_in_an_exported_programs_graph_is_refused(
    before: str, after: str, says: str, tmp_path: Path
) -> None:
    def change(data: bytes) -> bytes:
        text = re.sub(r"Symbol\('s\d+'", "Symbol('s77'", data.decode())
        assert before in text
        return text.replace(before, after).encode()

    path = changed_program(tmp_path, {"models/model.json": change})
    assert says in refusal(export_file, path, tmp_path / "o", X).message


def changed_program(folder: Path, changes: dict[str, Any]) -> Path:
    model = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU()).eval()
    shapes = ({0: torch.export.Dim.DYNAMIC},)
    program = torch.export.export(model, (torch.rand(2, 8),), dynamic_shapes=shapes)
    torch.export.save(program, folder / "good.pt2")
    with (
        zipfile.ZipFile(folder / "good.pt2") as good,
        zipfile.ZipFile(folder / "bad.pt2", "w") as bad,
    ):
        for entry in good.infolist():
            change = changes.get(entry.filename.partition("/")[2], bytes)
            bad.writestr(entry.filename, change(good.read(entry)))
    return folder / "bad.pt2"


def test_compiled_code_in_an_exported_program_is_refused(tmp_path: Path) -> None:
    path = changed_program(tmp_path, {})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("good/data/aotinductor/model/x.so", b"")
    assert "brings compiled code" in refusal(export_file, path, tmp_path / "o", X).message


def test_torchscript_that_reads_files_is_refused(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(torch_models.Reads().eval()), tmp_path / "m.ts")
    error = refusal(export_file, tmp_path / "m.ts", tmp_path / "o", X)
    assert "its code calls torch.from_file" in error.message


@pytest.mark.parametrize("content", [b"", b"hello", b"PK\x03\x04" + bytes(30)])
def test_files_that_are_none_of_torchs(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.pt").write_bytes(content)
    error = refusal(export_file, tmp_path / "m.pt", tmp_path / "o", X)
    assert "no file of PyTorch's" in error.message


def test_a_truncated_program_is_said(tmp_path: Path) -> None:
    path = changed_program(tmp_path, {"data/weights/weight_0": lambda data: data[:-4]})
    error = refusal(export_file, path, tmp_path / "o", X)
    assert "cannot load the exported program" in error.message


@pytest.mark.parametrize(
    ("text", "harmless"),
    [
        ("2*s0 + Max(1, u3)//4", True),
        ("L['x'].size()[0] >= 2", True),
        ("ModularIndexing(s0, 2, 3)", True),
        ("().__class__", False),
        ("open(1)", False),
        ("[x for x in s0]", False),
        ("lambda: s0", False),
        ("9**9**9", False),
        ("", False),
    ],
)
def test_expressions_of_sizes_are_told_from_code(text: str, harmless: bool) -> None:
    assert torch_files.arithmetic(text) is harmless


def test_nothing_of_this_machine_is_in_the_file(tmp_path: Path) -> None:
    path = saved("transformer", "program", tmp_path)
    export_file(path, tmp_path / "o", {"name": "rows", "dtype": None, "shape": ["batch", 8, 8]})
    data = (tmp_path / "o" / "model.onnx").read_bytes()
    for word in (b"torch_models", b"site-packages", b"stack_trace", b"+cpu", bytes(tmp_path)):
        assert word not in data
    model = graph.read(tmp_path / "o" / "model.onnx")
    assert not model.graph.metadata_props
    assert "encoder.layers.0.norm1.weight" in {each.name for each in model.graph.initializer}


FACTORY = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.lstm = torch.nn.LSTM(8, 4, batch_first=True)
        self.out = torch.nn.Linear(4, 2)

    def forward(self, rows):
        states, _ = self.lstm(rows)
        return {"last": self.out(states[:, -1]), "states": states}

def make():
    return Net().eval()
"""
SCRIPT = """
import json, sys
from pathlib import Path
from edge.sources.torch_module import export_torch
said = [{"name": "rows", "dtype": None, "shape": ["batch", 8, 8]}]
options = {"opset": 20, "inputs": said, "dims": {}, "outputs": [], "allow_pickle": False}
out = Path(sys.argv[2]); out.mkdir()
facts = export_torch.function(out, source=Path(sys.argv[1]), factory="net:make", options=options)
print(json.dumps([port["name"] for port in facts["outputs"]]))
"""


@pytest.mark.process
def test_two_processes_in_two_folders_give_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for number in (1, 2):
        folder = tmp_path / f"project{number}"
        folder.mkdir()
        (folder / "net.py").write_text(FACTORY)
        done = process.run(
            [sys.executable, "-c", SCRIPT, folder / "net.py", folder / "out"],
            timeout=300,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(process.PACKAGE_PARENT),
                 "PYTHONHASHSEED": str(number)},
        )  # fmt: skip
        assert json.loads(done.stdout.splitlines()[-1]) == ["last", "states"]
        files.append((folder / "out" / "model.onnx").read_bytes())
    assert files[0] == files[1]
