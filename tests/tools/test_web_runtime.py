"""The browser's runtime, and what the page and the runner compute as Python does."""

from __future__ import annotations

import http.client
import importlib.util
import json
import random
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge import errors, parity, process, samples, stats
from edge.convert.render import render
from edge.tools import web_runtime
from tests.support import need

TEMPLATE = Path(__file__).resolve().parents[2] / "templates" / "browser"
VARIABLES = {
    "model_name": "mlp",
    "model_version": "1",
    "artifact": "model.onnx",
    "runtime": [web_runtime.bundle_path(member) for member in web_runtime.provider("wasm").members],
    "runtime_version": "1.30.0",
    "provider": "CPUExecutionProvider",
    "tolerance": {
        **dict.fromkeys(("max_rel", "sqnr_db", "argmax")),
        "max_abs": 1e-4,
        "floor": 1e-3,
    },
    "downloads": [{"path": "model.onnx", "raw": 1234567, "compressed": 1000}],
}

Array = np.ndarray[Any, Any]


def test_a_wasm_page_needs_two_files_the_module_first() -> None:
    assert web_runtime.provider("wasm").members == (
        "package/dist/ort.wasm.bundle.min.mjs",
        "package/dist/ort-wasm-simd-threaded.wasm",
    )


def test_onnx_runtimes_own_name_of_the_wasm_provider_is_known() -> None:
    assert (
        web_runtime.provider("CPUExecutionProvider").members == web_runtime.provider("wasm").members
    )


def test_an_unknown_provider_is_named_with_the_known_ones() -> None:
    with pytest.raises(errors.ConfigError, match="'webgl'") as caught:
        web_runtime.provider("webgl")
    assert "wasm, webgpu-jspi, webgpu-asyncify" in caught.value.remedy


def test_webgpu_is_told_but_not_ready() -> None:
    # microsoft/onnxruntime#23072: ORT-format models do not work there.
    for name in ("webgpu-jspi", "webgpu-asyncify"):
        row = web_runtime.provider(name)
        assert (row.ready, row.formats, row.session_name) == (False, ("onnx",), "webgpu")
        assert row.execution_provider == "WebGpuExecutionProvider"


def test_every_provider_is_two_files_of_dist() -> None:
    for row in web_runtime.PROVIDERS.values():
        module, wasm = row.members
        assert re.fullmatch(r"package/dist/ort\.\w+\.bundle\.min\.mjs", module)
        assert re.fullmatch(r"package/dist/ort-wasm-simd-threaded(\.\w+)?\.wasm", wasm)
        assert web_runtime.bundle_path(wasm) == f"runtime/{row.wasm}"


# ------------------------------------------------------- the same rules in two languages
def in_node(code: str, value: Any) -> Any:
    """What ``code`` (an ES module's body) prints as JSON for ``value``, bound to ``given``."""
    head = "import { readFileSync } from 'node:fs'; const given = JSON.parse(readFileSync(0));\n"
    argv: list[str | Path] = [need("node"), "--input-type=module", "--eval", head + code]
    return json.loads(process.run(argv, timeout=60, stdin=json.dumps(value).encode()).stdout)


def importing(names: str, module: str) -> str:
    return f"import {{ {names} }} from {json.dumps((TEMPLATE / module).as_uri())};\n"


GOOD = ["0", "input", "0", "float32", "1x3x48", "000.input.0.bin", "x"]
HOSTILE = (
    "", "-", "-1", "+1", "0", "00", "01", "1e3", "0x10", "1.0", " 1", "1 ", "\u0661", "12345678901",
    "99999999999", "9999999999", "in put", "Input", "output", "float", "float64", "string", "bool",
    "toString", "__proto__", "constructor", "2x", "x2", "2xx2", "-x2", "2147483648", "2147483647",
    "0x9999999999", "65536x65536", "x".join(["1"] * 32), "x".join(["1"] * 33),
    "x".join(["9999999999"] * 32), "x".join(["9999999999"] * 31 + ["0"]), "..", ".", "...", "a..b",
    "../x", "a/b", "a\\b", "/etc/passwd", "a\0b", "a b", "\u00e4", ".hidden", "a\u2028b", "a\tb",
)  # fmt: skip


