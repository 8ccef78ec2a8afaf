"""A stand-in for Windows' ``powershell`` and ``taskkill`` on Linux, which runs as a program.

It takes exactly the texts that edge sends, recorded here word for word, and does what Microsoft's
documentation says of them; anything else is refused. So a text that changes has to be read again
and recorded again. What it knows of quoting is written from the documentation, not from edge.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import signal
import subprocess  # noqa: TID251 - it runs as a program, without edge
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

REFUSED = 64
SINGLE_QUOTES = "'\u2018\u2019\u201a\u201b"

FRAME = r"""$ErrorActionPreference='Stop'
$ProgressPreference='SilentlyContinue'
$o=[Console]::OpenStandardOutput()
$e=[Console]::OpenStandardError()
function edge_put($s,$t){$b=[Text.Encoding]::UTF8.GetBytes($t);$s.Write($b,0,$b.Length);$s.Flush()}
edge_put $o "`n@@edge-<nonce>+$PID+$PID`n"
$c=126
try{
<body>
}catch{
$x=$_.Exception.GetBaseException()
edge_put $e ($x.Message+"`n")
if($x -is [ComponentModel.Win32Exception] -and (2,3) -contains $x.NativeErrorCode){$c=127}
}
edge_put $o "`n@@edge-<nonce>-$([int64]$c -band 4294967295)`n"
"""

START = r"""$env:PYTHONUTF8='1'
try{[Console]::InputEncoding=[Text.UnicodeEncoding]::new($false,$false)}catch{}
$i=[Diagnostics.ProcessStartInfo]::new(<word>,<word>)
$i.UseShellExecute=$false
$i.CreateNoWindow=$true
$i.RedirectStandardInput=$true
$i.WorkingDirectory=<word>
$p=[Diagnostics.Process]::Start($i)
$p.StandardInput.Close()
if(!$p.WaitForExit(<number>)){
$k=[Diagnostics.ProcessStartInfo]::new('taskkill.exe','/F /T /PID '+$p.Id)
$k.UseShellExecute=$false
$k.CreateNoWindow=$true
[Diagnostics.Process]::Start($k).WaitForExit()
throw 'the deadline passed'
}
$c=$p.ExitCode"""

OPEN = r"""$f=[IO.File]::OpenRead(<word>)
"""
FEED = r"""try{[void]$f.CopyToAsync($p.StandardInput.BaseStream).Wait(<number>)}catch{}
$f.Close()
"""
FED_START = START.replace("$p=[", OPEN + "$p=[").replace("$p.Stand", FEED + "$p.Stand", 1)

HASH = r"""$h=[Security.Cryptography.SHA256CryptoServiceProvider]::new()
foreach($n in [IO.File]::ReadAllLines(<word>)){
$t='-'
try{
$r=[IO.File]::OpenRead($n)
try{$t=[BitConverter]::ToString($h.ComputeHash($r)).Replace('-','').ToLowerInvariant()}
finally{$r.Close()}
}catch{}
edge_put $o ($t+"`n")
}
$c=0"""

COPY = r"""foreach($n in [IO.File]::ReadAllLines(<word>)){
$a=$n.Split([char]9)
[IO.File]::Copy($a[0],$a[1],$true)
}
$c=0"""

SPACE = r"""edge_put $o ([string][IO.DriveInfo]::new(<word>).AvailableFreeSpace)
$c=0"""

FROM_FILE = r"""$n=<word>
$t=[IO.File]::ReadAllText($n)
[IO.File]::Delete($n)
. ([ScriptBlock]::Create($t))
"""

# The questions of edge.probe.windows are not modelled: their answers come from a file.
FACTS = r"""function edge_say($k,[scriptblock]$w){
try{foreach($v in (& $w)){edge_put $o "$k $v`n"}}catch{}
}
function edge_key($k,$n){[Microsoft.Win32.Registry]::GetValue('HKEY_LOCAL_MACHINE\'+$k,$n,'')}
$r='SOFTWARE\Microsoft\Windows NT\CurrentVersion'
edge_say 'product' {edge_key $r 'ProductName'}
edge_say 'release' {edge_key $r 'DisplayVersion'}
edge_say 'build' {edge_key $r 'CurrentBuildNumber'}
edge_say 'update' {edge_key $r 'UBR'}
edge_say 'version' {[Environment]::OSVersion.Version}
edge_say 'arch' {$env:PROCESSOR_ARCHITECTURE}
edge_say 'cpu' {edge_key 'HARDWARE\DESCRIPTION\System\CentralProcessor\0' 'ProcessorNameString'}
edge_say 'cores' {[Environment]::ProcessorCount}
edge_say 'memory' {
$a='Microsoft.VisualBasic, Version=10.0.0.0, Culture=neutral, PublicKeyToken=b03f5f7f11d50a3a'
[void][Reflection.Assembly]::Load($a)
[Microsoft.VisualBasic.Devices.ComputerInfo]::new().TotalPhysicalMemory
}
edge_say 'free' {[IO.DriveInfo]::new(<word>).AvailableFreeSpace}
edge_put $o "end`n"
$c=0"""

CONTEXT = r"""function edge_say($k,[scriptblock]$w){
try{foreach($v in (& $w)){edge_put $o "$k $v`n"}}catch{}
}
function edge_key($k,$n){[Microsoft.Win32.Registry]::GetValue('HKEY_LOCAL_MACHINE\'+$k,$n,'')}
$r='SYSTEM\CurrentControlSet\Control\Power\User\PowerSchemes'
edge_say 'scheme' {edge_key $r 'ActivePowerScheme'}
edge_say 'clock' {
$q=[wmisearcher]'SELECT CurrentClockSpeed,MaxClockSpeed FROM Win32_Processor'
foreach($p in $q.Get()){'{0} {1}' -f $p['CurrentClockSpeed'],$p['MaxClockSpeed']}
}
edge_put $o "end`n"
$c=0"""

_PARTS = {
    "<word>": rf"('(?:[^{SINGLE_QUOTES}]|[{SINGLE_QUOTES}]{{2}})*')",
    "<number>": "([0-9]+)",
    "<nonce>": "([0-9a-f]+)",
    "<body>": "(.*)",
}


def match(template: str, text: str) -> list[str] | None:
    """What stands in the holes of ``template``, string literals evaluated."""
    pieces = re.split("(<word>|<number>|<nonce>|<body>)", template)
    pattern = "".join(_PARTS.get(piece) or re.escape(piece) for piece in pieces)
    found = re.fullmatch(pattern, text, re.DOTALL)
    if found is None:
        return None
    return [evaluate(one) if one[:1] == "'" else one for one in found.groups()]


def evaluate(literal: str) -> str:
    """A single-quoted string literal: two quotes are one, of any kind (about_Quoting_Rules)."""
    value, rest = "", literal[1:-1]
    while rest:
        value, rest = value + rest[0], rest[2 if rest[0] in SINGLE_QUOTES else 1 :]
    return value


def split_command_line(line: str) -> list[str]:
    """The arguments after the program's name, by "Parsing C command-line arguments"."""
    words: list[str] = []
    word: str | None = None
    quoted = False
    at = 0
    while at < len(line):
        slashes = len(line) - at - len(line[at:].lstrip("\\"))
        following = line[at + slashes : at + slashes + 1]
        if following == '"':
            word = (word or "") + "\\" * (slashes // 2)
            at += slashes + 1
            if slashes % 2:
                word += '"'
            elif quoted and line[at : at + 1] == '"':
                word, at = word + '"', at + 1
            else:
                quoted = not quoted
        elif slashes:
            word, at = (word or "") + "\\" * slashes, at + slashes
        elif following in " \t" and not quoted:
            if word is not None:
                words.append(word)
            word, at = None, at + 1
        else:
            word, at = (word or "") + following, at + 1
    return [*words, word] if word is not None else words


def main(argv: list[str]) -> int:
    """Take exactly ``-NoProfile -NonInteractive -EncodedCommand BASE64``."""
    if argv[:3] != ["-NoProfile", "-NonInteractive", "-EncodedCommand"] or len(argv) != 4:
        return refuse(f"the arguments {argv}")
    return run_script(base64.b64decode(argv[3], validate=True).decode("utf-16-le"))


def run_script(text: str) -> int:
    """A whole script."""
    if (file := match(FROM_FILE, text)) is not None:
        script = Path(file[0]).read_text("utf-8")
        Path(file[0]).unlink()
        return run_script(script)
    framed = match(FRAME, text)
    if framed is None or framed[0] != framed[2]:
        return refuse(text)
    nonce, body, _ = framed
    put(f"\n@@edge-{nonce}+{os.getpid()}+{os.getpid()}\n")
    code = run_body(body)
    put(f"\n@@edge-{nonce}-{code & 0xFFFFFFFF}\n")
    return 0


def run_body(body: str) -> int:
    """What a body does; its exit code."""
    for template, work in BODIES:
        holes = match(template, body)
        if holes is not None:
            try:
                return work(*holes)
            except FileNotFoundError as error:
                complain(f"The system cannot find the file specified: {error}")
                return 127 if work in (start, fed_start) else 126
            except OSError as error:
                complain(str(error))
                return 126
    return refuse(body)


def start(program: str, line: str, home: str, limit: str) -> int:
    """``Process.Start`` without a shell, standard input at its end at once."""
    return process(program, line, home, limit, b"")


def fed_start(program: str, line: str, home: str, file: str, wait: str, limit: str) -> int:
    """The same with standard input from a file."""
    return process(program, line, home, limit, Path(file).read_bytes())


def process(program: str, line: str, home: str, limit: str, data: bytes) -> int:
    """One program; on Windows every file may be run."""
    place = Path(program)
    if place.is_file():
        place.chmod(place.stat().st_mode | 0o111)
    found = (
        program if "/" in program else shutil.which(program, path=os.environ["EDGE_TEST_PROGRAMS"])
    )
    if found is None or not Path(found).exists():
        raise FileNotFoundError(program)
    words = [*started_by(Path(found)), found, *split_command_line(line)]
    env = {**os.environ, "PYTHONUTF8": "1"}
    with subprocess.Popen(words, stdin=subprocess.PIPE, cwd=home, env=env) as child:
        assert child.stdin
        with suppress(BrokenPipeError):
            child.stdin.write(data)
            child.stdin.flush()
        with suppress(BrokenPipeError):
            child.stdin.close()
        try:
            code = child.wait(int(limit) / 1000)
        except subprocess.TimeoutExpired:
            kill_tree(child.pid)
            child.wait()
            complain("the deadline passed")
            return 126
    return code if code >= 0 else -1073741819  # a crash is an NTSTATUS, negative in .NET


def started_by(program: Path) -> list[str]:
    """Wine for a program of Windows."""
    with program.open("rb") as file:
        return [os.environ["EDGE_TEST_WINE"]] if file.read(2) == b"MZ" else []


def hashes(listing: str) -> int:
    """``ComputeHash`` of each file."""
    for name in Path(listing).read_text("utf-8").splitlines():
        try:
            put(hashlib.sha256(Path(name).read_bytes()).hexdigest() + "\n")
        except OSError:
            put("-\n")
    return 0


def copies(listing: str) -> int:
    """``File.Copy`` with overwriting."""
    for line in Path(listing).read_text("utf-8").splitlines():
        source, target = line.split("\t")
        shutil.copyfile(source, target)
    return 0


def space(root: str) -> int:
    """``AvailableFreeSpace``; here a path stands for its drive."""
    place = Path(root)
    while not place.exists():
        place = place.parent
    put(str(shutil.disk_usage(place).free))
    return 0


def answers(name: str) -> Callable[..., int]:
    """The recorded answers to a probe."""

    def work(*holes: str) -> int:
        put((Path(os.environ["EDGE_TEST_ANSWERS"]) / name).read_text("utf-8"))
        return 0

    return work


BODIES: tuple[tuple[str, Callable[..., int]], ...] = (
    (START, start),
    (FED_START, fed_start),
    (HASH, hashes),
    (COPY, copies),
    (SPACE, space),
    (FACTS, answers("facts")),
    (CONTEXT, answers("context")),
)


def taskkill(argv: list[str]) -> int:
    """``taskkill /F /T /PID N``: the process and all below it."""
    if argv[:3] != ["/F", "/T", "/PID"] or len(argv) != 4:
        return refuse(f"the arguments {argv}")
    kill_tree(int(argv[3]))
    return 0


def kill_tree(pid: int) -> None:
    """End ``pid`` and its descendants, children first found."""
    family = [pid]
    for one in family:
        with suppress(OSError):
            children = Path(f"/proc/{one}/task/{one}/children").read_text()
            family += [int(child) for child in children.split()]
    for one in family:
        with suppress(ProcessLookupError):
            os.kill(one, signal.SIGKILL)
    time.sleep(0.01)


def put(text: str) -> None:
    """To standard output, at once."""
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def complain(text: str) -> None:
    """To standard error."""
    sys.stderr.write(text + "\n")


def refuse(what: str) -> int:
    """Not one of the texts that are known here."""
    complain(f"this text is not recorded: {what}")
    return REFUSED


if __name__ == "__main__":
    sys.exit({"powershell": main, "taskkill": taskkill}[sys.argv[1]](sys.argv[2:]))
