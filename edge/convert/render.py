"""Fills template folders: Jinja2 files become the files of an app, a page or a package.

Files that end in ``.j2`` are rendered and lose the suffix; all others are copied byte for byte,
with their executable bit. Names of files and folders may hold ``{{variable}}``. What goes in may
come from a model file, so text passes through a filter of the language it lands in:

============================================  =================================================
``kotlin_string`` ``swift_string``            a whole string literal with its quotes, ASCII only
``json`` ``js_string``                        the same; also safe inside an HTML script element
``xml``                                       text or attribute value, ASCII only
``markdown``                                  one line of plain text
``double(none)`` ``integer``                  a number's literal; ``none`` stands for None
``plain`` ``application_id`` ``sha256``       the text itself, checked
============================================  =================================================
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from edge import errors

if TYPE_CHECKING:
    import jinja2

SUFFIX = ".j2"
MAX_TEMPLATE_BYTES = 1 << 20
_NAME_VARIABLE = re.compile(r"\{\{ *([A-Za-z_]\w*) *\}\}")
_PLAIN = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+_-]{0,63}", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}")
_APPLICATION_ID = re.compile(r"[A-Za-z]\w*(\.[A-Za-z]\w*)+", re.ASCII)
_MARKDOWN = re.compile(r"([!-/:-@\[-`{-~])")


# ------------------------------------------------------------------------------- filters
def _each(text: object, escapes: Mapping[str, str], rare: Callable[[str], str]) -> str:
    """Escape by table; what is neither there nor printable ASCII goes through ``rare``."""
    return "".join(
        escapes.get(c) or (c if " " <= c <= "~" else rare(c)) for c in _well_formed(str(text))
    )


def _well_formed(text: str) -> str:
    """Halves of surrogate pairs, which no file can hold, become U+FFFD."""
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


def kotlin_string(text: object) -> str:
    """A Kotlin string literal: no ``$`` template in it takes effect."""

    def units(character: str) -> str:
        pairs = character.encode("utf-16-be")
        return "".join(f"\\u{pairs[i : i + 2].hex()}" for i in range(0, len(pairs), 2))

    escapes = {'"': '\\"', "\\": "\\\\", "$": "\\$", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return f'"{_each(text, escapes, units)}"'


def swift_string(text: object) -> str:
    r"""A Swift string literal: no ``\(...)`` in it takes effect."""
    escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return '"' + _each(text, escapes, lambda c: f"\\u{{{ord(c):x}}}") + '"'


def json_value(value: object) -> str:
    """Any JSON value; ``<``, ``>`` and ``&`` are escaped, so that no tag can end inside it."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def js_string(text: object) -> str:
    """A JavaScript string literal, also inside a script element or an event attribute."""
    return json_value(_well_formed(str(text))).replace("'", "\\u0027")


def xml(text: object) -> str:
    """Text or a quoted attribute's value; characters that XML 1.0 forbids become U+FFFD."""

    def reference(character: str) -> str:
        code = ord(character)
        allowed = code in (0x9, 0xA, 0xD) or (code >= 0x20 and code not in (0xFFFE, 0xFFFF))
        return f"&#{code if allowed else 0xFFFD};"

    table = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
    return _each(text, table, reference)


def markdown(text: object) -> str:
    """One line of plain text: what Markdown or HTML would read as markup is escaped."""
    line = "".join(c if c.isprintable() else " " for c in _well_formed(str(text)))
    return _MARKDOWN.sub(r"\\\1", " ".join(line.split()))


def double(value: object, none: str = "null") -> str:
    """A floating-point literal of Kotlin, Swift, JavaScript or Python; ``none`` for None."""
    if value is None:
        return none
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise errors.ConfigError(f"{value!r:.100} is no finite number")
    return repr(float(value))


