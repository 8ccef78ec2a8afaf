"""What is refused before TensorFlow or Keras opens it."""

from __future__ import annotations

import contextlib
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge import errors
from edge.sources import tensorflow_trust as trust
from edge.sources.tensorflow_load import kind_of, load
from tests.sources import tensorflow_models as models


@pytest.fixture(scope="module", autouse=True)
def _tensorflow() -> Iterator[None]:
    with models.started():
        yield


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one small model as plain.keras, plain.h5 and exported/."""
    import keras

    folder = tmp_path_factory.mktemp("plain")
    made = keras.Sequential([keras.Input((3,), name="x"), keras.layers.Dense(2)])
    for name in ("plain.keras", "plain.h5"):
        models.saved(made, folder / name)
    with models.quiet():
        made.export(folder / "exported", verbose=False)
    return folder


def rewritten(path: Path, out: Path, **members: bytes) -> Path:
    """A copy of a ``.keras`` archive with members replaced or added."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            if name not in members:
                new.writestr(name, old.read(name))
        for name, content in members.items():
            new.writestr(name, content)
    return out


def with_layer(path: Path, out: Path, layer: dict[str, Any]) -> Path:
    """A copy of a ``.keras`` archive with a layer added to its configuration."""
    with zipfile.ZipFile(path) as archive:
        config = json.loads(archive.read("config.json"))
    config["config"]["layers"].append(layer)
    return rewritten(path, out, **{"config.json": json.dumps(config).encode()})


def layer(kind: str, home: Any = "keras.layers", /, **config: Any) -> dict[str, Any]:
    return {"class_name": kind, "module": home, "config": config, "registered_name": None}


@pytest.mark.parametrize("name", ["plain.keras", "plain.h5", "exported/saved_model.pb"])
def test_plain_models_are_loaded(name: str, plain: Path) -> None:
    call = load(plain / name, "", models.options())
    assert [each.name for each in call.inputs] == ["x"]


# Keras files


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_lambda_is_code_and_runs_only_where_allowed(suffix: str, tmp_path: Path) -> None:
    path = models.saved(models.lambda_model(), tmp_path / f"lambda{suffix}")
    with pytest.raises(errors.ModelRefused, match="Lambda") as caught:
        load(path, "", models.options())
    assert "--allow-pickle" in caught.value.remedy
    assert "factory" in caught.value.remedy
    with models.quiet():
        call = load(path, "", models.options(allow_pickle=True))
    assert float(call.function(np.array([[1, 2, 3]], np.float32))[0][0, 2]) == 6


