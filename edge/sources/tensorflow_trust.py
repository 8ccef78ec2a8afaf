"""What is refused before TensorFlow or Keras reads a model: the file is untrusted.

A ``.keras`` or ``.h5`` file names the Python classes that make the model, and a Lambda layer
carries code; a SavedModel is a program whose operators can read and write files. Each is looked
through here first. The bytes of a model are data only where this file finds nothing.
"""

from __future__ import annotations

import io
import json
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any

from edge import errors
from edge.graph import first_line
from edge.model import FORMAT_LIMIT_BYTES

if TYPE_CHECKING:
    import h5py

# What zipfile, zlib and h5py raise for files that are cut, changed or encrypted.
_DAMAGED = (
    zipfile.BadZipFile, zlib.error, struct.error, OSError, EOFError, KeyError, TypeError,
    ValueError, RuntimeError,
)  # fmt: skip
MAX_CONFIG_BYTES = 1 << 26
MAX_MEMBERS = 10_000
FACTORY = "name a factory instead (module:callable that builds the model and loads its weights)"
DISTRUST = "do not trust this file"

# Modules of Keras whose classes and functions only compute. keras.utils is not among them:
# get_file downloads (CVE-2025-8747); neither are keras.saving and keras.config.
_COMPUTING = re.compile(
    r"keras(\.src)?(\.(layers|models|initializers|regularizers|constraints|activations|ops"
    r"|dtype_policies|quantizers|optimizers|losses|metrics|random|backend\.common)(\..*)?)?"
)
# Layers that run code or read files of the model's choice.
_CODE = {
    "Lambda": "runs Python code that the file holds",
    "__lambda__": "is Python code that the file holds",
    "TFSMLayer": "loads another SavedModel by its path",
    "TorchModuleWrapper": "unpickles a PyTorch module",
    "JaxLayer": "runs a function that the file holds",
    "FlaxLayer": "runs a function that the file holds",
}
# Values of a configuration that are no classes of a module.
_VALUES = {
    "__tensor__", "__keras_tensor__", "__numpy__", "__bytes__", "__ellipsis__", "__slice__",
    "__tuple__",
}  # fmt: skip
# Operators that touch files, other processes or Python. Datasets too: most read files, and none
# is part of an inference function.
_OUTSIDE = re.compile(
    r".*PyFunc.*|.*Dataset.*|.*Iterator.*|.*Reader(V2)?|ReadFile|WriteFile|MatchingFiles"
    r"|InitializeTableFromTextFile(V2)?|GenerateVocabRemapping|LoadAndRemapMatrix"
    r"|FixedUnigramCandidateSampler|RecordInput|DecodeProtoV2|EncodeProto|FileSystem.*"
    r"|.*SummaryWriter|Create.*Writer|Write.*Summary|Debug.*|Copy|CopyHost|RemoteCall|Dump.*"
    r"|_?Send|_?Recv|_?Host(Send|Recv)|.*LMDB.*|.*Rpc.*|Collective.*|ConfigureDistributedTPU"
    r"|DistributedSave|.*Bigtable.*"
)
_CHECKPOINT = re.compile(r"(Save|Restore)(V2|Slices?)?|MergeV2Checkpoints")


def refuse_large(paths: list[Path]) -> None:
    """:class:`errors.ModelRefused` for a file that could not end in one ONNX file."""
    for path in paths:
        size = path.stat().st_size
        if size > FORMAT_LIMIT_BYTES:
            raise errors.ModelRefused(
                f"{path.name} holds {size} bytes; one ONNX file holds less than 2 GB",
                remedy="name a smaller model; save it without its optimizer's state",
            )


# Keras files


def check_keras(path: Path, *, allow_code: bool) -> None:
    """Refuse a ``.keras`` archive that asks for more than Keras' own layers and weights."""
    try:
        with zipfile.ZipFile(path) as archive:
            _check_members(archive.infolist())
            config = archive.read("config.json")
            check_config(_json(config), allow_code=allow_code)
            for name in archive.namelist():
                if name.endswith(".h5"):
                    _check_h5(io.BytesIO(archive.read(name)))
    except _DAMAGED as error:
        raise errors.ModelRefused(
            f"{path.name} is no .keras file, or a damaged one: {first_line(error)}",
            remedy="save the model again with model.save('model.keras') of Keras 3",
        ) from error


