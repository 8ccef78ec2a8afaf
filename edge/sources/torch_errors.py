"""What torch's exporters raise, in words: what, and at which line of the user's own code."""

from __future__ import annotations

import re
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge import errors

if TYPE_CHECKING:
    from edge.sources.torch_ports import Input

_FRAME = re.compile(r'File "(?P<file>[^"\n]+)", line (?P<line>\d+)[^\n]*(?:\n\s+(?P<code>[^\n]+))?')
_OPERATOR = re.compile(r"OpOverload\(op='([^']+)'")
_STATIC = re.compile(
    r"static shape of (?P<size>\d+) for dimension inputs\[[^\]]*\](?:\[(?P<index>\d+)\])?"
    r"\.shape\[(?P<axis>\d+)\]"
)
_LEGACY_OPERATOR = re.compile(r"(?:operator|operator:) '?((?:aten|prim|quantized|\w+)::\w+)")
_DATA = re.compile(r"data-dependent|DataDependent|is not a constant|Dynamic control flow")
LIMIT = 300  # characters of a library's own message
# Frames of these folders are not the user's.
_LIBRARIES = (Path(__file__).resolve().parent.parent, Path(sysconfig.get_path("stdlib")))


def excerpt(error: BaseException, limit: int = LIMIT) -> str:
    """The first paragraph of a message on one line, bounded."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip()
    line = " ".join(text.partition("\n\n")[0].split())
    return line if len(line) <= limit else line[: limit - 3] + "..."


def place(text: str) -> str:
    """`` at FILE:LINE (`code`)`` of the innermost frame of the user's own; empty when none."""
    frames = [match for match in _FRAME.finditer(text) if _is_users(match["file"])]
    if not frames:
        return ""
    last = frames[-1]
    code = f" (`{last['code'].strip()[:100]}`)" if last["code"] else ""
    return f" at {_short(last['file'])}:{last['line']}{code}"


def _is_users(file: str) -> bool:
    path = Path(file)
    library = {"site-packages", "dist-packages"} & set(path.parts)
    inside = any(folder in path.parents for folder in _LIBRARIES)
    return not library and not inside and not file.startswith("<")


def _short(file: str) -> str:
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file[-200:]


def chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, outermost first."""
    found: BaseException | None = error
    while found is not None:
        yield found
        found = found.__cause__


def explain(error: BaseException, inputs: Sequence[Input]) -> errors.ModelRefused:
    """The refusal for what an exporter raised, in under 1 kB."""
    causes = list(chain(error))
    text = "\n".join(str(each) for each in causes)
    if static := _STATIC.search(text):
        return _specialised(static, inputs)
    if operator := _OPERATOR.search(text) or _LEGACY_OPERATOR.search(text):
        return _unsupported(operator[1], causes)
    where = place(text) or _line_of(causes)
    if _DATA.search(text):
        return errors.ModelRefused(
            f"the model's control flow depends on its data{where}; ONNX holds one graph",
            remedy="use torch.where, or torch.cond with two functions, for what depends on values",
        )
    root = causes[-1]
    return errors.ModelRefused(
        f"torch.onnx.export cannot export the model{where}: {type(root).__name__}: {excerpt(root)}",
        remedy="change the line, or keep what cannot be exported outside of the model",
    )


def _specialised(static: re.Match[str], inputs: Sequence[Input]) -> errors.ModelRefused:
    index, axis = int(static["index"] or 0), int(static["axis"])
    name = inputs[index].name if index < len(inputs) else f"number {index}"
    symbol = inputs[index].shape[axis] if index < len(inputs) else ""
    return specialised(name, axis, str(symbol), static["size"])


def specialised(
    name: str, axis: int, symbol: str, size: str, where: str = ""
) -> errors.ModelRefused:
    """The refusal for a dimension that was to vary and does not."""
    return errors.ModelRefused(
        f"dimension {axis} of the input {name!r} was to be free ({symbol}), but the model works "
        f"for {size} only{where}",
        remedy=f"write the size {size} in the shape of {name}, or make the model independent of it "
        "(x.shape[0] or -1 instead of a number; torch.export with dynamic_shapes)",
    )


def _unsupported(operator: str, causes: Sequence[BaseException]) -> errors.ModelRefused:
    name = operator.replace("::", ".", 1)
    own = name.partition(".")[0] not in ("aten", "prim", "torch", "prims", "quantized")
    kind = "custom operator" if own else "operator"
    return errors.ModelRefused(
        f"the {kind} {name} has no ONNX form{_line_of(causes)}",
        remedy="write it with operators that ONNX has, or compute it outside of the model",
    )


def _line_of(causes: Sequence[BaseException]) -> str:
    """The user's line: of the graph's node that was translated, else of the frames themselves."""
    for cause in reversed(causes):
        for frame in _frames(cause):
            node = frame.f_locals.get("node")
            trace = getattr(node, "meta", {}).get("stack_trace") if hasattr(node, "meta") else None
            if trace and (found := place(str(trace))):
                return found
    for cause in reversed(causes):
        if found := place("".join(traceback.format_tb(cause.__traceback__))):
            return found
    return ""


def _frames(error: BaseException) -> Iterator[Any]:
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next
