"""NNCF as steps use it: quiet, and seeded."""

from __future__ import annotations

import logging
from typing import Any

from edge import errors


def quiet_nncf() -> Any:
    """The module ``nncf``, its log at errors.

    After :func:`edge.convert.openvino_library.module`, which keeps it from reporting its use.
    Raises :class:`errors.ToolMissing`.
    """
    import numpy as np

    try:
        import nncf
    except ImportError as error:
        raise errors.ToolMissing(
            "nncf is not installed", remedy="pip install 'edgewright[openvino]'"
        ) from error
    nncf.set_log_level(logging.ERROR)
    np.random.seed(0)
    return nncf