def hostile_lines() -> list[str]:
    """Every hostile word in every field of a good line, and some of several at once."""
    lines = ["\t".join(GOOD), "\t".join(GOOD[:6]), "\t".join([*GOOD, ""]), "", "\t" * 6]
    for place in range(6):  # names are free, but for line breaks
        lines += ["\t".join([*GOOD[:place], word, *GOOD[place + 1 :]]) for word in HOSTILE]
    chance = random.Random(0)
    lines += ["\t".join([*chance.choices(HOSTILE, k=6), "name"]) for _ in range(200)]
    return lines


def accepts(line: str) -> list[Any] | None:
    try:
        tensor = samples.parse_line(line, "here")
    except errors.RunFailed:
        return None
    return [tensor.sample, tensor.index, list(tensor.shape), tensor.nbytes]


@pytest.mark.node
def test_the_index_is_read_as_python_reads_it() -> None:
    lines = hostile_lines()
    code = importing("parseSamples", "runner/samples.mjs")
    code += """
      const read = (line) => {
        try {
          const [t] = parseSamples(new TextEncoder().encode(line + "\\n"));
          return [t.sample, t.index, t.dims, t.nbytes];
        } catch (error) {
          return error.stage === "bundle" ? null : String(error);
        }
      };
      console.log(JSON.stringify(given.map(read)));"""
    expected = [accepts(line) for line in lines]
    assert len([one for one in expected if one]) > 20  # the good ones are many enough to tell
    assert in_node(code, lines) == expected


def parity_cases() -> list[tuple[Array, Array, dict[str, Any]]]:
    """(expected, actual, tolerance) for the comparison in both languages."""
    rng = np.random.default_rng(3)
    e = rng.standard_normal((4, 5)).astype(np.float32)
    nan, inf = e.copy(), e.copy()
    nan[1, 2], inf[0, 0] = np.nan, np.inf
    noisy = [e + (rng.standard_normal(e.shape) * s).astype(np.float32) for s in (1e-6, 1e-3, 1.0)]
    pairs: list[tuple[Array, Array]]
    others: list[Array] = [e, *noisy, nan, inf, e.T, e.astype(np.float64), e[::-1]]
    pairs = [(e, a) for a in others]
    pairs += [(nan, nan), (inf, inf), (inf, -inf), (nan, e), (np.full_like(e, np.nan),) * 2]
    pairs += [(e.astype(np.float16), a.astype(np.float16)) for a in (*noisy, nan)]
    pairs += [(e * 0, e * 0), (e * 0, noisy[0]), (e[:0], e[:0])]
    big = np.array([2**62, 5], np.int64)
    pairs += [(big, big), (big, big + np.array([1, 0])), (big.astype(np.uint64), big)]
    pairs += [(big > 9, big > 9), (big > 9, big < 9), (big % 251, (big + 2) % 251)]
    limits: list[dict[str, Any]] = [
        {}, {"max_abs": 1e-4}, {"max_rel": 1e-3}, {"max_abs": 1e-4, "max_rel": 1e-3},
        {"sqnr_db": 40.0}, {"argmax": 0.9}, {"max_abs": 2.0}, {"max_abs": 1e-2, "argmax": 1.0},
    ]  # fmt: skip
    return [(x, y, limit) for x, y in pairs for limit in limits]


def plain(array: Array) -> dict[str, Any]:
    return {"dtype": array.dtype.name, "dims": list(array.shape), "hex": array.tobytes().hex()}


@pytest.mark.node
def test_outputs_are_judged_as_python_judges_them() -> None:
    cases = parity_cases()
    code = importing("compare", "app/compare.mjs") + importing("valuesOf", "runner/samples.mjs")
    code += """
      const bytes = ({ hex }) => Uint8Array.from(Buffer.from(hex, "hex"));
      console.log(JSON.stringify(given.map(({ e, a, tolerance }) => compare(
        { type: a.dtype, dims: a.dims, data: valuesOf(a.dtype, bytes(a)) },
        { ...e, bytes: bytes(e) }, tolerance).ok)));"""
    given, expected = [], []
    for wanted, actual, limits in cases:
        tolerance = parity.Tolerance(**limits)
        said = {"floor": tolerance.floor, **limits}
        given.append({"e": plain(wanted), "a": plain(actual), "tolerance": said})
        found = parity.measure(wanted, actual, tolerance)
        expected.append(not parity.verdict(found, tolerance))
    assert 20 < sum(expected) < len(expected) - 20
    assert in_node(code, given) == expected


