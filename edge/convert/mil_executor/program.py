"""Read a saved ``.mlpackage`` as the MIL program that it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge import errors
from edge.convert import coremltools_library


def load(package: Path) -> Any:
    """The program of ``package``; :class:`errors.ModelRefused` where it is no ML Program."""
    ct = coremltools_library.module()
    from coremltools.converters.mil.frontend.milproto.load import load as read

    weights = package / "Data" / "com.apple.CoreML" / "weights"
    try:
        with coremltools_library.quiet():
            spec = ct.utils.load_spec(str(package))
            if spec.WhichOneof("Type") != "mlProgram":
                raise errors.ModelRefused(
                    f"{package.name} is no ML Program but a {spec.WhichOneof('Type')}"
                )
            return read(spec, spec.specificationVersion, str(weights))
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        reason = " ".join(str(error).split())[:300]
        raise errors.ModelRefused(f"{package.name} cannot be read: {reason}") from error
