"""What coremltools and the frameworks say when they cannot convert a model, in one line."""

from __future__ import annotations

import contextlib
import re
import traceback

from edge import errors
from edge.sources.torch_errors import excerpt, place
from edge.sources.torch_loading import in_words

_FOLDERS = re.compile(r"(?<![\w.])/(?:[^/\s:'\"]+/)+")


def own_words() -> contextlib.AbstractContextManager[None]:
    """What a converter raises as :class:`errors.ModelRefused`, with the user's line."""
    return in_words(lambda error: errors.ModelRefused(told(error)))


def told(error: Exception) -> str:
    """The error's kind and first paragraph, and the innermost line of the user's own.

    Files without their folders: it goes into manifests.
    """
    where = place(str(error)) or place("".join(traceback.format_tb(error.__traceback__)))
    return _FOLDERS.sub("", f"{type(error).__name__}: {excerpt(error)}{where}")
