"""IR straight from PyTorch and TensorFlow, against the framework and the canonical model's IR."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edge import graph, process, samples
from edge.convert import openvino_library as ov
from edge.convert.canonical import canonical
from edge.convert.openvino_choice import openvino_choice
from edge.convert.openvino_ir import openvino_ir
from edge.samples import INDEX
from edge.sources import openvino_direct, tensorflow_model, torch_module
from edge.step import Step
from tests import models
from tests.convert.openvino_setup import F32, RELEASE, need_openvino
from tests.sources import tensorflow_models, torch_models

pytestmark = pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning", "ignore:.*LeafSpec.*:FutureWarning"
)
torch = torch_models.library()
LIKE = {"direct": openvino_direct.openvino_torch, "export": torch_module.export_torch,
        "runner": torch_module.runner}  # fmt: skip
KERAS = {"direct": openvino_direct.openvino_tensorflow,
         "export": tensorflow_model.export_tensorflow,
         "runner": tensorflow_model.runner}  # fmt: skip


class Source:
    """A framework's model, its canonical ONNX for one sample of batch 1, and what it gives."""

    def __init__(
        self, folder: Path, steps: dict[str, Any], source: Path, options: dict[str, Any]
    ) -> None:
        self.folder, self.direct = folder, steps["direct"]
        self.given = {"source": source, "factory": "", "options": options}
        exported, self.like = folder / "exported", folder / "canonical" / "model.onnx"
        for place in (exported, self.like.parent):
            place.mkdir(parents=True)
        steps["export"].function(exported, **self.given)
        facts = graph.facts(onnx.load(exported / "model.onnx"))
        inputs = [
            {"name": port["name"], "dtype": port["dtype"], "constant": None, "range": None,
             "shape": [dim if isinstance(dim, int) else 1 for dim in port["shape"]]}
            for port in facts["inputs"]
        ]  # fmt: skip
        generator = np.random.default_rng(0)
        case: dict[str, Any] = {
            each["name"]: generator.random(each["shape"]).astype(each["dtype"]) for each in inputs
        }
        outputs = steps["runner"](source, "", options)(case)
        names = [port["name"] for port in facts["outputs"]]
        samples.write(folder / "golden", [(case, dict(zip(names, outputs, strict=True)))])
        canonical.function(
            self.like.parent, model=exported / "model.onnx", cases=folder / "golden" / INDEX,
            inputs=inputs, bind=True,
        )  # fmt: skip

    def make(self, name: str = "framework", **changes: Any) -> dict[str, Any]:
        """The framework's own IR in a folder of that name; the facts."""
        (self.folder / name).mkdir()
        given = {**self.given, "like": self.like, "release": RELEASE, **changes}
        facts = self.direct.function(self.folder / name, **given)
        assert facts is not None
        return dict(facts)

    def choose(self) -> dict[str, Any]:
        """Both ways held against the framework's own outputs; the facts of the choice."""
        for name in ("ir", "kept"):
            (self.folder / name).mkdir()
        openvino_ir.function(self.folder / "ir", model=self.like, release=RELEASE)
        facts = openvino_choice.function(
            self.folder / "kept", canonical=self.folder / "ir" / ov.IR,
            framework=self.folder / "framework" / ov.IR, golden=self.folder / "golden" / INDEX,
            properties=F32, tolerance={"max_abs": 1e-4, "max_rel": 1e-3}, release=RELEASE,
        )  # fmt: skip
        assert facts is not None
        return dict(facts)


@pytest.fixture(autouse=True)
def _openvino() -> None:
    need_openvino()


def pytorch(folder: Path, name: str, kind: str) -> Source:
    images, _ = torch_models.test_images(name)
    folder.mkdir(parents=True, exist_ok=True)
    source = torch_models.saved(name, kind, folder)
    said = {"name": "pixels", "dtype": "float32", "shape": ["batch", *images.shape[1:]]}
    return Source(folder / name, LIKE, source, torch_models.options(said, outputs=["logits"]))


