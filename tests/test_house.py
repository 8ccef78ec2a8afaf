"""The house: imports point down only, one place for processes, two for printing."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from edge import process

ROOT = process.PACKAGE_PARENT
# Lowest first; a module may import from its own row and from rows below.
ROWS = (
    ("errors", "log", "process", "step"),
    ("config", "model", "store", "bundle", "samples", "graph", "parity", "stats", "protocol",
     "placement", "closure", "choice", "choice_record", "pareto"),
    ("job", "devices"),
    ("sources", "convert", "tools", "probe"),
    ("recipe", "registry", "prepare", "manifest", "assemble", "deploy", "bench", "rounds",
     "bench_apple", "results", "project", "runtime_making", "context", "misfit", "runners"),
    ("report", "report_sides", "report_variants", "report_files", "pipeline", "variants",
     "variant_times", "explain", "closures", "field", "field_apple", "containers"),
    ("options",),
    ("cli_field", "cli_known", "cli_container"),
    ("cli", "__main__"),
)  # fmt: skip
LEVEL = {name: level for level, names in enumerate(ROWS) for name in names}
FILES = sorted((ROOT / "edge").rglob("*.py"))
RECIPES = sorted((ROOT / "recipes").glob("*.py"))
HEAVY = {"torch", "tensorflow", "keras", "tf2onnx", "h5py", "sklearn", "skl2onnx", "onnxmltools",
         "skops", "joblib", "xgboost", "lightgbm", "onnxruntime", "onnx", "openvino",
         "nncf", "tensorrt", "tensorrt_rtx", "coremltools", "paramiko",
         "numpy", "onnxslim", "matplotlib", "rich", "jinja2", "elftools"}  # fmt: skip


def top(path: Path) -> str:
    return path.relative_to(ROOT / "edge").with_suffix("").parts[0]


def imported(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    if path == ROOT / "edge" / "__init__.py":
        return
    own = LEVEL[top(path)]
    for name in imported(ast.parse(path.read_text())):
        parts = name.split(".")
        if parts[0] == "edge" and len(parts) > 1 and parts[1] != "__version__":
            assert LEVEL[parts[1]] <= own, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.name)
def test_recipes_import_only_what_they_may(path: Path) -> None:
    allowed = {"job", "bundle", "convert", "tools", "errors", "store", "config"}
    for name in imported(ast.parse(path.read_text())):
        parts = name.split(".")
        assert parts[0] not in HEAVY, f"{path.name} imports {name}"
        assert parts[0] != "edge" or parts[1] in allowed, f"{path.name} imports {name}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_heavy_libraries_are_imported_in_functions(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for node in tree.body:
        names = imported(node) if isinstance(node, ast.Import | ast.ImportFrom) else set()
        assert not {name.split(".")[0] for name in names} & HEAVY


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_processes_and_prints_have_their_places(path: Path) -> None:
    tree = ast.parse(path.read_text())
    name = path.relative_to(ROOT / "edge").as_posix()
    calls = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert "print" not in calls
    assert ("subprocess" in imported(tree)) == (name == "process.py")


def test_every_module_has_a_row() -> None:
    assert {top(path) for path in FILES} - {"__init__"} <= set(LEVEL)