def integer(value: object) -> str:
    """A whole number's literal."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise errors.ConfigError(f"{value!r:.100} is no whole number")
    return str(value)


def plain(text: object) -> str:
    """``text`` itself when it is a version, a file name or the like, else ConfigError.

    ASCII letters, digits and ``. + _ -`` only: 1.29.0, model.ort, x86_64.
    """
    return _checked(text, _PLAIN, "plain word")


def application_id(text: object) -> str:
    """``text`` itself when it is a reverse domain name (dev.example.app), else ConfigError."""
    return _checked(text, _APPLICATION_ID, "application id")


def sha256(text: object) -> str:
    """``text`` itself when it is a SHA-256 in lower-case hex, else ConfigError."""
    return _checked(text, _SHA256, "SHA-256")


def _checked(text: object, pattern: re.Pattern[str], what: str) -> str:
    if isinstance(text, str) and pattern.fullmatch(text):
        return text
    raise errors.ConfigError(f"{text!r:.100} is no {what}")


FILTERS: Mapping[str, Callable[..., str]] = {
    "kotlin_string": kotlin_string,
    "swift_string": swift_string,
    "json": json_value,
    "js_string": js_string,
    "xml": xml,
    "markdown": markdown,
    "double": double,
    "integer": integer,
    "plain": plain,
    "application_id": application_id,
    "sha256": sha256,
}


# ------------------------------------------------------------------------------- folders
def render(folder: Path, out: Path, variables: Mapping[str, object]) -> None:
    """Render the template ``folder`` into ``out``, which is made when it is not there.

    Raises :class:`errors.ConfigError` naming template file, line and what is wrong: an undefined
    variable, a syntax error, a value that a filter refuses, a name that would leave ``out``, two
    templates that give one file, a symbolic link.
    """
    environment = _environment()
    made: set[str] = set()
    for path, name in _files(folder):
        target = _target(name, variables)
        if target in made or target.casefold() in map(str.casefold, made):
            raise errors.ConfigError(f"template {name} gives {target}, as another one does")
        made.add(target)
        place = out / target
        place.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(SUFFIX):
            text = _render_text(environment, _read(path, name), name, variables)
            place.write_bytes(text.encode("utf-8"))
        else:
            place.write_bytes(path.read_bytes())
        place.chmod(_mode(path))


def folder_digest(folder: Path) -> str:
    """SHA-256 (hex) over the relative names, executable bits and contents, in sorted order."""
    digest = hashlib.sha256()
    for path, name in _files(folder):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(json.dumps([name, _mode(path), content]).encode() + b"\n")
    return digest.hexdigest()


def template_files(folder: Path) -> dict[str, Path]:
    """Every file of the template folder by its relative name, sorted."""
    return {name: path for path, name in _files(folder)}


def _files(folder: Path) -> Iterator[tuple[Path, str]]:
    if not folder.is_dir():
        raise errors.ConfigError(f"there is no template folder {folder}")
    found = sorted((path.relative_to(folder).as_posix(), path) for path in folder.rglob("*"))
    for name, path in found:
        if path.is_symlink():
            raise errors.ConfigError(f"template {name} is a symbolic link", remedy="copy the file")
        if path.is_file():
            yield path, name


def _mode(path: Path) -> int:
    """Plain modes, so that nobody's umask gets into a bundle."""
    return 0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644


def _target(name: str, variables: Mapping[str, object]) -> str:
    """The file that template ``name`` gives, relative to the output folder."""

    def fill(match: re.Match[str]) -> str:
        variable = match.group(1)
        if variable not in variables:
            raise errors.ConfigError(f"template {name}: the variable {variable!r} is not given")
        return str(variables[variable])

    parts = [_NAME_VARIABLE.sub(fill, part) for part in PurePosixPath(name).parts]
    parts[-1] = parts[-1].removesuffix(SUFFIX)
    for part in parts:
        bad = not part or set(part) <= {"."} or part != part.strip() or len(part.encode()) > 255
        if bad or any(not c.isprintable() or c in '/\\:*?"<>|' for c in part):
            raise errors.ConfigError(f"template {name} would give a file named {part!r:.100}")
    return "/".join(parts)


def _read(path: Path, name: str) -> str:
    if path.stat().st_size > MAX_TEMPLATE_BYTES:
        raise errors.ConfigError(f"template {name} is larger than {MAX_TEMPLATE_BYTES} bytes")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise errors.ConfigError(f"template {name} is no UTF-8 text: {error}") from error


# ------------------------------------------------------------------------------- Jinja2
def _environment() -> jinja2.Environment:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,  # not HTML: every value passes a filter of its language
        newline_sequence="\n",
    )
    environment.filters.update({name: _strict(call) for name, call in FILTERS.items()})
    return environment


def _strict(call: Callable[..., str]) -> Callable[..., str]:
    """Filters that take any object would turn an undefined variable into text."""

    def filtered(value: Any, *arguments: Any) -> str:
        import jinja2

        if isinstance(value, jinja2.Undefined):
            str(value)  # StrictUndefined raises with the variable's name
        return call(value, *arguments)

    return filtered


def _render_text(
    environment: jinja2.Environment, source: str, name: str, variables: Mapping[str, object]
) -> str:
    import jinja2

    try:
        return environment.from_string(source).render(variables)
    except jinja2.TemplateSyntaxError as error:
        raise errors.ConfigError(f"template {name}:{error.lineno}: {error.message}") from error
    except jinja2.TemplateError as error:
        where = f"template {name}:{_line(error)}"
        remedy = f"give it in the variables of {name}" if _undefined(error) else ""
        raise errors.ConfigError(f"{where}: {error.message}", remedy=remedy) from error
    except errors.ConfigError as error:
        raise errors.ConfigError(f"template {name}:{_line(error)}: {error.message}") from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise errors.ConfigError(f"template {name}:{_line(error)}: {error}") from error


def _undefined(error: Exception) -> bool:
    import jinja2

    return isinstance(error, jinja2.UndefinedError)


def _line(error: BaseException) -> int:
    """The template's line in which ``error`` came up: Jinja2 puts its lines into tracebacks."""
    line = 0
    trace = error.__traceback__
    while trace:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return line
