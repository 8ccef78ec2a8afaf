r"""Commands for the OpenSSH server of Windows: one PowerShell text that no shell reads.

What sshd runs is ``SHELL /c "COMMAND"`` (cmd.exe, the default) or ``SHELL -c "COMMAND"``
(PowerShell as DefaultShell; openssh-portable, contrib/win32/win32compat/w32-doexec.c), so a
command passes through one of two shells with different rules (Win32-OpenSSH #1082, #524, #1164).
``-EncodedCommand`` takes base64 of UTF-16LE: letters, digits, ``+``, ``/`` and ``=``, with
``powershell`` and two switches before it. None of these means anything to either shell: cmd acts
on ``& | < > ( ) ^ % ! "`` and treats ``=`` as a separator only for its own commands and for batch
files; to PowerShell they are one argument, which begins with a letter. cmd takes at most 8,191
characters; a longer text goes into a file first.

Inside the text every word is a single-quoted literal (:func:`literal`). Programs are started
through .NET's ``ProcessStartInfo``, whose ``Arguments`` is the command line as it is: Windows
PowerShell 5.1 drops double quotes and empty words when it passes arguments by itself (PowerShell
#1995, #6280), and here it passes none. That command line is quoted by :func:`argument` for
``CommandLineToArgvW`` and the C runtime. Only the language and .NET are used, no cmdlet: those
load from modules, which an execution policy or a foreign PSModulePath can keep out.

Nothing is written through PowerShell's own streams, so neither the console's code page nor CLIXML
(which 5.1 writes to a redirected standard error under ``-EncodedCommand``) is between a program's
bytes and ours: a program inherits the handles of standard output and standard error. Standard
input is a pipe of its own; PowerShell reads its own one only when a script says ``$input``.

None of this was run on Windows: it is held against models of the documented rules (see
docs/devices.md).
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Sequence

from edge import errors
from edge.devices.frames import WATCH_GRACE

# What PowerShell's tokenizer takes for a single quote (CharTraits.cs, IsSingleQuote).
QUOTES = "'\u2018\u2019\u201a\u201b"
COMMAND_LIMIT = 8000  # characters that cmd.exe takes are 8,191, its own name and /c included
LINE_LIMIT = 32_000  # characters of a command line that CreateProcess takes are 32,767
_LONGEST = 2**31 - 1  # ms: what WaitForExit takes
_SAFE = re.compile(r"[0-9A-Za-z_./:\\=,+@-]+")

# A random word, then the body of a script, which sets $c, the exit code. 127: the program is not
# there (ERROR_FILE_NOT_FOUND, ERROR_PATH_NOT_FOUND), as shells say it. Exit codes are NTSTATUS
# values when a program crashes: negative in .NET, so they are made unsigned.
_FRAME = """$ErrorActionPreference='Stop'
$ProgressPreference='SilentlyContinue'
$o=[Console]::OpenStandardOutput()
$e=[Console]::OpenStandardError()
function edge_put($s,$t){$b=[Text.Encoding]::UTF8.GetBytes($t);$s.Write($b,0,$b.Length);$s.Flush()}
edge_put $o "`n@@edge-{nonce}+$PID+$PID`n"
$c=126
try{
{body}
}catch{
$x=$_.Exception.GetBaseException()
edge_put $e ($x.Message+"`n")
if($x -is [ComponentModel.Win32Exception] -and (2,3) -contains $x.NativeErrorCode){$c=127}
}
edge_put $o "`n@@edge-{nonce}-$([int64]$c -band 4294967295)`n"
"""

# The process tree is ended here when nobody came to do it in time: Win32-OpenSSH leaves programs
# running when a connection breaks (#1751). PYTHONUTF8: a Python would write its code page. .NET
# Framework puts the preamble of the console's encoding before all input, where Windows is set to
# UTF-8 (CliWrap #215, microsoft/MSBuildCache #96); this encoding has none and changes no console.
_START = """$env:PYTHONUTF8='1'
try{[Console]::InputEncoding=[Text.UnicodeEncoding]::new($false,$false)}catch{}
$i=[Diagnostics.ProcessStartInfo]::new({program},{arguments})
$i.UseShellExecute=$false
$i.CreateNoWindow=$true
$i.RedirectStandardInput=$true
$i.WorkingDirectory={home}
{open}$p=[Diagnostics.Process]::Start($i)
{feed}$p.StandardInput.Close()
if(!$p.WaitForExit({limit})){
$k=[Diagnostics.ProcessStartInfo]::new('taskkill.exe','/F /T /PID '+$p.Id)
$k.UseShellExecute=$false
$k.CreateNoWindow=$true
[Diagnostics.Process]::Start($k).WaitForExit()
throw 'the deadline passed'
}
$c=$p.ExitCode
"""

# Opened before the program starts: one that cannot be opened leaves no program behind. A program
# that ends without reading all of it breaks the pipe; its exit code says the rest.
_OPEN = """$f=[IO.File]::OpenRead({file})
"""
_FEED = """try{[void]$f.CopyToAsync($p.StandardInput.BaseStream).Wait({limit})}catch{}
$f.Close()
"""

# Paths, one a line in a UTF-8 file; a file that cannot be read gives -. This provider is the one
# that FIPS mode allows, too.
_HASH = """$h=[Security.Cryptography.SHA256CryptoServiceProvider]::new()
foreach($n in [IO.File]::ReadAllLines({file})){
$t='-'
try{
$r=[IO.File]::OpenRead($n)
try{$t=[BitConverter]::ToString($h.ComputeHash($r)).Replace('-','').ToLowerInvariant()}
finally{$r.Close()}
}catch{}
edge_put $o ($t+"`n")
}
$c=0
"""

# Source, tab, target, one pair a line in a UTF-8 file.
_COPY = """foreach($n in [IO.File]::ReadAllLines({file})){
$a=$n.Split([char]9)
[IO.File]::Copy($a[0],$a[1],$true)
}
$c=0
"""

_SPACE = """edge_put $o ([string][IO.DriveInfo]::new({root}).AvailableFreeSpace)
$c=0
"""

_FROM_FILE = """$n={file}
$t=[IO.File]::ReadAllText($n)
[IO.File]::Delete($n)
. ([ScriptBlock]::Create($t))
"""


def literal(word: str) -> str:
    """``word`` as a single-quoted PowerShell string: all in it is literal, quotes are doubled.

    about_Quoting_Rules: "To make a single-quotation mark appear in a single-quoted string, use a
    second consecutive single-quote". The typographic ones close a string as well.
    Raises :class:`errors.RunFailed` for what no Windows command line can hold.
    """
    try:
        word.encode("utf-16-le")
    except UnicodeEncodeError as error:
        raise _unusable(word) from error
    if "\0" in word:
        raise _unusable(word)
    return "'" + "".join(2 * letter if letter in QUOTES else letter for letter in word) + "'"


def argument(word: str) -> str:
    r"""``word`` for a command line that ``CommandLineToArgvW`` takes apart.

    Its rules (learn.microsoft.com, "Parsing C command-line arguments"): blanks separate words
    outside of double quotes; 2n backslashes before a double quote are n of them and the quote
    delimits; 2n+1 are n and the quote is literal; other backslashes are themselves.
    """
    if _SAFE.fullmatch(word):
        return word
    doubled = re.sub(r'(\\*)"', r'\1\1\\"', word)
    return '"' + re.sub(r"(\\+)\Z", r"\1\1", doubled) + '"'


def start(argv: Sequence[str], home: str, timeout: float, stdin: str = "") -> str:
    """The body that runs ``argv`` in ``home`` (a native path), ``stdin`` a native path of a file.

    Raises :class:`errors.RunFailed` for a program that cannot be started safely: a batch file is
    run by cmd.exe, which takes its arguments apart by other rules (CVE-2024-24576), and blanks and
    dots behind its name are dropped, by .NET all that Unicode calls blank (CVE-2024-43402).
    """
    program = argv[0]
    if '"' in program or re.search(r"[.](bat|cmd)[\s.]*\Z", program, re.I):
        raise errors.RunFailed(
            f"{program!r} is no program for a device with Windows",
            remedy="give an .exe; for a batch file's work name the program that it runs",
        )
    line = " ".join(argument(word) for word in argv[1:])
    if len(line) + len(program) > LINE_LIMIT:
        raise errors.RunFailed(f"the command line for {program} has more than {LINE_LIMIT} letters")
    limit = str(min(int((timeout + WATCH_GRACE) * 1000), _LONGEST))
    opened = _filled(_OPEN, file=literal(stdin)) if stdin else ""
    feed = _filled(_FEED, limit=limit) if stdin else ""
    words = {"program": literal(program), "arguments": literal(line), "home": literal(home)}
    return _filled(_START, **words, open=opened, feed=feed, limit=limit)


def hashes(listing: str) -> str:
    """The body that prints the SHA-256 of each file that the file ``listing`` names."""
    return _filled(_HASH, file=literal(listing))


def copies(listing: str) -> str:
    """The body that copies files, as the file ``listing`` says."""
    return _filled(_COPY, file=literal(listing))


def space(root: str) -> str:
    r"""The body that prints the free bytes of a drive; ``root`` for example ``C:\``."""
    return _filled(_SPACE, root=literal(root))


def framed(body: str, nonce: str) -> str:
    """The whole script: ``body`` between the marks that :class:`edge.devices.frames.Frame` reads.

    The process that the first mark names is PowerShell itself: ending its tree ends the program.
    """
    return _filled(_FRAME, nonce=nonce, body=body.rstrip("\n"))


def from_file(file: str) -> str:
    """The script that runs the script in ``file`` and removes the file.

    As a block of text it is under no execution policy, which is for files of scripts.
    """
    return _filled(_FROM_FILE, file=literal(file))


def command(script: str) -> str:
    """The command for sshd that runs ``script``, whatever the account's shell is."""
    encoded = base64.b64encode(script.encode("utf-16-le")).decode("ascii")
    return f"powershell -NoProfile -NonInteractive -EncodedCommand {encoded}"


