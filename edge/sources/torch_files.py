"""PyTorch's files: what a file is, and what loading it may do, found without loading it.

What torch 2.13 does with a file, read in its source, and what is relied on here:

1. ``torch.load(weights_only=False)`` runs the pickle, which is a program. It is called for a
   pickled module alone, and only with ``allow_pickle``. What a pickle names is read with
   ``pickletools``, which executes nothing.
2. ``torch.export.load`` is no safe reader: its docstring says "never load data from an untrusted
   source". It unpickles ``data/sample_inputs`` (``weights_only=True``, and again without when
   that fails), pickled weights, constants and opaque objects; it loads ``data/aotinductor``
   libraries; it evaluates symbolic sizes (``sympy.sympify``, which is ``eval``) and guards
   (``exec``); it resolves a node's target as any attribute of ``torch``, ``math`` and
   ``operator``; an ``__enum__`` in a tree's context imports a module. So the archive is read
   first by :func:`refuse_unsafe_program`: pickles must load with ``weights_only=True``, libraries
   and opaque objects are refused, expressions may be arithmetic only, targets operators only.
3. ``torch.jit.load`` never starts the Python unpickler: its C++ reader knows tensors and
   TorchScript classes alone. The file is a program in TorchScript all the same, and torch's
   SECURITY.md says that models are programs. Operators that read or write files are refused;
   nothing else keeps a TorchScript file from running for ever, for instance.

``allow_pickle`` says that the file is trusted, and leaves 2 and 3 out.
"""

from __future__ import annotations

import ast
import io
import json
import pickletools
import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from edge import errors
from edge.model import FORMAT_LIMIT_BYTES

MAX_MEMBERS = 100_000
MAX_TEXT = 1 << 28  # bytes of a graph, of TorchScript's code or of a pickle's program
FACTORY = (
    'write a factory, a function without arguments that returns the nn.Module, and name it: '
    'source = "package.module:callable"'
)  # fmt: skip
# What torch.save writes for a state_dict, and nothing else.
WEIGHTS_ONLY = re.compile(
    r"collections OrderedDict|torch\._utils _rebuild_\w+|torch (\w+Storage|Size|\w*float\w*|"
    r"\w*int\w*|bool|complex\d+)|torch\.serialization _get_layout|torch\._tensor _rebuild_\w+"
)
_LEGACY_MAGIC = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."  # torch.serialization.MAGIC_NUMBER
_FILE_OPERATORS = re.compile(rb"\b(?:torch|aten)\.(?:save|from_file)\b")
_TARGET = re.compile(
    r"torch\.ops\.(?!load_library\b|loaded_libraries\b|import_module\b)"
    r"[A-Za-z]\w*(\.(?!__)\w+){1,2}"
    r"|torch\.sym_\w+|torch\._sym_\w+|math\.[a-z]\w*"
    r"|_operator\.(?!attrgetter|methodcaller|call)[a-z]\w*"
)
_FILE_TARGETS = re.compile(r"torch\.ops\.aten\.(from_file|save)\b")
_NAMES = re.compile(r"[A-Z]\w*|z?[suf]{1,2}\d+|oo|int_oo|true|false|floor|ceiling|L|size|stride")


@dataclass(frozen=True)
class Kind:
    """``name``: program, torchscript, module, weights, old_program. ``what`` the pickle names."""

    name: str
    what: str = ""


def recognise(path: Path) -> Kind:
    """What ``path`` is; nothing of it is executed.

    Raises :class:`errors.ModelRefused` for anything that is no PyTorch file, or too large.
    """
    size = path.stat().st_size
    if size > FORMAT_LIMIT_BYTES:
        raise errors.ModelRefused(
            f"{path.name} holds {size} bytes; one ONNX file holds less than 2 GB",
            remedy="use a smaller model or precision",
        )
    if zipfile.is_zipfile(path):
        return _archive_kind(path)
    with path.open("rb") as stream:
        head = stream.read(MAX_TEXT)
    if head.startswith(_LEGACY_MAGIC):
        return _pickle_kind(head)
    raise errors.ModelRefused(
        f"{path.name} is no file of PyTorch's (exported program, TorchScript), or a truncated one",
        remedy=f"torch.export.save(program, 'model.pt2'), or {FACTORY}",
    )


