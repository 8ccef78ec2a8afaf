"""Fill an app template: a Gradle project, a Swift package, a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edge.convert.render import render
from edge.step import Facts, step


@step(version=1, tools=("jinja2",), isolated=False)
def render_app(out: Path, *, template: Path, variables: dict[str, Any]) -> Facts:
    """All files of the template folder, filled with ``variables``. No facts.

    The input's hash is over the whole folder (``edge.convert.render.folder_digest``).
    """
    render(template, out, variables)
    return {}
