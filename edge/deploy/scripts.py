"""The fixed shell texts that deploying runs on a device.

POSIX sh for busybox ash, dash, bash and toybox's mksh: no arrays, no ``local``, no pipefail. What
differs from call to call comes as positional parameters or on standard input, never inside the
text. A dropbear takes 9,000 bytes of command, so the texts are kept short.

The folders are those of :mod:`edge.deploy.storage`. ``current`` is a symbolic link, replaced by a
rename; a file with the same text where links cannot be replaced so.
"""

from __future__ import annotations

from edge.probe import NEAREST

LOST = 75  # exit code: somebody else took the lock over
FULL = 28  # exit code: no space (the number is ENOSPC's)
DAMAGED = 65  # exit code: a file is not what its hash says

# A step's process on the device is recognized by the lock's token among its words, so a number
# that was given to another process since, or before a reboot, is never mistaken for it.
_ALIVE = r"""alive() {
[ -n "$1" ] || return 1
if [ -d /proc/self ]; then
case $(tr '\000' ' ' 2>/dev/null <"/proc/$1/cmdline") in *"$2"*) return 0 ;; esac
return 1
fi
kill -0 "$1" 2>/dev/null
}
"""

_HIGHEST = """highest() {
n=0
for d in lock/*; do
g=${d##*/}
case $g in ''|*[!0-9]*) continue ;; esac
if [ "$g" -gt "$n" ]; then n=$g; fi
done
}
"""

# $2 token, $3 who we are, $4 seconds of the lease, $5 token whose owner is known to be gone.
# Answers "locked N" or "busy TOKEN WHO...". Making lock/N+1 is atomic and N is never used twice,
# so of two that see the same stale lock one gets it.
ACQUIRE = (
    _ALIVE
    + _HIGHEST
    + r"""set -eu
mkdir -p "$1"
cd "$1"
mkdir -p lock
look() {
owner=; until=; pid=
read -r owner 2>/dev/null <"$l/owner" || :
read -r until 2>/dev/null <"$l/until" || :
read -r pid 2>/dev/null <"$l/pid" || :
token=${owner%% *}
}
stale() {
look
[ ! -e "$l/free" ] || return 0
if alive "$pid" "$token"; then
[ "$token" = "$gone" ] || return 1
sleep 2
alive "$pid" "$token" || return 0
[ -d /proc/self ] || return 1
kill -9 "-$pid" 2>/dev/null || kill -9 "$pid" 2>/dev/null || :
return 0
fi
[ "$token" != "$gone" ] || return 0
if [ -z "$owner" ] || [ -z "$until" ] || [ -n "$pid" ]; then
was=$owner/$until/$pid
sleep 2
look
[ "$was" = "$owner/$until/$pid" ] && return 0
return 1
fi
[ "$(date +%s)" -gt "$until" ]
}
gone=$5
highest
l=lock/$n
if [ "$n" -gt 0 ] && ! stale; then echo "busy $owner"; exit 0; fi
m=$((n + 1))
l=lock/$m
if ! mkdir "$l" 2>/dev/null; then
if [ -d "$l" ]; then echo "busy - - - another"; exit 0; fi
mkdir "$l"
fi
trap 'rm -rf "$l"' EXIT
echo "$2 $3" >"$l/owner"
echo $(($(date +%s) + $4)) >"$l/until"
highest
if [ "$n" -ne "$m" ]; then echo "busy - - - another"; exit 0; fi
trap - EXIT
for d in lock/*; do
if [ "${d##*/}" != "$m" ]; then rm -rf "$d"; fi
done
echo "locked $m"
"""
)

# What every step under the lock begins with: $2 number and $3 token of the lock, $4 seconds that
# this step may take, $5 seconds that the lock lasts after it.
STEP = r"""set -eu
trap '' HUP PIPE
LC_ALL=C
export LC_ALL
cd "$1"
l=lock/$2
read -r o rest 2>/dev/null <"$l/owner" || o=
if [ "$o" != "$3" ] || [ -e "lock/$(($2 + 1))" ]; then exit 75; fi
say() { echo "$@" 2>/dev/null || :; }
left=$5
lease() { { echo $(($(date +%s) + $1)) >"$l/until"; } 2>/dev/null || :; }
end() { rm -f "$l/pid"; lease "$left"; }
trap end EXIT
lease "$4"
{ echo $$ >"$l/pid"; } 2>/dev/null || :
shift 5
"""

RELEASE = STEP + 'trap - EXIT\ntrue >"$l/free" || rm -rf "$l"\n'

# k is the hash tool. A connection that broke must not keep what arrived whole from being kept,
# so nothing here depends on anybody listening.
_HASH = r"""k=none
for t in sha256sum shasum openssl; do
if command -v $t >/dev/null 2>&1; then k=$t; break; fi
done
hash() {
case $k in
sha256sum) set -- $(sha256sum <"$1") ;;
shasum) set -- $(shasum -a 256 <"$1") ;;
openssl) set -- $(openssl dgst -sha256 -r <"$1") ;;
esac
echo "${1-}"
}
settle() {
[ "$k" != none ] || return 0
for f in incoming/*; do
if [ ! -f "$f" ]; then continue; fi
h=${f##*/}
if [ "$(hash "$f")" = "$h" ]; then mv -f "$f" "blobs/$h"; else rm -f "$f"; say "bad $h"; fi
done
}
"""