def _archive_kind(path: Path) -> Kind:
    with _opened(path) as archive:
        names = set(members(archive))
        if "archive_format" in names and archive.read(_full(archive, "archive_format")) == b"pt2":
            return Kind("program")
        if "constants.pkl" in names and "data.pkl" in names:
            return Kind("torchscript")
        if "data.pkl" in names:
            return _pickle_kind(bounded(archive, "data.pkl"))
        with zipfile.ZipFile(path) as plain:
            if "serialized_exported_program.json" in plain.namelist():
                return Kind("old_program")
    raise errors.ModelRefused(
        f"{path.name} is a zip file, but no exported program and no TorchScript",
        remedy=f"torch.export.save(program, 'model.pt2'), or {FACTORY}",
    )


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise errors.ModelRefused(f"{path.name} is a damaged zip file: {error}") from error


def members(archive: zipfile.ZipFile) -> list[str]:
    """Names in the archive without their common root; odd ones are refused.

    torch's own reader and Python's must see the same files: no name twice, one root.
    """
    names = [entry.filename for entry in archive.infolist()]
    roots = {name.partition("/")[0] for name in names}
    parts = {part for name in names for part in PurePosixPath(name).parts}
    if len(names) > MAX_MEMBERS or len(set(names)) != len(names) or ".." in parts:
        raise errors.ModelRefused("the archive's list of files is damaged, or made to mislead")
    return [name.partition("/")[2] for name in names] if len(roots) == 1 else names


def _full(archive: zipfile.ZipFile, name: str) -> str:
    root = archive.infolist()[0].filename.partition("/")[0]
    return f"{root}/{name}"


def bounded(archive: zipfile.ZipFile, name: str, limit: int = MAX_TEXT) -> bytes:
    """The content of a member; :class:`errors.ModelRefused` above ``limit`` bytes."""
    full = _full(archive, name)
    try:
        with archive.open(full) as stream:
            content = stream.read(limit + 1)
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
        raise errors.ModelRefused(f"{name} in the archive is damaged: {error}") from error
    if len(content) > limit:
        raise errors.ModelRefused(f"{name} in the archive holds more than {limit} bytes")
    return content


def _pickle_kind(data: bytes) -> Kind:
    names = sorted(set(pickled_names(data)))
    odd = [name for name in names if not WEIGHTS_ONLY.fullmatch(name)]
    own = [
        name for name in odd if not re.match(r"(__builtin__|builtins|collections|torch)\b", name)
    ]
    return Kind("module", (own or odd)[0].replace(" ", ".")) if odd else Kind("weights")


def pickled_names(data: bytes) -> Iterator[str]:
    """``module name`` of everything that the pickles in ``data`` would import; none is run.

    A legacy file is a row of pickles (magic number, protocol, system, object, keys).
    """
    stream = io.BytesIO(data)
    for _ in range(5):
        recent: list[str] = []
        try:
            for opcode, argument, _position in pickletools.genops(stream):
                if opcode.name == "GLOBAL":
                    yield str(argument)
                elif opcode.name == "STACK_GLOBAL":
                    # Names come from the memo as well; what cannot be told is no plain weight.
                    yield " ".join(recent[-2:]) or "unknown unknown"
                elif isinstance(argument, str):
                    recent.append(argument)
        except (ValueError, IndexError, EOFError, UnicodeDecodeError):
            return  # the storages follow the pickles


def refuse_pickle(kind: Kind, path: Path) -> errors.ModelRefused:
    """The refusal for a pickled module, a state_dict or an old program."""
    if kind.name == "weights":
        return errors.ModelRefused(
            f"{path.name} holds weights only (a state_dict), not the model that uses them",
            remedy=f"{FACTORY}; it builds the module, loads these weights and calls eval()",
        )
    if kind.name == "old_program":
        return errors.ModelRefused(
            f"{path.name} is an exported program of torch 2.7 or older",
            remedy="export it again: torch.export.save(torch.export.export(...), 'model.pt2')",
        )
    return errors.ModelRefused(
        f"{path.name} is a pickled object ({kind.what[:100]}): opening it would run code from it",
        remedy=f"{FACTORY}; or say --allow-pickle for a file that you trust",
    )


