"""What a device with Windows is, and the state it is in.

One PowerShell script asks the registry and .NET; a parser reads its lines. Neither needs more
rights than the account's own. Clock rates come from WMI, which a login over SSH may not be allowed
to ask: then there are none. Load averages and temperatures have no counterpart that an ordinary
account can read.

Not run on Windows yet: the scripts follow the documentation of what they ask.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import cast

from edge.devices import powershell
from edge.devices.base import Device
from edge.devices.windows import Windows
from edge.probe import gpu, software
from edge.probe.asking import MAX_LINE, MAX_LINES, TIMEOUT, Lines, printable
from edge.probe.facts import DeviceFacts
from edge.probe.state import Context

# A question that fails has no answer; the others go on.
_SAY = """function edge_say($k,[scriptblock]$w){
try{foreach($v in (& $w)){edge_put $o "$k $v`n"}}catch{}
}
function edge_key($k,$n){[Microsoft.Win32.Registry]::GetValue('HKEY_LOCAL_MACHINE\\'+$k,$n,'')}
"""

_FACTS = (
    _SAY
    + r"""$r='SOFTWARE\Microsoft\Windows NT\CurrentVersion'
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
edge_say 'free' {[IO.DriveInfo]::new(%s).AvailableFreeSpace}
edge_put $o "end`n"
$c=0
"""
)

_CONTEXT = (
    _SAY  # noqa: S608 - a query of WMI, with nothing from outside in it
    + r"""$r='SYSTEM\CurrentControlSet\Control\Power\User\PowerSchemes'
edge_say 'scheme' {edge_key $r 'ActivePowerScheme'}
edge_say 'clock' {
$q=[wmisearcher]'SELECT CurrentClockSpeed,MaxClockSpeed FROM Win32_Processor'
foreach($p in $q.Get()){'{0} {1}' -f $p['CurrentClockSpeed'],$p['MaxClockSpeed']}
}
edge_put $o "end`n"
$c=0
"""
)

# What powercfg /list calls them in English; their GUIDs are the same on all machines.
SCHEMES = {
    "381b4222-f694-41f0-9685-ff5bb260df2e": "balanced",
    "8c5e7fda-e8bf-4a96-9a85-a6e23a8c635c": "high-performance",
    "a1841308-3541-4fab-bc81-f71556f20b4a": "power-saver",
    "e9a42b02-d5df-448d-aa00-03f14749eb61": "ultimate-performance",
}

# Windows has its libraries of CUDA in the folders bin of pip's packages, as DLLs: not listed.
_PYTHON = f"""
import platform
import importlib.metadata as m
print('Python', platform.python_version())
for n in '{" ".join(software.PACKAGES)}'.split():
 try: print('package', n, m.version(n))
 except Exception: pass
print('complete')
"""


def probe(device: Device, python: str) -> DeviceFacts:
    """What ``device`` is; ``python`` is the program that is asked for its packages.

    Raises :class:`errors.RunFailed` when it runs no PowerShell, or none in full language mode.
    """
    windows = cast("Windows", device)
    said = windows.script("asking the device", facts_script(windows), timeout=TIMEOUT)
    listed = smi(windows, gpu.QUERY)
    found = _lines(windows, [python, "-c", _PYTHON])
    values = facts(said.stdout.splitlines())
    return DeviceFacts(
        os="Windows",
        os_release=_release(values),
        kernel=values.get("version", ""),
        arch=values.get("arch", "").lower(),
        cpu_model=values.get("cpu", ""),
        cores=_number(values.get("cores")) or 0,
        memory_bytes=_number(values.get("memory")) or 0,
        disk_free_bytes=_number(values.get("free")),
        python=software.python(found),
        onnxruntime=software.onnxruntime(found),
        packages=software.packages(found),
        gpus=gpu.gpus(listed),
        gpu_trouble=gpu.trouble(listed),
    )


def context(device: Device) -> Context:
    """The state ``device`` is in: power scheme as its governor, clock rates, GPUs."""
    windows = cast("Windows", device)
    said = windows.script("asking the device", _CONTEXT, timeout=TIMEOUT)
    states = smi(windows, gpu.STATE_QUERY)
    scheme, clocks = state(said.stdout.splitlines())
    return Context(
        governors=(scheme,) if scheme else (),
        frequencies_khz=tuple(now * 1000 for now, _ in clocks),
        limits_khz=tuple(most * 1000 for _, most in clocks),
        gpu_states=gpu.states(states),
    )


def facts_script(device: Windows) -> str:
    """The body of the script that asks what ``device`` is."""
    return _FACTS % powershell.literal(device.root(device.settings.folder))


def facts(lines: Lines) -> Mapping[str, str]:
    """The answers by question; the first one where there are several."""
    found: dict[str, str] = {}
    for line in lines[:MAX_LINES]:
        key, _, value = line[:MAX_LINE].partition(" ")
        if value.strip():
            found.setdefault(key, printable(value.strip(), 200))
    return found


def state(lines: Lines) -> tuple[str, Sequence[tuple[int, int]]]:
    """The power scheme's name, and for each CPU socket its clock rate now and at most, in MHz."""
    guid = facts(lines).get("scheme", "").lower()
    found = [re.fullmatch(r"clock ([0-9]{1,6}) ([0-9]{1,6})", line.strip()) for line in lines]
    clocks = [(int(one[1]), int(one[2])) for one in found if one]
    return SCHEMES.get(guid, "custom" if guid else ""), clocks


def _release(values: Mapping[str, str]) -> str:
    """Windows 11 says in the registry that its product is Windows 10."""
    build = _number(values.get("build")) or 0
    product = values.get("product", "Windows")
    if build >= 22000:
        product = product.replace("Windows 10", "Windows 11")
    number = ".".join(values[key] for key in ("build", "update") if key in values)
    words = [product, values.get("release", ""), f"(build {number})" if number else ""]
    return " ".join(word for word in words if word)


def smi(device: Windows, queries: Sequence[str]) -> Lines:
    """What ``nvidia-smi`` answers to the first of ``queries`` whose fields its driver knows."""
    lines: Lines = []
    for query in queries:
        words = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
        lines = _lines(device, words)
        if not any(line.startswith('Field "') for line in lines):
            break
    return lines


def _lines(device: Windows, argv: Sequence[str]) -> Lines:
    """What a program prints, nothing when it is not there."""
    done = device.run(argv, timeout=TIMEOUT, check=False)
    if done.returncode == 127:
        return []
    lines = done.stdout.splitlines()[:MAX_LINES]
    return [line[:MAX_LINE].strip() for line in lines if line.strip()]


def _number(text: str | None) -> int | None:
    return int(text) if text and re.fullmatch(r"[0-9]{1,18}", text) else None
