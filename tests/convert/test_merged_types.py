"""A configuration merged of several models keeps every type of each of them (#16742).

Held against the text itself and against ONNX Runtime's own parser, not against our reading of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edge.closure import Closure, Entry, union
from edge.closure.text import as_built, render
from tests.closures import of_models

several = st.lists(of_models(), min_size=2, max_size=4)
shared_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
Key = tuple[str, str]
Place = tuple[str, int]
OPERATOR = re.compile(r"([A-Za-z]+)(\{.*?\}(?=,[A-Z]|$))?")
LINE = re.compile(
    r"ORT_SPECIFY_OP_KERNEL_ARG_ALLOWED_TYPES\((\w+), (\w+), (Input|Output), (\d+), (.*)\);"
)
DOMAINS = {"kOnnxDomain": "ai.onnx", "kMSDomain": "com.microsoft", "kMLDomain": "ai.onnx.ml"}


def needed(closures: list[Closure]) -> Iterator[tuple[Entry, Place, str]]:
    """Every type that some model needs: of which entry, at which place."""
    for entry in (entry for closure in closures for entry in closure.entries if entry.types):
        assert entry.types is not None
        for side, places in (("inputs", entry.types.inputs), ("outputs", entry.types.outputs)):
            for index, names in places:
                for name in names:
                    yield entry, (side, index), name


def triples(closures: list[Closure]) -> Iterator[tuple[Entry, tuple[str, ...]]]:
    for closure in closures:
        for entry in closure.entries:
            for triple in entry.types.custom if entry.types else ():
                yield entry, triple


def told(text: str) -> dict[Key, dict[str, object] | None]:
    """The json of the last line that names an operator, as upstream reads it; None: all types."""
    found: dict[Key, dict[str, object] | None] = {}
    for line in text.splitlines():
        domain, _, names = line.split(";", 2)
        for name, data in OPERATOR.findall(names):
            found[domain, name] = json.loads(data) if data else None
    return found


@given(several)
def test_the_text_keeps_every_type_of_every_model(closures: list[Closure]) -> None:
    rows = told(render(union(*closures), types=True))
    for entry, (side, index), name in needed(closures):
        types = rows[entry.key]
        if types is not None:
            places = types.get(side, {})
            assert isinstance(places, dict)
            assert name in places[str(index)]
    for entry, triple in triples(closures):
        types = rows[entry.key]
        if types is not None:
            custom = types["custom"]
            assert isinstance(custom, list)
            assert list(triple) in custom


@given(several)
def test_a_build_of_the_text_keeps_every_type_of_every_model(closures: list[Closure]) -> None:
    built = {entry.place: entry for entry in as_built(render(union(*closures), types=True)).entries}
    for closure in closures:
        for entry in closure.entries:
            kept = built[entry.place].types
            if kept is not None:
                assert entry.types is not None  # every type is not some types
                assert kept.merged(entry.types) == kept


@given(several)
@shared_folder
def test_onnxruntimes_own_parser_keeps_every_type_of_every_model(
    tmp_path: Path, closures: list[Closure]
) -> None:
    from onnxruntime.tools import reduced_build_config_parser

    path = tmp_path / "merged.config"
    path.write_text(render(union(*closures), types=True))
    required, kept = reduced_build_config_parser.parse_config(str(path), True)
    lines = kept.get_cpp_entries() if kept else []
    matches = [match for match in map(LINE.fullmatch, lines) if match]
    allowed = {
        (DOMAINS[match[1]], match[2], f"{match[3].lower()}s", int(match[4])): match[5].split(", ")
        for match in matches
    }
    for closure in closures:
        for entry in closure.entries:
            assert entry.operator in required[entry.domain][entry.opset]
            if entry.types is None:
                assert not [key for key in allowed if key[:2] == entry.key]
    for entry, (side, index), name in needed(closures):
        assert name in allowed.get((*entry.key, side, index), [name])
    for entry, triple in triples(closures):
        name = "_".join(triple).replace("std::", "")
        assert kept is None or kept.is_typed_registration_needed(*entry.key, name)
