"""What coremltools and the frameworks say when they cannot convert a model, in one line."""

from __future__ import annotations

import contextlib
import io
import re
import traceback
from collections.abc import Iterator

from edge import errors
from edge.sources.torch_errors import excerpt, place
from edge.sources.torch_loading import quiet

_FOLDERS = re.compile(r"(?<![\w.])/(?:[^/\s:'\"]+/)+")


@contextlib.contextmanager
def own_words() -> Iterator[None]:
    """What a converter raises as :class:`errors.ModelRefused`, with the user's line.

    What it prints (progress bars, whole graphs) is kept back.
    """
    printed = io.StringIO()
    with quiet(), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            yield
        except errors.EdgeError:
            raise
        except Exception as error:  # the user's code runs in it, and asserts of the converters
            raise errors.ModelRefused(told(error)) from error


def told(error: Exception) -> str:
    """The error's kind and first paragraph, and the innermost line of the user's own.

    Files without their folders: it goes into manifests.
    """
    where = place(str(error)) or place("".join(traceback.format_tb(error.__traceback__)))
    return _FOLDERS.sub("", f"{type(error).__name__}: {excerpt(error)}{where}")