def refuse_unsafe_script(path: Path) -> None:
    """Refuse TorchScript that reads or writes files by itself."""
    with _opened(path) as archive:
        for name in members(archive):
            if not (name.startswith("code/") and name.endswith(".py")):
                continue
            if found := _FILE_OPERATORS.search(bounded(archive, name)):
                raise _unsafe(path, f"its code calls {found.group().decode()}")


def refuse_unsafe_program(path: Path) -> None:
    """Refuse an exported program whose loading or running could do more than compute."""
    with _opened(path) as archive:
        for name in members(archive):
            if "aotinductor/" in name or PurePosixPath(name).suffix in (".so", ".o", ".py"):
                raise _unsafe(path, f"it brings compiled code ({name[:100]})")
            if re.search(r"/(custom_obj|opaque_obj)_\w*", name):
                raise _unsafe(path, f"it brings a pickled object ({name[:100]})")
            if name.startswith("data/sample_inputs/") or name.endswith(".pt"):
                _harmless_pickle(path, name, bounded(archive, name, FORMAT_LIMIT_BYTES))
            elif name.endswith("_config.json"):
                _harmless_payloads(path, archive, name)
            elif name.endswith(".json"):
                _harmless_graph(path, bounded(archive, name))


def _harmless_payloads(path: Path, archive: zipfile.ZipFile, name: str) -> None:
    listed = _json(path, bounded(archive, name)).get("config", {})
    folder = name.rpartition("/")[0]
    for entry in listed.values():
        inner = f"{folder}/{entry.get('path_name', '')}"
        if entry.get("use_pickle"):
            _harmless_pickle(path, inner, bounded(archive, inner, FORMAT_LIMIT_BYTES))


def _harmless_pickle(path: Path, name: str, data: bytes) -> None:
    import pickle

    import torch

    if not data:
        return
    try:
        torch.load(io.BytesIO(data), weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError, KeyError) as error:
        raise _unsafe(path, f"{name[:100]} holds more than tensors") from error


def _json(path: Path, data: bytes) -> dict[str, Any]:
    try:
        loaded = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise errors.ModelRefused(f"{path.name} holds a damaged graph") from error
    return loaded if isinstance(loaded, dict) else {}


def _harmless_graph(path: Path, data: bytes) -> None:
    if b"__enum__" in data or b"default_factory_module" in data:
        raise _unsafe(path, "its inputs or outputs name a Python class")
    waiting: list[Any] = [_json(path, data)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting += value
        elif isinstance(value, dict):
            _harmless_entry(path, value)
            waiting += value.values()


def _harmless_entry(path: Path, entry: dict[str, Any]) -> None:
    target = entry.get("target")
    if isinstance(target, str) and "inputs" in entry and not _operator(target):
        raise _unsafe(path, f"its graph calls {target[:100]!r}, which is no operator")
    guards = entry.get("guards_code")
    texts = [*(guards if isinstance(guards, list) else []), entry.get("expr_str", "0")]
    for text in texts:
        if not arithmetic(str(text)):
            raise _unsafe(path, f"its sizes are computed by {str(text)[:100]!r}")


def _operator(target: str) -> bool:
    return bool(_TARGET.fullmatch(target)) and not _FILE_TARGETS.match(target)


def arithmetic(text: str) -> bool:
    """True for an expression of sizes: numbers, symbols, operators, known functions."""
    if len(text) > 10_000:
        return False
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    allowed = (
        ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Call, ast.keyword,
        ast.Constant, ast.Name, ast.Subscript, ast.Attribute, ast.operator, ast.unaryop,
        ast.boolop, ast.cmpop, ast.expr_context,
    )  # fmt: skip
    return all(isinstance(node, allowed) and _plain_name(node) for node in ast.walk(tree))


def _plain_name(node: ast.AST) -> bool:
    if isinstance(node, ast.Name):
        return bool(_NAMES.fullmatch(node.id))
    if isinstance(node, ast.Attribute):
        return node.attr in ("size", "stride", "storage_offset", "dim")
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return bool(re.fullmatch(r"\w+", node.value))  # sympy evaluates strings once more
    # A number to a power of a power never ends; sizes have no such thing.
    return not isinstance(node, ast.Pow)


def _unsafe(path: Path, why: str) -> errors.ModelRefused:
    return errors.ModelRefused(
        f"{path.name} could do more than compute when it is loaded or run: {why}",
        remedy=f"{FACTORY}; or say --allow-pickle for a file that you trust",
    )
