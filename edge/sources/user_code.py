"""User code that makes a model: imported, called, and its failures said in one line.

Steps of every framework call it, also in an environment of its own: nothing but Python's own
libraries may be imported at the top of this file.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import os
import random
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edge import errors
from edge.sources import reads

MAX_MESSAGE = 500
# What the type of a model says, looked up only where its module is loaded already.
_CLASSES = (
    ("torch", "torch.nn", "Module"),
    ("tensorflow", "keras", "Model"),
    ("tensorflow", "tensorflow", "Module"),
    ("sklearn", "sklearn.base", "BaseEstimator"),
    ("sklearn", "xgboost.core", "Booster"),
    ("sklearn", "lightgbm.basic", "Booster"),
    ("onnx", "onnx", "ModelProto"),
)
_WANTED = (
    "return a torch.nn.Module or (module, example inputs), a Keras model or tf.Module, a "
    "scikit-learn, XGBoost or LightGBM estimator, or an onnx.ModelProto"
)
_EXTRAS = {
    "torch": "torch", "onnxscript": "torch", "tensorflow": "tensorflow", "keras": "tensorflow",
    "tf2onnx": "tensorflow", "sklearn": "sklearn", "skops": "sklearn", "lightgbm": "sklearn",
    "xgboost": "sklearn",
}  # fmt: skip


# ----------------------------------------------------------------------------------- names
def parse(source: str) -> tuple[str, str]:
    """Module and callable of ``package.module:callable``, both dotted names.

    Raises :class:`errors.UsageError` for everything else.
    """
    module, colon, name = source.partition(":")
    parts = [*module.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts) or "__init__" in parts:
        raise errors.UsageError(
            f"the source {source[:200]!r} is not of the form package.module:callable",
            remedy="name a module of the project and the function in it that returns the model, "
            "as in models.digits:make",
        )
    return module, name


def project_folder(source: Path, factory: str) -> Path:
    """The folder from which the factory's module is imported.

    Raises :class:`errors.UsageError` when ``source`` cannot be the file of that module.
    """
    parts = parse(factory)[0].split(".")
    package = source.name == "__init__.py"
    folder = source.absolute().parents[len(parts) - (0 if package else 1)]
    module = folder.joinpath(*parts)
    if source.absolute() != (module / source.name if package else module.with_suffix(".py")):
        raise errors.UsageError(f"{source} is not the file of the module in {factory}")
    return folder


# --------------------------------------------------------------------------------- the call
def make(source: Path, factory: str) -> Any:
    """What the factory returns; see :func:`call`. None and coroutines are no model."""
    made = call(source, factory)
    if made is None:
        raise refused(factory, "None")
    return made


def call(source: Path, factory: str, *arguments: Any) -> Any:
    """What the user's function returns, called in the project's folder.

    Random generators are seeded. ``source`` is the module's file. Raises
    :class:`errors.ModelRefused` for whatever the user's code raises, with its place, and
    :class:`errors.ToolMissing` for a package that is not installed.
    """
    module, name = parse(factory)
    root = project_folder(source, factory)
    with contextlib.chdir(root):  # where edge was started is in no key
        reads.import_plainly(root)
        _seed("numpy")
        with _user_code(root, factory):
            loaded = importlib.import_module(module)
        _came_from(source, loaded, module)
        _seed("torch", "keras", "tensorflow")
        with _user_code(root, factory):
            made = _attribute(loaded, name, factory, arguments)(*arguments)
    if inspect.isawaitable(made) or inspect.isgenerator(made):
        made.close() if hasattr(made, "close") else None
        raise refused(factory, "a coroutine or generator")
    return made


def refused(factory: str, what: str) -> errors.ModelRefused:
    """The error for a factory that returned something that is no model."""
    return errors.ModelRefused(f"the source {factory} returned {what}, no model", remedy=_WANTED)


def _seed(*libraries: str) -> None:
    """The same model in every process, also where weights are drawn; only what is loaded."""
    random.seed(0)
    for library in libraries:
        if library == "numpy" and importlib.util.find_spec("numpy"):
            importlib.import_module("numpy").random.seed(0)
        elif library in sys.modules and library == "torch":
            sys.modules["torch"].manual_seed(0)
        elif library in sys.modules and library == "keras":
            sys.modules["keras"].utils.set_random_seed(0)
        elif library in sys.modules:
            sys.modules["tensorflow"].random.set_seed(0)


def _came_from(source: Path, loaded: Any, module: str) -> None:
    path = getattr(loaded, "__file__", None)
    if path is None or not os.path.samefile(path, source):  # noqa: PTH121 - may be no path
        raise errors.UsageError(
            f"the module {module} is not {source}: Python imports {path or 'a built-in one'}",
            remedy="rename the module: its name is taken",
        )


def _attribute(loaded: Any, name: str, factory: str, arguments: tuple[Any, ...]) -> Any:
    found = loaded
    for part in name.split("."):
        if not hasattr(found, part):
            close = difflib.get_close_matches(part, dir(found), n=1)
            raise errors.UsageError(
                f"the source {factory}: there is no {part} in {getattr(found, '__name__', name)}",
                remedy=f"did you mean {close[0]!r}?" if close else "name a function of the module",
            )
        found = getattr(found, part)
    if not callable(found) or (framework_of(found) and not isinstance(found, type)):
        raise errors.ModelRefused(
            f"the source {factory} is no function, but {kind_of(found)}",
            remedy="name a function without arguments that returns the model",
        )
    _takes(found, factory, arguments)
    return found


def _takes(called: Any, factory: str, arguments: tuple[Any, ...]) -> None:
    try:
        signature = inspect.signature(called)
    except (ValueError, TypeError):  # some built-in ones have none
        return
    try:
        signature.bind(*arguments)
    except TypeError as error:
        how = "with the model's run(inputs)" if arguments else "without arguments"
        raise errors.ModelRefused(
            f"the source {factory} is called {how}: {error}",
            remedy="give its other parameters defaults, or name a function that fills them in",
        ) from error


# -------------------------------------------------------------------- what user code raises
@contextlib.contextmanager
def _user_code(root: Path, factory: str) -> Iterator[None]:
    try:
        yield
    except errors.EdgeError:
        raise
    except ModuleNotFoundError as error:
        raise _missing(error, root, factory) from error
    except SystemExit as error:
        raise errors.ModelRefused(
            f"the source {factory} ended the process ({_place(error, root)}: exit {error.code})",
            remedy='keep what a script does below: if __name__ == "__main__":',
        ) from error
    except Exception as error:
        raise errors.ModelRefused(
            f"the source {factory} failed at {_place(error, root)}: {_said(error)}",
            remedy="call the function by itself in Python until it returns the model",
        ) from error


def _missing(error: ModuleNotFoundError, root: Path, factory: str) -> errors.EdgeError:
    name = error.name or str(error)
    top = name.partition(".")[0]
    message = f"the source {factory} imports {name} ({_place(error, root)}), which is not there"
    if (root / top).is_dir() or (root / f"{top}.py").is_file():
        return errors.ModelRefused(message, remedy=f"correct the import, or add {name}")
    package = f"'edgewright[{_EXTRAS[top]}]'" if top in _EXTRAS else top
    return errors.ToolMissing(
        message, remedy=f"pip install {package}, or add it to the model's environment if it has one"
    )


def _place(error: BaseException, root: Path) -> str:
    """``file.py:12`` within the project: the last of its lines that the error came through."""
    folders = (str(root), str(root.resolve()))
    places = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno or 0))
    own = [
        (path, line)
        for path, line in places
        if reads.below(path, folders) and not reads.below(path, reads.installed_folders())
    ]
    if not own:
        return "its import" if not places else f"{Path(places[-1][0]).name}:{places[-1][1]}"
    path, line = own[-1]
    folder = folders[0] if reads.below(path, folders[:1]) else folders[1]
    return f"{Path(path).relative_to(folder).as_posix()}:{line}"


def _said(error: Exception) -> str:
    """Type and message in one line."""
    text = error.msg if isinstance(error, SyntaxError) else _text(error)
    line = " ".join(f"{type(error).__name__}: {text}".split())
    return line if len(line) <= MAX_MESSAGE else line[:MAX_MESSAGE] + "..."


def _text(error: Exception) -> str:
    whole = "".join(traceback.TracebackException(type(error), error, None).format_exception_only())
    return whole.partition(": ")[2]


def kind_of(value: Any) -> str:
    """The full name of a value's type."""
    return f"{type(value).__module__}.{type(value).__qualname__}"


# ------------------------------------------------------------------------------- frameworks
def framework_of(value: Any) -> str:
    """``torch``, ``tensorflow``, ``sklearn``, ``onnx``; empty for what is no model.

    For PyTorch also ``(module, example inputs)``.
    """
    first = value[0] if isinstance(value, tuple) and value else None
    for framework, module, name in _CLASSES:
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type):
            wanted = (value, first) if framework == "torch" else (value,)
            if any(isinstance(each, kind) for each in wanted):
                return framework
    return ""