@pytest.mark.node
def test_the_page_summarizes_as_python_does() -> None:
    rng = np.random.default_rng(5)
    series = [(rng.lognormal(15, 0.2, n)).astype(np.int64).tolist() for n in (1, 29, 30, 150, 1200)]
    code = importing("summary", "app/tables.mjs") + "\n"
    code += "console.log(JSON.stringify(given.map((s) => summary(s))));"
    for told, times in zip(in_node(code, series), series, strict=True):
        wanted = stats.summarize([stats.Loop(tuple(times), sum(times))])
        assert told["median"] == wanted.median_ns
        assert told["least"] == wanted.min_ns
        assert told["p90"] == (wanted.p90_ns and pytest.approx(wanted.p90_ns))
        assert told["p99"] == (wanted.p99_ns and pytest.approx(wanted.p99_ns))
        if wanted.low_ns is None or wanted.high_ns is None:
            assert told["interval"] is None
            continue
        # Two random number generators: at 30 samples a bound may be one sample further out.
        close = pytest.approx(
            [wanted.low_ns, wanted.high_ns], rel=0.15 if len(times) < 99 else 0.02
        )
        assert told["interval"] == close


# ------------------------------------------------------------------ measuring, by a fake clock
CLOCK = importing("batchFor, timedLoop, timerTick, warmUp", "runner/edge_runner.mjs")
CLOCK += """
  let time = 0;
  const now = () => time;
  const costing = (costs) => async () => { time += costs.length > 1 ? costs.shift() : costs[0]; };
  const host = { now, cpu: () => time / 2, switches: () => -1 };
  const options = { warmup: 3, "warmup-ns": 0, "warmup-limit-ns": 10000, iterations: 5,
    "min-ns": 0, "max-ns": 1e9, ...given.options };
"""


@pytest.mark.node
@pytest.mark.parametrize(
    ("costs", "runs", "stable"),
    [
        ([100] * 20, 20, True),
        ([200] * 10 + [100], 30, True),  # the first windows differ, the next two agree
        ([40] * 10 + [30] * 10 + [20] * 10 + [10], 50, True),
        ([1000 * 2**n for n in range(20)], 4, False),  # until the limit of 10 us
    ],
)
def test_warm_up_goes_on_until_it_is_stable(costs: list[int], runs: int, stable: bool) -> None:
    code = CLOCK + "console.log(JSON.stringify(await warmUp(costing(given.costs), options, now)));"
    found = in_node(code, {"costs": costs, "options": {}})
    assert (found["runs"], found["stable"]) == (runs, stable)
    assert found["ns"] == sum((costs + costs[-1:] * runs)[:runs])


