"""The fixed shell texts that a build runs on a device.

POSIX sh for dash, bash 3.2 (macOS) and busybox ash: no arrays, no ``local``, no pipefail. What
differs from call to call comes as positional parameters, never inside the text.

On the device, below the build's own folder ($1, its last part a random word):

    work/             sources, the plan's files, the build
    job.N/pid         the N-th command's process, which leads a session of its own
    job.N/log         what it prints
    job.N/status      its exit code, once it has ended
    seen              somebody is watching; a build that nobody watches ends and is removed
"""

from __future__ import annotations

from edge.tools.ort_build import EPOCH, STRAY

PIECE = 1 << 18  # bytes of a log that one look brings

# Where package managers put programs, and login shells look for them; commands over SSH do not.
_PATH = "PATH=$PATH:${HOME-}/.local/bin:/usr/local/bin:/opt/homebrew/bin\nexport PATH\n"

# alive PID WORD: is it the process that has WORD among its words, and not another one since? A
# process has no words for a moment while it becomes another program, so no is said twice.
_ALIVE = r"""words() {
if [ -r /proc/self/cmdline ]; then tr '\000' ' ' 2>/dev/null <"/proc/$1/cmdline"
else ps -ww -o command= -p "$1" 2>/dev/null; fi
}
alive() {
[ -n "$1" ] || return 1
case $(words "$1") in *"$2"*) return 0 ;; esac
sleep 1
case $(words "$1") in *"$2"*) return 0 ;; esac
return 1
}
"""

# Parameters: a command.
ASK = _PATH + 'exec "$@"\n'

# $1 folder; standard input: a tar.gz. Folders of builds whose machine died while it sent are
# removed after two days. -m: the clocks of two machines differ, and ninja goes round in circles
# over files of the future; -o: files belong to the account that unpacks them.
RECEIVE = """set -eu
find "${1%/*}" -mindepth 1 -maxdepth 1 -type d -mtime +1 -exec rm -rf {} + 2>/dev/null || true
rm -rf "$1"
mkdir -p "$1/work"
exec tar -xzmof - -C "$1/work"
"""

# Python, which every build needs: macOS has no setsid. Parameters: a command.
DETACH = "import os, sys\nos.setsid()\nos.execvp(sys.argv[1], sys.argv[1:])\n"

# The environment is that of ``ort_build.environment``.
# $1 folder, absolute, $2 number of the job, $3 seconds between two looks for a watcher, $4 looks
# without one after which it ends; then the command. It outlives SIGTERM to say how its command
# ended; ninja stops its compilers on SIGTERM, and on SIGKILL leaves them behind.
JOB = (
    r"""f=$1 j=$1/job.$2 s=$3 m=$4
shift 4
trap : TERM
cd "$f/work" || exit 66
exec >/dev/null 2>&1
"""
    f"unset {' '.join(STRAY)}\n"
    f"SOURCE_DATE_EPOCH={EPOCH}\n"
    r"""PATH=$PWD/.venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1 LC_ALL=C.UTF-8
export PATH PYTHONDONTWRITEBYTECODE LC_ALL SOURCE_DATE_EPOCH
if command -v ccache >/dev/null; then
CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache
CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
export CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER CCACHE_BASEDIR CCACHE_NOHASHDIR
fi
(
trap '' TERM
cd /
n=0
while sleep "$s"; do
n=$((n + 1))
if [ -e "$f/seen" ]; then rm -f "$f/seen"; n=0; fi
if [ "$n" -ge "$m" ]; then
true >"$j/alone"
kill -15 "-$$"
sleep 5
rm -rf "$f"
kill -9 "-$$"
fi
done
) &
w=$!
"$@" >"$j/log" 2>&1
r=$?
[ -e "$j/alone" ] || kill -9 "$w"
echo "$r" >"$j/status.new"
mv -f "$j/status.new" "$j/status"
"""
)

# $1 DETACH, $2 JOB, $3 folder, $4 number of the job, $5 and $6 as JOB's $3 and $4; the command.
# Said twice (the connection broke before the answer), it starts once.
START = (
    "set -eu\n"
    + _PATH
    + r"""d=$1 t=$2
shift 2
cd "$1"
f=$PWD n=$2
shift 2
if ! mkdir "job.$n" 2>/dev/null; then
if [ -d "job.$n" ]; then exit 0; fi
exit 73
fi
true >seen
python3 -c "$d" sh -c "$t" sh "$f" "$n" "$@" </dev/null >"job.$n/log" 2>&1 &
echo $! >"job.$n/pid"
"""
)

# $1 folder, $2 number of the job, $3 bytes of its log that are known. Answers "STATE N", then N
# bytes of the log: whole lines, unless one is very long or the last.
LOOK = (
    "set -u\n"
    + _ALIVE
    + f"most={PIECE}\n"
    + r"""cd "$1" || exit 66
j=job.$2 from=$(($3 + 1)) pid= state=lost
true >seen
[ -f "$j/pid" ] || sleep 2
read -r pid 2>/dev/null <"$j/pid"
if [ ! -f "$j/status" ] && alive "$pid" "${1##*/}"; then state=running; fi
if [ -f "$j/status" ]; then read -r r <"$j/status"; state=ended:$r; fi
[ -f "$j/log" ] || true >"$j/log"
n=$(($(wc -c <"$j/log") - $3))
if [ "$n" -gt "$most" ]; then n=$most; fi
piece() { tail -c "+$from" "$j/log" | head -c "$n"; }
if [ "$n" -gt 0 ] && [ -n "$(piece | tail -c 1)" ]; then
p=$(($(piece | tail -n 1 | wc -c)))
if [ "$p" -lt "$n" ]; then n=$((n - p))
elif [ "$state" = running ] && [ "$n" -lt "$most" ]; then n=0
fi
fi
echo "$state $n"
if [ "$n" -gt 0 ]; then piece; fi
"""
)

# $1 folder; names in its work folder. Answers a line for each: file, folder or none.
KINDS = """cd "$1/work" || exit 66
shift
for p in "$@"; do
if [ -f "$p" ]; then echo file; elif [ -d "$p" ]; then echo folder; else echo none; fi
done
"""

# $1 folder, $2 a folder in its work folder, $3 the new archive in $1. The variable: bsdtar of
# macOS would add a file ._NAME for each file with extended attributes.
PACK = """set -eu
cd "$1"
f=$PWD
cd "work/$2"
b=${PWD##*/}
cd ..
COPYFILE_DISABLE=1
export COPYFILE_DISABLE
exec tar -cf "$f/$3" "$b"
"""

# $1 folder: its jobs are ended, and it is removed.
REMOVE = (
    _ALIVE
    + r"""[ -d "$1" ] || exit 0
t=${1##*/}
for j in "$1"/job.*; do
[ -f "$j/pid" ] && [ ! -f "$j/status" ] || continue
read -r p <"$j/pid"
alive "$p" "$t" || continue
kill -15 "-$p"
i=0
while alive "$p" "$t" && [ "$i" -lt 10 ]; do
sleep 0.5 2>/dev/null || sleep 1
i=$((i + 1))
done
kill -9 "-$p" 2>/dev/null
done
rm -rf "$1" || { sleep 2; rm -rf "$1"; }
r=$?
rmdir "${1%/*}" 2>/dev/null
exit "$r"
"""
)
