"""The only printer beside ``cli``: timed steps, plain words and the closing table.

Everything goes to standard error; standard output belongs to ``--json``. On a terminal a running
step shows a spinner; in CI (no terminal, or ``CI`` set) every step is one plain line.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Step:
    """A step under way: ``note`` may be set by its body and is shown when it ends.

    ``quiet``: nothing was done after all, so nothing is said.
    """

    title: str
    note: str = ""
    quiet: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds since the step began."""
        return time.monotonic() - self.started


def interactive() -> bool:
    """True on a terminal that is not a CI log."""
    return sys.stderr.isatty() and not os.environ.get("CI")


def colored() -> bool:
    """True where escape sequences are welcome (https://no-color.org)."""
    return interactive() and "NO_COLOR" not in os.environ


def _paint(text: str, code: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if colored() else text


def say(text: str) -> None:
    """One line for the person who watches."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def warn(text: str) -> None:
    """One line that deserves attention but does not stop the run."""
    say(_paint("warning: ", "33") + text)


def error(message: str, remedy: str = "") -> None:
    """A failure and what to do about it."""
    say(_paint("error: ", "31") + message)
    if remedy:
        say(_paint("  fix: ", "36") + remedy)


@contextmanager
def step(title: str) -> Iterator[Step]:
    """Time a step and say its name and seconds when it ends, well or badly."""
    running = Step(title)
    if interactive():
        sys.stderr.write(f"  … {title}\r")
        sys.stderr.flush()
    try:
        yield running
    except BaseException:
        _end(running, _paint("✗", "31"))
        raise
    if not running.quiet:
        _end(running, _paint("✓", "32"))


def _end(done: Step, mark: str) -> None:
    clear = "\x1b[2K" if interactive() else ""
    note = f"  {done.note}" if done.note else ""
    say(f"{clear}  {mark} {done.title} {done.seconds:.1f} s{note}")


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A closing table, drawn by rich (imported here: it costs start-up time)."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text: what looks like markup in a name is shown and not obeyed.
    drawn = Table(title=Text(title), title_justify="left")
    for column in columns:
        drawn.add_column(Text(column), overflow="fold")
    for row in rows:
        drawn.add_row(*map(Text, row))
    width = None if interactive() else 160
    Console(stderr=True, width=width, no_color=not colored(), highlight=False).print(drawn)


def human_bytes(size: int) -> str:
    """Bytes for a person, decimal units: ``1.95 MB``."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size >= scale:
            return f"{size / scale:.2f} {unit}"
    return f"{size} B"


def human_ns(ns: float) -> str:
    """Nanoseconds for a person: ``1.24 ms``."""
    for unit, scale in (("ns", 1), ("us", 10**3), ("ms", 10**6)):
        # 999.5 would be rounded up to 1000 of this unit: it is shown as 1 of the next.
        if ns < 999.5 * scale:
            return f"{ns / scale:.3g} {unit}"
    return f"{ns / 10**9:.3g} s" if ns < 999.5e9 else f"{ns / 10**9:.0f} s"