def killer(process: int) -> str:
    """The command for sshd that ends a process with all that it started."""
    return f"taskkill /F /T /PID {process}"


def plain(text: str) -> str:
    """Standard error with CLIXML replaced by the errors in it; progress is left out."""
    parts, at = [], 0
    # No pattern over all of it: what has many beginnings and no end would take forever.
    while (start := text.find("<Objs ", at)) >= 0 and (end := text.find("</Objs>", start)) >= 0:
        parts += [text[at:start], _errors_of(text[start:end])]
        at = end + len("</Objs>")
    return re.sub(r"#< CLIXML\r?\n?", "", "".join([*parts, text[at:]]))


def _errors_of(objects: str) -> str:
    said = "".join(re.findall(r'<S S="Error">([^<]*)</S>', objects))
    units = re.sub(r"_x([0-9A-Fa-f]{4})_", lambda one: chr(int(one[1], 16)), html.unescape(said))
    return units.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _filled(template: str, **values: str) -> str:
    """``template`` with each ``{name}`` replaced; what comes in is not looked at again."""
    names = "|".join(values)
    return re.sub(rf"\{{({names})\}}", lambda found: values[found[1]], template)


def _unusable(word: str) -> errors.RunFailed:
    return errors.RunFailed(f"{word!r} cannot be a word of a command on Windows")
