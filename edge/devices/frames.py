"""How a command runs on the other side of SSH, and how its output is told from the rest.

The SSH protocol alone leaves gaps: what a login script prints is mixed into the output, a
command killed by a signal looks like a lost connection (paramiko reports -1 for both), and
closing the channel leaves the command running (paramiko #2510). So each command runs inside a
small fixed script. It starts the command in a process group of its own, says the group's number
before and the exit code after it, both behind a random word, and ends the group by itself when
the deadline has passed and nobody came to do it (the connection may be gone).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

# Parameters: the random word, seconds, then the command. POSIX sh; runs on busybox ash. Kept
# short: dropbear takes at most 9,000 bytes of command.
WRAPPER = r"""n=$1 t=$2
shift 2
exec 3<&0 </dev/null
g=
command -v setsid >/dev/null 2>&1 && g=setsid
$g sh -c 'printf "\n@@edge-%s+%s+%s\n" "$1" "$$" "$PPID"
shift
exec "$@"' sh "$n" "$@" <&3 3<&- &
p=$!
exec 3<&- 2>/dev/null
w=
[ -n "$g" ] && {
$g sh -c 'sleep "$1"
kill -9 "-$2"' sh "$t" "$p" >/dev/null &
w=$!
}
wait "$p"
r=$?
[ -n "$w" ] && kill -9 "-$w" "$w"
printf '\n@@edge-%s-%s\n' "$n" "$r"
"""

# Parameters: the command's process, its parent. Without setsid the parent leads the group that
# sshd made for the session.
KILL = 'kill -9 "-$1" || kill -9 "-$2" || kill -9 "$1"'

WATCH_GRACE = 10  # seconds that the device waits longer than we do before it kills by itself


def command(words: Sequence[str], nonce: str, timeout: float) -> str:
    """The text for the login shell: ``words`` inside the wrapper, each word quoted."""
    seconds = str(int(timeout) + WATCH_GRACE)
    return "exec " + shlex.join(["sh", "-c", WRAPPER, "sh", nonce, seconds, *words])


def returncode(shell: int) -> int:
    """A shell's ``$?`` as a return code: 129 to 192 is a signal by the shells' convention."""
    return 128 - shell if 128 < shell <= 192 else shell


@dataclass
class Frame:
    """Takes standard output as it comes and gives back what the command itself printed.

    ``process`` and ``parent`` are set once the command has started, ``code`` (the shell's
    ``$?``) once it has ended.
    """

    nonce: str
    process: int | None = None
    parent: int | None = None
    code: int | None = None
    noise: bytes = b""
    _pending: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> bytes:
        """What of ``data``, and of what was held back, is the command's output."""
        if self.code is not None:
            return b""  # a process left behind is still printing
        self._pending += data
        if self.process is None and not self._start():
            return b""
        return self._payload()

    def rest(self) -> bytes:
        """What is still held back when the stream has ended without the second mark."""
        left = bytes(self._pending) if self.process is not None and self.code is None else b""
        self._pending.clear()
        return left

    def _start(self) -> bool:
        found = re.search(rb"\n@@edge-%s\+(\d+)\+(\d+)\r?\n" % self.nonce.encode(), self._pending)
        if not found:
            del self._pending[: -(2**16)]  # whatever a login script prints, memory stays bounded
            self.noise = bytes(self._pending[-400:])
            return False
        self.process, self.parent = int(found[1]), int(found[2])
        del self._pending[: found.end()]
        return True

    def _payload(self) -> bytes:
        found = re.search(rb"\n@@edge-%s-(\d+)\r?\n" % self.nonce.encode(), self._pending)
        if found:
            self.code = int(found[1])
            payload = bytes(self._pending[: found.start()])
            self._pending.clear()
            return payload
        held = len(self.nonce) + 24  # longer than the mark: it may have come in part
        payload = bytes(self._pending[:-held])
        del self._pending[: len(payload)]
        return payload
