from __future__ import annotations

import json
import random
import re
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from edge import errors, process
from edge.closure import Closure, Entry, operators
from edge.closure.coverage import cover
from edge.closure.operators import OPEN
from edge.closure.reduction import Options, kept
from edge.closure.registrations import Registration, Tables, load, parse
from edge.closure.text import as_built
from tests.closure.small_tables import ARM, TABLES, X64, at, kernel, need


def test_globally_allowed_types_drop_every_kernel_of_several_types() -> None:
    # The runtime's tool compares the whole tag of a registration with single types.
    gather = kernel("Gather", 1, OPEN, "UInt4x2", "int32_t", domain="com.microsoft")
    table = Tables((gather, kernel("Dropout", 13, OPEN, "float", "float")))
    offered = Closure(
        (Entry("com.microsoft", "Gather", 1), Entry("", "Dropout", 13)), ("float", "int32_t")
    )
    assert kept(offered, table, Options()) == ()
    assert len(kept(offered, table, Options(types=False))) == 2


def test_a_registration_that_the_tool_does_not_see_is_always_kept() -> None:
    table = Tables(
        (replace(kernel("Abs", 13, OPEN, "float"), reducible=False), kernel("Abs", 6, 12))
    )
    assert [each.start for each in kept(Closure((), ("bool",)), table, Options())] == [13]


def test_a_configuration_that_the_tool_would_stop_at_is_refused() -> None:
    offered = need("Where", 16, at(0, "bool"))
    with pytest.raises(errors.ConfigError, match=r"ai\.onnx Where, and none for input 1"):
        cover(need("Add", 14), offered, TABLES, Options())
    with pytest.raises(errors.ConfigError, match="the build would stop there"):
        kept(offered, TABLES, Options())
    assert kept(offered, TABLES, Options(types=False))
    assert kept(need("Where", 9, at(0, "bool")), TABLES, Options()) == ()


@pytest.fixture(scope="session")
def real(ort_source: Path) -> Tables:
    return load(ort_source)


def active(folder: Path) -> list[Registration]:
    """What is left of the tables in a build folder; with the file's conditions alone."""
    found: list[Registration] = []
    for path in sorted((folder / "op_reduction.generated").rglob("*.cc")):
        text = path.read_text(encoding="utf-8")
        if re.search(r"^\s*BuildKernelCreateInfo<ONNX", text, re.MULTILINE):
            found += parse(text, path.name)
    return found


def plain(found: Iterable[Registration]) -> list[tuple[object, ...]]:
    return sorted((each.domain, each.operator, each.start, each.end, each.types) for each in found)


@pytest.mark.process
@pytest.mark.parametrize("extended", [False, True], ids=["base", "extended"])
@pytest.mark.parametrize("config", [X64, ARM], ids=["x64", "arm"])
def test_the_runtimes_own_tool_keeps_the_same(
    ort_source: Path, real: Tables, tmp_path: Path, config: str, extended: bool
) -> None:
    (tmp_path / "config").write_text(config)
    words = [sys.executable, "-B", str(ort_source / "tools/ci_build/reduce_op_kernels.py")]
    words += [str(tmp_path / "config"), "--cmake_build_dir", str(tmp_path / "build")]
    words += ["--enable_type_reduction"]
    words += ["--is_extended_minimal_build_or_higher"] if extended else []
    process.run(words, timeout=120)
    theirs = active(tmp_path / "build")
    ours = kept(as_built(config), real, Options("extended" if extended else "base"))
    assert plain(theirs) == plain(ours)
    assert 40 < len(ours) < 200


MANY = """
import json, logging, sys
sys.path.insert(0, sys.argv[1])
from reduce_op_kernels import reduce_ops
logging.disable()
for config, folder, types, extended in json.load(sys.stdin):
    reduce_ops(config, folder, types, False, extended)
"""


def random_types(dice: random.Random, tracked: operators.Tracked) -> dict[str, object]:
    names = list(operators.CPP_TYPES.values())
    if tracked.custom:
        return {"custom": [dice.choices(names, k=3) for _ in range(30)]}
    return {
        side: {str(index): dice.sample(names, dice.randrange(1, 5)) for index in places}
        for side, places in (("inputs", tracked.inputs), ("outputs", tracked.outputs))
        if places
    }


def random_config(dice: random.Random, table: Tables) -> str:
    """A configuration of operators of the table, with types of all kinds and second lines."""
    keys = sorted({each.key for each in table.registrations})
    lines = []
    whole = dice.random() < 0.25
    if whole:
        lines.append(
            "!globally_allowed_types;"
            + ",".join(dice.sample(list(operators.CPP_TYPES.values()), 6))
        )
    if dice.random() < 0.1:
        return "\n".join([*lines, "!no_ops_specified_means_all_ops_are_required"])
    for _ in range(dice.randrange(1, 60)):
        domain, operator = dice.choice(keys)
        tracked = operators.TRACKED.get((domain, operator), operators.Tracked())
        types = ""
        if not whole and dice.random() < 0.6:
            types = json.dumps(random_types(dice, tracked))
        lines.append(f"{domain};{dice.randrange(1, 23)};{operator}{types}")
    return "\n".join(lines)


@pytest.mark.process
def test_the_runtimes_own_tool_keeps_the_same_of_many_configurations(
    ort_source: Path, real: Tables, tmp_path: Path
) -> None:
    dice = random.Random(16742)  # the same configurations each time
    cases = []
    for number in range(24):
        config = tmp_path / f"{number}.config"
        config.write_text(random_config(dice, real))
        how = Options(dice.choice(("base", "extended")), types=dice.random() < 0.8)
        cases.append((config, tmp_path / str(number), how))
    calls = [[str(a), str(b), how.types, how.minimal == "extended"] for a, b, how in cases]
    words = [sys.executable, "-B", "-c", MANY, str(ort_source / "tools/ci_build")]
    process.run(words, timeout=300, stdin=json.dumps(calls).encode())
    known = operators.Vocabulary({}, {}).extended(
        (each.domain, each.operator, opset) for each in real.registrations for opset in (1, 22)
    )
    for config, folder, how in cases:
        offered = as_built(config.read_text(), vocabulary=known)
        assert plain(active(folder)) == plain(kept(offered, real, how)), config.read_text()


@pytest.mark.process
def test_the_runtimes_own_tool_stops_where_we_say_that_it_does(
    ort_source: Path, real: Tables, tmp_path: Path
) -> None:
    config = 'ai.onnx;16;Where{"inputs": {"0": ["bool"]}}\n'
    (tmp_path / "config").write_text(config)
    calls = [[str(tmp_path / "config"), str(tmp_path / "build"), True, False]]
    words = [sys.executable, "-B", "-c", MANY, str(ort_source / "tools/ci_build")]
    done = process.run(words, timeout=120, stdin=json.dumps(calls).encode(), check=False)
    assert done.returncode == 1
    assert "KeyError: 1" in done.stderr
    with pytest.raises(errors.ConfigError, match="the build would stop there"):
        kept(as_built(config), real, Options())