def _check_members(members: list[zipfile.ZipInfo]) -> None:
    """Sizes before anything is unpacked, and no member outside the archive's folder."""
    if len(members) > MAX_MEMBERS or sum(m.file_size for m in members) > FORMAT_LIMIT_BYTES:
        raise errors.ModelRefused(
            "the .keras file would unpack to more than 2 GB or 10,000 files",
            remedy="save the model without its optimizer's state (model.save of an uncompiled one)",
        )
    for member in members:
        path = PurePosixPath(member.filename)
        if path.is_absolute() or ".." in path.parts or "\\" in member.filename:
            raise errors.ModelRefused(
                f"the .keras file holds a member outside its folder: {member.filename!r}",
                remedy=DISTRUST,
            )


def check_h5(path: Path, *, allow_code: bool) -> None:
    """The same for ``.h5``, whose loader ignored ``safe_mode`` (CVE-2025-9905)."""
    with path.open("rb") as stream:
        config = _check_h5(stream)
    if config is None:
        raise errors.ModelRefused(
            f"{path.name} holds weights without a model (it has no model_config)",
            remedy=f"save the whole model with model.save('model.keras'), or {FACTORY}",
        )
    check_config(_json(config), allow_code=allow_code)


def _check_h5(stream: IO[bytes]) -> bytes | None:
    """The ``model_config`` of an HDF5 file, after its links and sizes were checked."""
    import h5py

    try:
        with h5py.File(stream, "r") as file:
            sizes = 0
            for name, dataset in _datasets(file):
                sizes += dataset.nbytes
                if dataset.external or dataset.is_virtual or sizes > FORMAT_LIMIT_BYTES:
                    raise errors.ModelRefused(
                        f"the weights {name} lie in another file, or all of them hold over 2 GB",
                        remedy=f"save the model again as one file; else {DISTRUST}",
                    )
            config = file.attrs.get("model_config")
    except _DAMAGED as error:
        raise errors.ModelRefused(
            f"no HDF5 file, or a damaged one: {first_line(error)}",
            remedy="save the model again with model.save('model.keras')",
        ) from error
    if config is None or isinstance(config, bytes):
        return config
    return str(config).encode("utf-8", "surrogateescape")


