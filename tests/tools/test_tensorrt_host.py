"""What a machine says of its GPU and its TensorRT, and what it lacks for a plan."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.tools import tensorrt_host
from edge.tools.tensorrt_host import Host, missing, release, survey

GPU = "NVIDIA GeForce RTX 3060 Laptop GPU, 8.6, 580.95.05"
HEADER = "&&&& RUNNING TensorRT.trtexec [TensorRT v101601] [b11] # trtexec --help\n=== Model ==="


class Machine:
    """Answers by a command's first word, or its place."""

    def __init__(self, **answers: str) -> None:
        self.answers = {name.replace("_", "-"): text for name, text in answers.items()}
        self.asked: list[str] = []

    def __call__(self, words: Sequence[str]) -> str | None:
        self.asked.append(words[0])
        return self.answers.get(words[0].rpartition("/")[2] if "src" in words[0] else words[0])


def test_a_machine_with_trtexec() -> None:
    host = survey(Machine(nvidia_smi=GPU, trtexec=HEADER), "trtexec")
    assert host == Host(
        "NVIDIA GeForce RTX 3060 Laptop GPU", "8.6", "580.95.05", "10.16.1", "trtexec"
    )
    assert set(host.versions()) == {"gpu", "compute_capability", "tensorrt"}


def test_trtexec_is_looked_for_where_packages_put_it() -> None:
    class Packaged(Machine):
        def __call__(self, words: Sequence[str]) -> str | None:
            self.asked.append(words[0])
            return HEADER if words[0] == "/usr/src/tensorrt/bin/trtexec" else None

    machine = Packaged()
    assert survey(machine, "trtexec").program == "/usr/src/tensorrt/bin/trtexec"
    assert machine.asked[1] == "trtexec"


def test_a_machine_with_the_python_package() -> None:
    said = "[TRT] [W] something\ntensorrt 10.16.1.11"
    host = survey(Machine(nvidia_smi=GPU, python3=said), "python")
    assert (host.tensorrt, host.program) == ("10.16.1.11", "python3")


def test_the_first_of_several_gpus() -> None:
    two = f"{GPU}\nNVIDIA H200, 9.0, 580.95.05"
    assert survey(Machine(nvidia_smi=two), "trtexec").compute_capability == "8.6"


@pytest.mark.parametrize(
    ("number", "words"),
    [("8601", "8.6.1"), ("8501", "8.5.1"), ("101303", "10.13.3"), ("110400", "11.4.0")],
)
def test_releases_as_trtexec_numbers_them(number: str, words: str) -> None:
    assert release(number) == words


@given(st.text(max_size=200))
def test_nonsense_is_no_gpu_and_no_release(text: str) -> None:
    host = survey(Machine(nvidia_smi=text, trtexec=text), "trtexec")
    assert host.gpu == "" or ", " in text
    assert host.tensorrt == "" or "[TensorRT v" in text


# ---------------------------------------------------------------------------------- lacks
HERE = Host("NVIDIA L4", "8.9", "580.95.05", "10.16.1", "trtexec")


def test_nothing_is_missing() -> None:
    assert missing(HERE, "trtexec", "10.16.1.11", ()) == {}
    assert missing(HERE, "trtexec", "10.16.1.11", ("8.6", "8.9")) == {}


def test_everything_is_missing_at_once() -> None:
    lacks = missing(Host(), "python", "10.16.1.11", ())
    assert list(lacks) == ["an NVIDIA GPU (nvidia-smi)", "the Python package tensorrt 10.16.1"]


def test_another_gpu_than_the_target_is_for() -> None:
    (lack,) = missing(HERE, "trtexec", "10.16.1.11", ("8.6",)).items()
    assert lack[0] == "a GPU of compute capability 8.6"
    assert "NVIDIA L4 (8.9)" in lack[1]


def test_another_tensorrt_than_the_target_is_for() -> None:
    (lack,) = missing(HERE, "trtexec", "10.9.0.34", ()).items()
    assert lack[0] == "TensorRT 10.9.0"
    assert "it has 10.16.1" in lack[1]
    assert tensorrt_host.PROGRAM == "trtexec"