# $1 bundle's name, in the folder.
_LOOK = r"""say "@hash $k"
if command -v tar >/dev/null 2>&1; then say @tar; fi
say @space
df -kP . 2>/dev/null || df -k . || :
say @blobs
ls -ln blobs 2>/dev/null || :
say @history
cat "bundles/$1/history" 2>/dev/null || :
say @current
if [ -L "bundles/$1/current" ]; then ls -ld "bundles/$1/current"
else cat "bundles/$1/current" 2>/dev/null || :; fi
say @end
"""

# $1 folder, $2 bundle's name. Reads only.
SURVEY = (
    "d=$1\n"
    + NEAREST
    + r"""
LC_ALL=C
export LC_ALL
say() { echo "$@"; }
if [ ! -d "$1" ]; then
say @space
df -kP "$d" 2>/dev/null || df -k "$d" || :
say @end
exit 0
fi
cd "$1"
shift
"""
    + _HASH
    + _LOOK
)

# $1 bundle's name.
PREPARE = (
    STEP
    + _HASH
    + r"""mkdir -p blobs incoming "bundles/$1/releases"
if [ "$k" = none ]; then rm -rf incoming; mkdir incoming; fi
settle
true >incoming/.try
if ln incoming/.try incoming/.try2 2>/dev/null; then say @link; fi
rm -f incoming/.try incoming/.try2
"""
    + _LOOK
)

# $1 bundle's name, $2 one blob's hash, or - for a tar stream of blobs; standard input: the bytes.
RECEIVE = (
    STEP
    + _HASH
    + r"""r=0
if [ "$2" = - ]; then
e=$(tar -xf - -C incoming 2>&1) || r=$?
else
e=$({ cat >"incoming/$2"; } 2>&1) || r=$?
fi
if [ "$r" -ne 0 ]; then
case $e in *'No space left'*|*'uota exceeded'*)
rm -rf incoming
exit 28
esac
fi
settle
if [ "$r" -ne 0 ]; then echo "$e" >&2; exit 74; fi
"""
    + _LOOK
)

# $1 bundle's name; standard input: hashes of blobs in incoming that were read back and are right.
ACCEPT = STEP + _HASH + 'while read -r h; do mv -f "incoming/$h" "blobs/$h"; done\n' + _LOOK

# verify FOLDER SUMS: is every file what the list says?
_VERIFY = r"""verify() {
[ -d "$1" ] && [ -f "$2" ] || return 1
[ "$k" != none ] || return 0
while read -r h p; do
if [ "$(hash "$1/$p" 2>/dev/null)" != "$h" ]; then return 1; fi
done <"$2"
}
"""

# $1 bundle's name, $2 release; standard input: hash, x or -, path, between tabs.
# A program gets a copy of its own: its mode must not change the other links of the blob.
ASSEMBLE = (
    STEP
    + _HASH
    + _VERIFY
    + r"""b=bundles/$1/releases
r=$b/$2
if verify "$r" "$r.sums"; then say kept; exit 0; fi
rm -rf "$b"/.new* "$b"/.old*
t=$b/.new
undo() { rm -rf "$t" "$t.sums"; end; }
trap undo EXIT
mkdir "$t"
tab=$(printf '\t')
bad=
while IFS=$tab read -r h m p; do
case $p in */*) mkdir -p "$t/${p%/*}" ;; esac
if [ "$m" = x ] || ! ln "blobs/$h" "$t/$p" 2>/dev/null; then cp "blobs/$h" "$t/$p"; fi
if [ "$m" = x ]; then chmod 755 "$t/$p"; fi
if [ "$k" != none ] && [ "$(hash "$t/$p")" != "$h" ]; then
rm -f "blobs/$h"
bad=1
fi
echo "$h  $p" >>"$t.sums"
done
if [ -n "$bad" ]; then exit 65; fi
mv -f "$t.sums" "$r.sums"
if [ -d "$r" ]; then mv "$r" "$b/.old"; fi
mv "$t" "$r"
rm -rf "$b"/.old*
"""
)

# $1 bundle's name, $2 release.
VERIFY = (
    STEP
    + _HASH
    + _VERIFY
    + 'r=bundles/$1/releases/$2\nif ! verify "$r" "$r.sums"; then exit 65; fi\n'
)

# $1 bundle's name, $2 release; standard input: the new history. mv without -T would move the
# link *into* the folder that the old link leads to; where neither spelling of -T is known
# (busybox before 1.33), the pointer is a file.
SWITCH = (
    STEP
    + r"""b=bundles/$1
[ -d "$b/releases/$2" ]
cat >"$b/history.new"
sync -f "$b" 2>/dev/null || sync
n=$b/current.new
c=$b/current
rm -rf "$n"
if ! { ln -s "releases/$2" "$n" && { mv -T "$n" "$c" || mv -h "$n" "$c"; }; } 2>/dev/null; then
rm -f "$n"
echo "releases/$2" >"$n"
if [ -L "$c" ]; then rm -f "$c"; fi
mv -f "$n" "$c"
fi
mv -f "$b/history.new" "$b/history"
say "@blobs"
ls -ln blobs
for s in bundles/*/releases/*.sums; do
if [ -f "$s" ]; then say "@sums $s"; cat "$s"; fi
done
say "@end"
"""
)

# Standard input: "blob HASH" and "release NAME ID" lines.
COLLECT = (
    STEP
    + r"""while read -r what a b; do
case $what in
blob) rm -f "blobs/$a" ;;
release) rm -rf "bundles/$a/releases/$b" "bundles/$a/releases/$b.sums" ;;
esac
done
"""
)
