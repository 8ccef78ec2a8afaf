"""Projects of Python files, for tests of user code."""

from __future__ import annotations

from pathlib import Path


def write(folder: Path, **files: str) -> Path:
    """Python files of a project; ``_in_`` in a name is for a folder's end."""
    for name, text in files.items():
        path = folder / ("/".join(name.split("_in_")) + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