@pytest.mark.node
@pytest.mark.parametrize(
    ("options", "batch", "runs"),
    [({}, 1, 5), ({"min-ns": 800}, 1, 8), ({"max-ns": 300}, 1, 3), ({"max-ns": 0}, 1, 1),
     ({"iterations": 7}, 3, 9)],
)  # fmt: skip
def test_the_timed_loop_keeps_its_limits(options: dict[str, int], batch: int, runs: int) -> None:
    code = CLOCK + "const once = costing([100]);"
    code += "console.log(JSON.stringify(await timedLoop(once, options, host, given.batch)));"
    found = in_node(code, {"options": options, "batch": batch})
    assert found["samples"] == [100] * (runs // batch)
    assert (found["runs"], found["wall_ns"], found["cpu_ns"]) == (runs, runs * 100, runs * 50)
    assert found["involuntary_switches"] == -1


@pytest.mark.node
@pytest.mark.parametrize(
    ("costs", "tick", "batch"),
    [
        ([27_000_000], 100_000, 1),
        ([1_000_000], 100_000, 10),
        ([1_000_000], 5_000, 1),
        ([35_000], 5_000, 16),
        ([8_000_000, 35_000], 5_000, 16),  # an interruption in the first reading misleads nobody
        ([1], 1_000_000, 10_000),  # never more
        ([1], 0, 1),  # Node's clock: every run is read on its own
    ],
)
def test_runs_are_batched_where_the_clock_is_coarse(
    costs: list[int], tick: int, batch: int
) -> None:
    code = CLOCK
    code += "const coarse = () => Math.floor(time / Math.max(given.tick, 1)) * given.tick;"
    code += "console.log(await batchFor(costing(given.costs), coarse, given.tick));"
    assert in_node(code, {"costs": costs, "tick": tick}) == batch


@pytest.mark.node
def test_the_timers_tick_is_its_smallest_step() -> None:
    code = CLOCK + "const coarse = () => Math.floor((time += 1) / 7) * 100000;"
    assert in_node(code + "console.log(timerTick(coarse));", {}) == 100_000


# -------------------------------------------------------------------------------- the page
def rendered(out: Path, **changed: Any) -> Path:
    """The folder ``app`` of a bundle."""
    render(TEMPLATE, out, {**VARIABLES, **changed})
    return out / "app"


def test_a_hostile_name_stays_text_in_the_page(tmp_path: Path) -> None:
    name = "</script><script>alert(1)</script>"
    page = (rendered(tmp_path, model_name=name) / "index.html").read_text()
    assert "<script>alert" not in page
    found = re.search(r'<script type="application/json" id="config">\n(.*)\n</script>', page)
    assert found
    config = json.loads(found[1])
    assert config["name"] == name
    assert config["runtime"][0] == "runtime/ort.wasm.bundle.min.mjs"
    assert config["tolerance"] == VARIABLES["tolerance"]


@pytest.mark.parametrize("name", sorted(VARIABLES))
def test_a_variable_left_out_is_an_error(tmp_path: Path, name: str) -> None:
    rest = {key: value for key, value in VARIABLES.items() if key != name}
    with pytest.raises(errors.ConfigError, match=f"'{name}' is undefined"):
        render(TEMPLATE, tmp_path, rest)


def test_the_readme_lists_what_to_upload_and_how_to_load_it(tmp_path: Path) -> None:
    text = (rendered(tmp_path) / "README.md").read_text()
    assert "| model\\.onnx | 1,234,567 | 1,000 |" in text.splitlines()
    assert 'import * as ort from "./runtime/ort.wasm.bundle.min.mjs";' in text
    assert 'ort.InferenceSession.create("./model.onnx", {' in text


def test_every_import_and_link_of_the_template_is_there() -> None:
    text = {path: path.read_text() for path in TEMPLATE.rglob("*") if path.suffix == ".mjs"}
    page = TEMPLATE / "app" / "index.html.j2"
    text[page] = page.read_text()
    pattern = r'(?:from |new URL\(|src=|href=)"((?:\.{1,2}/)?[\w./-]+\.(?:mjs|css))"'
    links = [(path, link) for path, body in text.items() for link in re.findall(pattern, body)]
    assert len(links) > 8
    assert [link for path, link in links if not (path.parent / link).is_file()] == []


def test_nothing_is_loaded_from_another_host() -> None:
    for path in TEMPLATE.rglob("*"):
        if path.suffix in {".mjs", ".css", ".j2"} and path.name != "README.md.j2":
            assert "://" not in path.read_text(), path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[http.client.HTTPConnection]:
    """``app/serve.py`` of a bundle, on a free port."""
    shutil.copytree(TEMPLATE / "app", tmp_path / "app")
    (tmp_path / "runtime").mkdir()
    (tmp_path / "runtime" / "ort.wasm").write_bytes(b"\0asm")
    spec = importlib.util.spec_from_file_location("serve", tmp_path / "app" / "serve.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with module.make_server(0) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        connection = http.client.HTTPConnection("127.0.0.1", running.server_port, timeout=10)
        yield connection
        connection.close()
        running.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/app/page.mjs", 200, "text/javascript"),
        ("/runtime/ort.wasm", 200, "application/wasm"),
        ("/app/style.css", 200, "text/css"),
        ("/manifest.json", 404, "text/html;charset=utf-8"),
        ("/../../etc/passwd", 404, "text/html;charset=utf-8"),
    ],
)
def test_the_server_says_types_and_isolates(
    server: http.client.HTTPConnection, path: str, status: int, kind: str
) -> None:
    server.request("GET", path)
    answer = server.getresponse()
    answer.read()
    assert (answer.status, answer.headers["Content-Type"]) == (status, kind)
    assert answer.headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert answer.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
    assert "'wasm-unsafe-eval'" in answer.headers["Content-Security-Policy"]


def test_the_server_leads_to_the_page(server: http.client.HTTPConnection) -> None:
    server.request("GET", "/?autorun&threads=2")
    answer = server.getresponse()
    answer.read()
    assert (answer.status, answer.headers["Location"]) == (302, "/app/?autorun&threads=2")