def _datasets(file: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    """Every dataset by its path, each object once; links that leave the file are refused."""
    import h5py

    groups = [("", file)]
    seen = 0
    while groups:
        where, group = groups.pop()
        for name in group:
            seen += 1
            path = f"{where}/{name}"
            if seen > MAX_MEMBERS or not isinstance(group.get(name, getlink=True), h5py.HardLink):
                raise errors.ModelRefused(
                    f"{path} of the HDF5 file is a link, or there are too many", remedy=DISTRUST
                )
            found = group[name]
            if isinstance(found, h5py.Dataset):
                yield path, found
            elif len(path) < 4096:
                groups.append((path, found))


def _json(data: bytes) -> Any:
    if len(data) > MAX_CONFIG_BYTES:
        raise errors.ModelRefused(
            f"the model's configuration holds {len(data)} bytes", remedy=DISTRUST
        )
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise errors.ModelRefused(
            f"the model's configuration is no JSON: {first_line(error)}",
            remedy="save the model again with model.save('model.keras')",
        ) from error


def check_config(config: Any, *, allow_code: bool) -> None:
    """Refuse a Keras configuration that names code, files or classes that are not Keras' own.

    ``allow_code`` leaves all of it to Keras, for a file that the user trusts as a program.
    """
    if allow_code:
        return
    custom = set()
    for entry in _entries(config):
        name = str(entry["class_name"])
        if name in _CODE:
            raise errors.ModelRefused(
                f"the layer {_title(entry)} {_CODE[name]}",
                remedy=f"{FACTORY}, or allow it with --allow-pickle if you trust the file",
            )
        _refuse_files(entry)
        if not _is_keras(entry):
            custom.add(_title(entry))
    if custom:
        raise errors.ModelRefused(
            f"Unknown layer: {', '.join(sorted(custom)[:5])}; Keras itself has no such class",
            remedy=f"{FACTORY}, or --allow-pickle where the class can be imported",
        )


def _entries(config: Any) -> Iterator[dict[str, Any]]:
    """Every object of a configuration that names a class, at any depth."""
    waiting = [config]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if "class_name" in value:
                yield value
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def _title(entry: dict[str, Any]) -> str:
    inner = entry.get("config")
    name = inner.get("name") if isinstance(inner, dict) else None
    return str(entry["class_name"])[:80] + (f" ({str(name)[:80]})" if name else "")


def _is_keras(entry: dict[str, Any]) -> bool:
    name, module = str(entry["class_name"]), entry.get("module")
    registered = entry.get("registered_name")
    if name in _VALUES:
        return True
    if name == "function":
        # keras.models has load_model beside its classes.
        home = module if isinstance(module, str) else ""
        return home == "builtins" or (_computing(home) and home != "keras.models")
    if isinstance(module, str):
        return _computing(module) and registered in (None, "", name)
    return ">" not in name and _in_keras(name)  # Keras 2 wrote no module


def _computing(module: str) -> bool:
    return _COMPUTING.fullmatch(module) is not None


def _in_keras(name: str) -> bool:
    import keras

    homes = [keras.layers, keras.models, keras.initializers, keras.regularizers]
    homes += [keras.constraints, keras.dtype_policies, keras.activations]
    # "Policy" is what Keras 2 called a DTypePolicy; "Functional" is not exported.
    return name in ("Functional", "Policy") or any(hasattr(home, name) for home in homes)


def _refuse_files(entry: dict[str, Any]) -> None:
    """A vocabulary given as a path is a file that loading reads (CVE-2025-12058)."""
    inner = entry.get("config")
    if isinstance(inner, dict) and isinstance(inner.get("vocabulary"), str):
        raise errors.ModelRefused(
            f"the layer {_title(entry)} reads its vocabulary from the file {inner['vocabulary']!r}",
            remedy="build the layer with the vocabulary as a list",
        )


# SavedModels


def check_saved_model(path: Path) -> tuple[str, ...]:
    """The tags of a SavedModel whose operators stay inside it; ``path`` is its saved_model.pb.

    Raises :class:`errors.ModelRefused` naming the operators that do not.
    """
    from google.protobuf.message import DecodeError
    from tensorflow.core.protobuf import saved_model_pb2

    refuse_large([path, *(each for each in path.parent.glob("variables/*") if each.is_file())])
    model = saved_model_pb2.SavedModel()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise errors.ModelRefused(
            f"{path.name} is no SavedModel, or a truncated one",
            remedy="save it again with model.export(folder) or tf.saved_model.save",
        ) from error
    if not model.meta_graphs or not any(m.object_graph_def.nodes for m in model.meta_graphs):
        raise errors.ModelRefused(
            f"{path.name} is a frozen graph or a TensorFlow 1 model, which loads as a session",
            remedy=f"save it again with tf.saved_model.save of TensorFlow 2, or {FACTORY}",
        )
    for meta in model.meta_graphs:
        _refuse_operators(meta)
    if len(model.meta_graphs) > 1:
        return ("serve",)
    return tuple(model.meta_graphs[0].meta_info_def.tags)


def _refuse_operators(meta: Any) -> None:
    functions = {f.signature.name: list(f.node_def) for f in meta.graph_def.library.function}
    _refuse_outside([*meta.graph_def.node, *(node for each in functions.values() for node in each)])
    # Every SavedModel has two functions that save and restore its checkpoint. They hang on the
    # main graph alone, which TensorFlow 2 does not run.
    called = {
        name for nodes in functions.values() for node in nodes for name in _function_names(node)
    }
    for name in sorted(called | _exposed(meta.object_graph_def)):
        _refuse_matching(functions.get(name, ()), _CHECKPOINT)


def _exposed(graph: Any) -> set[str]:
    """Functions that loading makes callable, or calls itself to make tables and the like."""
    found = set(graph.concrete_functions)
    for node in graph.nodes:
        found |= set(node.function.concrete_functions)
        found.add(node.bare_concrete_function.concrete_function_name)
    return found


def _function_names(node: Any) -> list[str]:
    """Functions that a NodeDef calls, by any of its attributes or as its operator."""
    found = [node.op]
    for value in node.attr.values():
        found += [value.func.name, *(each.name for each in value.list.func)]
    return found


def _refuse_outside(nodes: list[Any]) -> None:
    """Refuse NodeDefs that read or write files, call Python or talk to other processes."""
    _refuse_matching(nodes, _OUTSIDE)
    for node in nodes:
        if node.op == "PrintV2" and node.attr["output_stream"].s.startswith(b"file"):
            _refuse("PrintV2 into a file", node.name)


def _refuse_matching(nodes: Any, pattern: re.Pattern[str]) -> None:
    for node in nodes:
        if pattern.fullmatch(node.op):
            _refuse(node.op, node.name)


def _refuse(what: str, node: str) -> None:
    raise errors.ModelRefused(
        f"the SavedModel holds the operator {what} (node {node[:80]!r}), which reaches outside it",
        remedy=f"save a signature without it; if the file is not yours, {DISTRUST}",
    )
