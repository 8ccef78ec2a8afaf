"""What the C and the Python runner make of runner/options.tsv, with ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import onnxruntime
import pytest

from tests import test_runners
from tests.test_runners import HOSTILE, Runner, both

pytestmark = pytest.mark.process
c_runner, runner = test_runners.c_runner, test_runners.runner
bundle = test_runners.bundle
AZURE = "AzureExecutionProvider"
HEX = "0123456789abcdef"


def tell(bundle: Path, text: str) -> None:
    (bundle / "runner").mkdir(exist_ok=True)
    (bundle / "runner" / "options.tsv").write_bytes(text.encode())


@both
@pytest.mark.parametrize(
    "text",
    [
        "",
        f"runner.cuda_graph\t0\nrunner.engine_key\t{HEX}\nrunner.least_nodes\t0.95\n",
        "runner.least_nodes\t1.0",
        f"runner.least_nodes\t{0.1 + 0.2!r}",
        "session.session.disable_prepacking\t1\n",
        f"session.x\t{'é' * 4000}\n",
        "".join(f"session.x{number}\t{'v' * 4000}\n" for number in range(200)),
    ],
)
def test_known_options_are_taken(runner: Runner, bundle: Path, text: str) -> None:
    tell(bundle, text)
    assert runner.good("--bundle", bundle, "--check-only")


@both
@pytest.mark.parametrize(
    "text",
    [
        "\n",
        "provider.x",
        "provider.x\t1\t2",
        "provider.x\t1\r\n",
        "provider.x\t\0",
        "provider.x\t1\n\0provider.y\t1\n",
        "\t1",
        "provider.\t1",
        "provider.1\t1",
        "provider._\t1",
        "provider.a/b\t1",
        f"provider.{'a' * 101}\t1",
        f"provider.{HOSTILE}\t1",
        "other.x\t1",
        "runner\t1",
        "runners.cuda_graph\t1",
        "runner.speed\t9",
        "runner.threads\t1",
        "runner.cuda_graph\t",
        "runner.cuda_graph\t2",
        "runner.cuda_graph\tyes",
        "runner.cuda_graph\t0.5",
        "runner.cuda_graph\t0\nrunner.cuda_graph\t0",
        "runner.least_nodes\t",
        "runner.least_nodes\t2",
        "runner.least_nodes\t1.5",
        "runner.least_nodes\t01",
        "runner.least_nodes\t0.",
        "runner.least_nodes\t0..5",
        "runner.least_nodes\t.5",
        "runner.least_nodes\t0,5",
        f"runner.least_nodes\t0.{'9' * 21}",
        "runner.engine_key\tDEADBEEFDEADBEEF",
        f"runner.engine_key\t{HEX[:15]}",
        f"runner.engine_key\t{HEX * 9}",
        "runner.engine_key\t../../0123456789",
        "provider.x\t1\nprovider.x\t2",
        "session.x\t1\nsession.x\t1",
        "".join(f"provider.x{number}\t1\n" for number in range(201)),
    ],
)
def test_other_options_are_refused(runner: Runner, bundle: Path, text: str) -> None:
    tell(bundle, text)
    stage, message = runner.bad("--bundle", bundle)
    assert stage == "bundle"
    assert "options.tsv" in message


@both
def test_options_are_a_file_of_a_sane_size(runner: Runner, bundle: Path) -> None:
    tell(bundle, "x" * (9 << 20))
    assert "no file of a sane size" in runner.bad("--bundle", bundle)[1]
    (bundle / "runner" / "options.tsv").unlink()
    (bundle / "runner" / "options.tsv").mkdir()
    assert "options.tsv" in runner.bad("--bundle", bundle)[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runner.cuda_graph\t1", "only the Python runner captures CUDA graphs"),
        ("provider.trt_engine_cache_enable\t1", "trt_engine_cache_enable is not the bundle's"),
        ("provider.enable_cuda_graph\t1", "enable_cuda_graph is not the bundle's to set"),
    ],
)
def test_what_this_runner_does_not_do(
    c_runner: Runner, bundle: Path, text: str, message: str
) -> None:
    tell(bundle, text)
    found = c_runner.bad("--bundle", bundle)
    assert (found[0], message in found[1]) == ("bundle", True), found


def test_openvinos_provider_is_for_the_python_runner(c_runner: Runner, bundle: Path) -> None:
    """Else a missing device would be the CPU, and the threads that are told not those that ran."""
    found = c_runner.bad("--bundle", bundle, "--provider", "OpenVINOExecutionProvider")
    assert (found[0], "only the Python runner" in found[1]) == ("bundle", True), found


def test_fewer_nodes_than_all_do_not_forbid_the_cpu(c_runner: Runner, bundle: Path) -> None:
    if AZURE not in onnxruntime.get_available_providers():
        pytest.skip("needs an onnxruntime with the Azure provider, which runs no node of its own")
    words = ("--bundle", bundle, "--check-only", "--provider", AZURE)
    tell(bundle, "runner.least_nodes\t1.0\n")
    assert c_runner.bad(*words)[0] == "load"
    tell(bundle, "runner.least_nodes\t0.5\n")
    assert c_runner.good(*words)


def test_entries_reach_the_session(c_runner: Runner, bundle: Path) -> None:
    tell(bundle, "session.session.load_model_format\tORT\n")  # which model.onnx is not in
    stage, _ = c_runner.bad("--bundle", bundle)
    assert stage == "load"


def test_the_cache_is_a_folder_that_is_there(c_runner: Runner, bundle: Path) -> None:
    for path in ("nowhere", "model.onnx"):
        stage, message = c_runner.bad("--bundle", bundle, "--cache", bundle / path)
        assert (stage, message.endswith(f"{path} is no folder")) == ("arguments", True)
    events = c_runner.good("--bundle", bundle, "--check-only", "--cache", bundle)
    assert set(events[1]) == {"event", "ns"}  # ONNX Runtime on the CPU keeps nothing
