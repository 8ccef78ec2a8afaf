"""Names in MIL: identifiers, unique, none of the words that Core ML's compiler keeps."""

from __future__ import annotations

import re

# Of coremltools 9.0, NameSanitizer in converters/mil/mil/passes/defs/preprocess.py.
RESERVED = frozenset(
    [
        "any",
        "bool",
        "program",
        "func",
        "tensor",
        "list",
        "dict",
        "tuple",
        "true",
        "false",
        "string",
        "bf16",
        "fp16",
        "fp32",
        "fp64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "state",
    ]
)


class Names:
    """Gives each ONNX name one identifier that no other has."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def unique(self, name: str) -> str:
        """``name`` as an identifier: other characters become ``_``, a number makes it unique."""
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        if not plain or not (plain[0].isalpha() or plain[0] == "_") or plain in RESERVED:
            plain = f"v_{plain}"
        found, count = plain, 1
        while found in self._taken:
            found, count = f"{plain}_{count}", count + 1
        self._taken.add(found)
        return found
