"""OpenVINO itself, as steps use it: the very release of the target, silent, with clear refusals.

Called inside steps only, in a process of its own.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

DEVICE = "CPU"
IR = "model.xml"
MAX_REASON = 400
# Lines of OpenVINO's messages that say where in its own code something was noticed.
_PLACE = re.compile(
    r"Exception from |Check 'false' failed|FrontEnd API failed with|Summary:|While validating|"
    r"-- Conversion is failed|Model wasn't fully converted|Exception while Loading Network"
)
_INNER = re.compile(r"^.*?Check '.*' failed at [^:]+:\d+:\s*")


def module(release: str) -> Any:
    """The module ``openvino``, which must be ``release``: another one makes and runs other IR.

    Raises :class:`errors.ToolMissing`. It reports nothing to its maker: from 2023 on its import
    alone sends an event through ``openvino_telemetry``, unless that cannot be imported.
    """
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    remedy = f"pip install openvino=={release}"
    try:
        import openvino
    except ImportError as error:
        raise errors.ToolMissing("openvino is not installed", remedy=remedy) from error
    has = installed(openvino)
    if has != release:
        raise errors.ToolMissing(
            f"the target is for openvino {release}, and {has} is installed", remedy=remedy
        )
    return openvino


def installed(openvino: Any) -> str:
    """The release of the module, without the build: ``2026.4.1``."""
    return str(openvino.__version__).partition("-")[0]


def reason(error: Exception) -> str:
    """What OpenVINO says, in one line without the places in its own code, bounded.

    Of a conversion that failed: the operators, each with what was wrong.
    """
    lines = [line.strip() for line in str(error).splitlines()]
    told = [_INNER.sub("", line) for line in lines if line and not _PLACE.match(line)]
    text = "; ".join(line for line in dict.fromkeys(told) if line) or " ".join(lines)
    text = text.replace(" with a message:;", ":").removesuffix(";").strip()
    return text[:MAX_REASON] or type(error).__name__


@contextlib.contextmanager
def refused(doing: str, release: str) -> Iterator[None]:
    """What OpenVINO raises as :class:`errors.ModelRefused`, with its own reason."""
    try:
        yield
    except errors.EdgeError:
        raise
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        raise errors.ModelRefused(
            f"openvino {release} {doing}: {reason(error)}",
            remedy='bind the dimensions (dims = "bound"), or use a target of ONNX Runtime',
        ) from error


def read(openvino: Any, path: Path, release: str) -> Any:
    """The ``openvino.Model`` in an ONNX or IR file; :class:`errors.ModelRefused`."""
    with refused("cannot read the model", release):
        return openvino.Core().read_model(path)


def simplify(model: Any) -> None:
    """Apply OpenVINO's own common transformations, in place, as its model converter does.

    Reading an ONNX file does not: an LSTM has 26 operations then, and 5 after. They look at no
    CPU, so the bytes are the same on every host.
    """
    from openvino._offline_transformations import apply_moc_transformations

    apply_moc_transformations(model, cf=True)


def save(openvino: Any, model: Any, out: Path, *, half: bool = False) -> None:
    """``model.xml`` and ``model.bin`` in ``out``; ``half``: fp32 weights as fp16."""
    openvino.save_model(model, out / IR, compress_to_fp16=half)


def figures(model: Any, folder: Path) -> dict[str, Any]:
    """Facts of an IR in ``folder``: ``operations`` (no constants), ``bytes`` (both files)."""
    plain = {"Constant", "Parameter", "Result"}
    count = sum(1 for each in model.get_ops() if each.get_type_name() not in plain)
    size = sum((folder / name).stat().st_size for name in (IR, "model.bin"))
    return {"operations": count, "bytes": size}


def compiled(openvino: Any, model: Any, properties: Mapping[str, str], release: str) -> Any:
    """The model, compiled for the CPU with one thread; :class:`errors.ModelRefused`."""
    with refused("cannot compile the model", release):
        given = {**properties, "INFERENCE_NUM_THREADS": "1"}
        return openvino.Core().compile_model(model, DEVICE, given)


def infer(ready: Any, case: Mapping[str, Array], names: list[str]) -> dict[str, Array]:
    """Outputs under ``names``, which must be those of the compiled model, in its order.

    Raises :class:`errors.RunFailed` with OpenVINO's own words, and where a name is another one.
    """
    import numpy as np

    known = [port.get_names() for port in ready.inputs]
    if unknown := [name for name in case if not any(name in each for each in known)]:
        raise errors.RunFailed(f"the model has no input {', '.join(unknown)}")
    found = [port.get_names() for port in ready.outputs]
    fits = len(found) == len(names) and all(n in f for n, f in zip(names, found, strict=True))
    if not fits:
        listed = "; ".join(", ".join(sorted(each)) for each in found)
        raise errors.RunFailed(f"the model has the outputs {listed}, not {', '.join(names)}")
    try:
        values = ready.create_infer_request().infer(dict(case))
    except (RuntimeError, ValueError, TypeError) as error:
        raise errors.RunFailed(f"the model does not run on its samples: {reason(error)}") from error
    # Copies: the request's memory goes with it.
    return {name: np.array(values[place]) for place, name in enumerate(names)}