@pytest.mark.parametrize("suffix", [".keras", ".h5"])
def test_a_class_of_the_users_own_is_named(suffix: str, tmp_path: Path) -> None:
    import keras

    class Scale(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            return x * 3

    made = keras.Sequential([keras.Input((3,), name="x"), Scale(name="triple")])
    path = models.saved(made, tmp_path / f"custom{suffix}")
    with pytest.raises(errors.ModelRefused, match=r"Unknown layer: Scale \(triple\)") as caught:
        load(path, "", models.options())
    assert "module:callable" in caught.value.remedy
    # Allowed as code, it still cannot be found: Keras says so, not a traceback.
    with pytest.raises(errors.ModelRefused, match=r"cannot load custom.*Scale"):
        load(path, "", models.options(allow_pickle=True))


GADGETS = {
    "get_file (CVE-2025-8747)": layer("function", "keras.utils", name="get_file"),
    "any module (CVE-2025-1550)": layer("Popen", "subprocess", args="id"),
    "a module beside Keras": layer("Dense", "keras_evil.layers"),
    "unsafe switch": layer("enable_unsafe_deserialization", "keras.config"),
    "another SavedModel": layer("TFSMLayer", filepath="/elsewhere"),
    "a pickled module": layer("TorchModuleWrapper", module="gASV"),
    "a vocabulary file (CVE-2025-12058)": layer("StringLookup", vocabulary="/etc/passwd"),
    "code in a wrapper": layer("TimeDistributed", layer=layer("Lambda", function="x")),
    "code without a module": {"class_name": "__lambda__", "config": {"value": "4wAAAA=="}},
    "a loader among the models": layer("function", "keras.models", name="load_model"),
    "a registered class": {**layer("Dense"), "registered_name": "theirs>Dense"},
    "a function as a list": layer("function", ["keras"], name="f"),
}


@pytest.mark.parametrize("gadget", GADGETS)
def test_configurations_that_reach_outside_keras_are_refused(
    gadget: str, plain: Path, tmp_path: Path
) -> None:
    path = with_layer(plain / "plain.keras", tmp_path / "bad.keras", GADGETS[gadget])
    with pytest.raises(errors.ModelRefused) as caught:
        trust.check_keras(path, allow_code=False)
    assert caught.value.remedy


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["class_name", "module", "config", "registered_name", "vocabulary"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_any_json_is_checked_or_refused(config: Any) -> None:
    with contextlib.suppress(errors.ModelRefused):
        trust.check_config(config, allow_code=False)


def test_archives_stay_in_their_folder_and_in_memory(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = rewritten(plain / "plain.keras", tmp_path / "o.keras", **{"assets/../../x": b"1"})
    with pytest.raises(errors.ModelRefused, match="outside its folder"):
        trust.check_keras(outside, allow_code=False)
    monkeypatch.setattr(trust, "FORMAT_LIMIT_BYTES", 1000)
    with pytest.raises(errors.ModelRefused, match="unpack to more than 2 GB"):
        trust.check_keras(plain / "plain.keras", allow_code=False)
    with pytest.raises(errors.ModelRefused, match="less than 2 GB"):
        load(plain / "plain.h5", "", models.options())


def test_weights_in_other_files_are_refused(plain: Path, tmp_path: Path) -> None:
    import h5py

    for name, value in {
        "link": h5py.ExternalLink("/etc/passwd", "/"),
        "soft": h5py.SoftLink("/model_weights"),
    }.items():
        path = tmp_path / f"{name}.h5"
        path.write_bytes((plain / "plain.h5").read_bytes())
        with h5py.File(path, "a") as file:
            file["model_weights"]["other"] = value
        with pytest.raises(errors.ModelRefused, match="/model_weights/other of the HDF5 file"):
            trust.check_h5(path, allow_code=False)
    path = tmp_path / "outside.h5"
    path.write_bytes((plain / "plain.h5").read_bytes())
    with h5py.File(path, "a") as file:
        file.create_dataset("d", (4,), "f4", external=[(str(tmp_path / "raw"), 0, 16)])
    with pytest.raises(errors.ModelRefused, match="weights /d lie in another file"):
        trust.check_h5(path, allow_code=False)
    weights = {"model.weights.h5": path.read_bytes()}
    packed = rewritten(plain / "plain.keras", tmp_path / "e.keras", **weights)
    with pytest.raises(errors.ModelRefused, match="weights /d lie in another file"):
        trust.check_keras(packed, allow_code=True)


def test_an_encrypted_archive_is_refused(plain: Path, tmp_path: Path) -> None:
    content = bytearray((plain / "plain.keras").read_bytes())
    for entry in re.finditer(rb"PK\x01\x02", bytes(content)):
        content[entry.start() + 8] |= 1  # the flag of an encrypted member
    (tmp_path / "locked.keras").write_bytes(content)
    with pytest.raises(errors.ModelRefused, match="or a damaged one"):
        trust.check_keras(tmp_path / "locked.keras", allow_code=False)


def test_weights_alone_are_no_model(tmp_path: Path) -> None:
    models.lambda_model().save_weights(tmp_path / "m.weights.h5")
    with pytest.raises(errors.ModelRefused, match="weights without a model"):
        load(tmp_path / "m.weights.h5", "", models.options())


# SavedModels


def reading(folder: Path) -> dict[str, Any]:
    """Functions of one float32 vector that reach outside, by the operator that does it."""
    import tensorflow as tf

    raw = tf.raw_ops
    name = str(folder / "file")

    def restored(x: Any) -> Any:
        found = raw.RestoreV2(
            prefix=name, tensor_names=["a"], shape_and_slices=[""], dtypes=[tf.float32]
        )
        return {"y": x + found[0]}

    def effect(make: Any) -> Any:
        def run(x: Any) -> Any:
            with tf.control_dependencies([make(x)]):
                return {"y": tf.identity(x)}

        return run

    def saving(x: Any) -> Any:
        return raw.SaveV2(prefix=name, tensor_names=["a"], shape_and_slices=[""], tensors=[x])

    def nested(x: Any) -> Any:
        return {"y": tf.cond(x[0] > 0, lambda: tf.io.read_file(name), lambda: "") + "!"}

    return {
        "ReadFile": nested,
        "WriteFile": effect(lambda x: raw.WriteFile(filename=name, contents="x")),
        "MatchingFiles": lambda x: {"y": tf.io.matching_files("/*")},
        "EagerPyFunc": lambda x: {"y": tf.py_function(lambda v: v, [x], tf.float32)},
        "RestoreV2": restored,
        "SaveV2": effect(saving),
        "PrintV2 into a file": effect(
            lambda x: raw.PrintV2(input="x", output_stream=f"file://{name}")
        ),
    }


@pytest.mark.parametrize(
    "operator",
    ["ReadFile", "WriteFile", "MatchingFiles", "EagerPyFunc", "RestoreV2", "SaveV2",
     "PrintV2 into a file"],
)  # fmt: skip
def test_operators_that_reach_outside_are_refused_by_name(operator: str, tmp_path: Path) -> None:
    import tensorflow as tf

    method = reading(tmp_path)[operator]
    made = models.module(method, tf.TensorSpec([None], tf.float32, "x"))
    path = models.save_module(made, tmp_path / "saved")
    with pytest.raises(errors.ModelRefused, match=f"the operator {operator} ") as caught:
        load(path, "", models.options())
    assert "do not trust this file" in caught.value.remedy
    assert not (tmp_path / "file").exists()


def test_a_printing_model_is_no_danger(tmp_path: Path) -> None:
    import tensorflow as tf

    def method(x: Any) -> Any:
        tf.print("seen")
        return {"y": x + 1}

    made = models.module(method, tf.TensorSpec([None], tf.float32, "x"))
    assert trust.check_saved_model(models.save_module(made, tmp_path / "s")) == ("serve",)


def test_frozen_graphs_and_tensorflow_1_models_are_refused(tmp_path: Path) -> None:
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.float32, [None], "x")
        v1.saved_model.simple_save(session, str(tmp_path / "old"), {"x": x}, {"y": x * 2})
    with pytest.raises(errors.ModelRefused, match="TensorFlow 1 model"):
        load(tmp_path / "old" / "saved_model.pb", "", models.options())
    (tmp_path / "frozen.pb").write_bytes(b"")
    with pytest.raises(errors.UsageError, match=r"called saved_model\.pb"):
        load(tmp_path / "frozen.pb", "", models.options())


def test_variables_that_are_not_there_are_said(plain: Path, tmp_path: Path) -> None:
    path = tmp_path / "saved_model.pb"
    path.write_bytes((plain / "exported" / "saved_model.pb").read_bytes())
    with pytest.raises(errors.ModelRefused, match="cannot load the SavedModel") as caught:
        load(path, "", models.options())
    assert "variables/" in caught.value.remedy


# Any file

CHECKS: dict[str, Callable[[Path], Any]] = {
    ".pb": trust.check_saved_model,
    ".h5": partial(trust.check_h5, allow_code=False),
    ".keras": partial(trust.check_keras, allow_code=False),
}


@pytest.mark.parametrize("name", ["plain.keras", "plain.h5", "exported/saved_model.pb"])
@given(st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_a_damaged_file_is_refused_in_words(
    name: str, plain: Path, tmp_path: Path, data: st.DataObject
) -> None:
    whole = (plain / name).read_bytes()
    cut = data.draw(st.integers(0, len(whole) - 1))
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:place] + data.draw(st.binary(min_size=1, max_size=4)) + whole[place + 4 :]
    path = tmp_path / Path(name).name
    for content in (whole[:cut], changed):
        path.write_bytes(content)
        with contextlib.suppress(errors.ModelRefused):
            CHECKS[path.suffix](path)


@pytest.mark.parametrize(("name", "content"), [("m.tflite", b""), ("m.bin", b"\x1c\0\0\0TFL3")])
def test_tf_lite_is_refused_with_the_reason(name: str, content: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(errors.ModelRefused, match="fused and quantized"):
        kind_of(tmp_path / name, "")


def test_other_files_are_usage_errors(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_bytes(b"x")
    with pytest.raises(errors.UsageError, match="no TensorFlow model by its name"):
        kind_of(tmp_path / "m.txt", "")