@pytest.mark.parametrize(
    ("name", "kind", "converter"),
    [("cnn", "trace", "TorchScript"), ("lstm", "trace", "TorchScript"),
     ("cnn", "program", "exported program"), ("lstm", "program", "exported program"),
     ("transformer", "program", "exported program")],
)  # fmt: skip
def test_pytorch_is_right_and_the_better_way_is_kept(
    tmp_path: Path, name: str, kind: str, converter: str
) -> None:
    source = pytorch(tmp_path, name, kind)
    facts = source.make()
    assert (facts["refused"], facts["converter"]) == ("", converter)
    assert 'names="logits"' in (source.folder / "framework" / ov.IR).read_text()
    chosen = source.choose()
    for way in ("canonical", "framework"):
        assert chosen[way]["why_not"] == ""
        assert chosen[way]["sqnr_db"] > 100
    if (name, kind) == ("lstm", "program"):  # an exported program has unrolled it
        assert chosen["kept"] == "canonical"
        assert facts["operations"] > 10 * chosen["canonical"]["operations"]


@pytest.mark.process
def test_two_processes_give_the_same_bytes_without_a_path(tmp_path: Path) -> None:
    source = pytorch(tmp_path, "transformer", "program")
    made = []
    for name in ("first", "another-folder"):
        out = tmp_path / name
        out.mkdir()
        process.run_python(
            "edge.sources.openvino_direct:openvino_torch.function",
            {"out": out, **source.given, "like": source.like, "release": RELEASE},
            timeout=300,
        )
        made.append({path.name: path.read_bytes() for path in sorted(out.iterdir())})
        assert str(tmp_path).encode() not in made[-1][ov.IR]
    assert made[0] == made[1]


def refusal(source: Source, like: onnx.ModelProto, **changes: Any) -> str:
    """Why there is no IR when the canonical model is ``like``."""
    onnx.save(like, source.folder / "like.onnx")
    facts = source.make("refused", like=source.folder / "like.onnx", **changes)
    assert not list((source.folder / "refused").iterdir())
    return str(facts["refused"])


def test_free_dimensions_are_left_to_the_canonical_model(tmp_path: Path) -> None:
    """A trace may have taken an example's size for a constant, which one size does not show."""
    source = pytorch(tmp_path, "cnn", "trace")
    like = onnx.load(source.like)
    like.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    assert "free dimensions" in refusal(source, like)


@pytest.mark.parametrize("what", ["other inputs", "another type", "another number of outputs"])
def test_what_does_not_fit_the_canonical_model_is_refused(tmp_path: Path, what: str) -> None:
    source = pytorch(tmp_path, "cnn", "trace")
    like = onnx.load(source.like)
    if what == "other inputs":
        like = models.conv_bn()
    elif what == "another type":
        like.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.DOUBLE
    else:
        like.graph.output.append(like.graph.output[0])
    said = refusal(source, like)
    assert {"other inputs": "has the inputs pixels", "another type": "not float64",
            "another number of outputs": "outputs"}[what] in said  # fmt: skip


def test_another_release_is_a_reason_and_no_failure(tmp_path: Path) -> None:
    """The model's own environment may have another OpenVINO, or none."""
    source = pytorch(tmp_path, "cnn", "trace")
    facts = source.make(release="2024.0.0")
    assert "for openvino 2024.0.0" in facts["refused"]


@pytest.fixture(scope="module")
def keras(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with tensorflow_models.started():
        yield tensorflow_models.train_digits(tmp_path_factory.mktemp("keras"))


@pytest.mark.parametrize("file", ["digits.keras", "exported/saved_model.pb"])
def test_keras_is_right_and_the_better_way_is_kept(keras: Path, tmp_path: Path, file: str) -> None:
    source = Source(tmp_path / "keras", KERAS, keras / file, tensorflow_models.options())
    facts = source.make()
    assert (facts["refused"], facts["converter"]) == ("", "TensorFlow")
    chosen = source.choose()
    for way in ("canonical", "framework"):
        assert chosen[way]["why_not"] == ""
        assert chosen[way]["sqnr_db"] > 100
    assert chosen["kept"] == "canonical"


def test_every_step_is_found_by_its_frameworks_title() -> None:
    from edge.sources.frameworks import FRAMEWORKS

    titles = {each.title for each in FRAMEWORKS.values()}
    assert set(openvino_direct.DIRECT) <= titles
    assert all(isinstance(step, Step) for step in openvino_direct.DIRECT.values())
