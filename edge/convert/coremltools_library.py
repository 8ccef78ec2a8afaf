"""coremltools as steps use it: quiet, and without the frameworks whose models it could read.

Its import imports PyTorch, TensorFlow, scikit-learn and XGBoost where they are installed, for its
converters of their models: 4.6 s of CPU and 810 MB in each process, 0.5 s and 100 MB without.
Building MIL programs, packages, ``coremltools.optimize.coreml`` and the reference executor need
none of them.

It also prints eight lines about libcoremlpython (which only macOS has) and one for each framework
that it was not tested with; neither concerns a MIL program. It reports nothing to its maker.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from edge import errors

LOGGER = "coremltools"
# What coremltools 9.0 imports where it is there (coremltools/_deps/__init__.py).
FRAMEWORKS = {
    "torch": ("torch", "torchvision", "torchaudio", "torchao", "executorch", "transformers"),
    "tensorflow": ("tensorflow",),
    "": ("sklearn", "xgboost", "libsvm"),
}
READABLE = {"torch": "_HAS_TORCH", "tensorflow": "_HAS_TF_2"}  # what _deps says of them then


def module(*reads: str) -> Any:
    """The module ``coremltools``, able to convert models of ``reads`` (torch, tensorflow).

    What it can read is settled for the process where it is first imported: frameworks that are
    imported before it are among that, too. Raises :class:`errors.ToolMissing`.
    """
    unused = [name for kind, names in FRAMEWORKS.items() if kind not in reads for name in names]
    try:
        with quiet(), _absent(unused), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import coremltools as ct
            from coremltools import _deps
    except ImportError as error:
        raise errors.ToolMissing(
            f"coremltools does not import: {str(error).splitlines()[0]}",
            remedy="pip install 'edgewright[coreml]'",
        ) from error
    for kind in reads:
        if not getattr(_deps, READABLE[kind]):
            raise errors.ToolMissing(
                f"coremltools reads no models of {kind} in this process",
                remedy=f"pip install {kind}, and import coremltools for it before anything else",
            )
    return ct


@contextlib.contextmanager
def _absent(names: list[str]) -> Iterator[None]:
    """Those of these modules that are not imported yet cannot be within; after it they can."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: not to be imported
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def builder() -> Any:
    """``coremltools.converters.mil.Builder``."""
    module()
    from coremltools.converters.mil import Builder

    return Builder


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Coremltools' log at errors only, also while it is imported and sets its own level."""
    logger = logging.getLogger(LOGGER)
    logger.addFilter(_errors_only)
    try:
        yield
    finally:
        logger.removeFilter(_errors_only)


def _errors_only(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """As :func:`quiet`, and without its progress bars, which go to standard error."""
    with quiet(), contextlib.redirect_stderr(io.StringIO()):
        yield
