"""coremltools, imported without its noise.

On import it prints eight lines about libcoremlpython (which only macOS has) and one for each of
torch, TensorFlow, scikit-learn and XGBoost that it was not tested with. None of it concerns
building a MIL program; warnings and errors of conversions stay.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from edge import errors

LOGGER = "coremltools"


def coremltools() -> Any:
    """The module ``coremltools``; :class:`errors.ToolMissing` names the extra."""
    # TensorFlow, which coremltools imports where it is installed, reports CPU features otherwise.
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    try:
        with quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import coremltools as ct
    except ImportError as error:
        raise errors.ToolMissing(
            f"coremltools does not import: {str(error).splitlines()[0]}",
            remedy="pip install 'edgewright[coreml]'",
        ) from error
    return ct


@contextmanager
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


def builder() -> Any:
    """``coremltools.converters.mil.Builder``."""
    coremltools()
    from coremltools.converters.mil import Builder

    return Builder
