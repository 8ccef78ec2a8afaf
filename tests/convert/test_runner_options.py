"""``runner/options.tsv``: what runners of every language read."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.convert.runner_options import OPTIONS, PATH, options_file, runner_options
from tests.convert import fake_job


def written(folder: Path, options: dict[str, str]) -> bytes:
    options_file.function(folder, options=options)
    return (folder / OPTIONS).read_bytes()


def test_one_line_an_option_sorted_by_key(tmp_path: Path) -> None:
    options = {"session.b.c": "x y", "provider.A": "", "runner.cuda_graph": "1"}
    assert written(tmp_path, options) == (b"provider.A\t\nrunner.cuda_graph\t1\nsession.b.c\tx y\n")


def test_text_is_utf8_and_lines_end_alike_on_every_host(tmp_path: Path) -> None:
    assert (
        written(tmp_path, {"provider.CACHE_DIR": "häuser"})
        == b"provider.CACHE_DIR\th\xc3\xa4user\n"
    )


def test_values_become_text(tmp_path: Path) -> None:
    steps = fake_job.recorder(tmp_path)
    job = fake_job.job(steps, fake_job.target("linux-x64"))
    said = {"runner.cuda_graph": True, "runner.least_nodes": 0.95, "provider.NUM_STREAMS": 2}
    made = runner_options(job, said)
    assert (made.path, made.role) == (PATH, "runner")
    assert steps.arguments("options_file")["options"] == {
        "runner.cuda_graph": "1", "runner.least_nodes": "0.95", "provider.NUM_STREAMS": "2",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value"),
    [("runner.cuda_grph", "1"), ("PERFORMANCE_HINT", "LATENCY"), ("provider.", "1"),
     ("provider.a b", "1"), ("session.x\ty", "1"), ("", "1"), ("provider." + "x" * 101, "1"),
     ("runner.least_nodes", "1.5"), ("runner.least_nodes", "nan"), ("runner.cuda_graph", "yes"),
     ("runner.engine_key", "../../etc"), ("runner.engine_key", ""),
     ("provider.X", "a\nb"), ("provider.X", "a\tb"), ("provider.X", "\0"),
     ("provider.X", "x" * 4001)],
)  # fmt: skip
def test_what_no_runner_reads_is_refused(tmp_path: Path, key: str, value: str) -> None:
    with pytest.raises(errors.ConfigError):
        written(tmp_path, {key: value})
    assert not (tmp_path / OPTIONS).exists()


def test_a_mistyped_option_says_what_was_meant(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError) as caught:
        written(tmp_path, {"runner.least_node": "1"})
    assert "runner.least_nodes" in caught.value.remedy


def test_too_many_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError):
        written(tmp_path, {f"provider.X{n}": "1" for n in range(201)})


@given(
    st.dictionaries(
        st.from_regex(r"\A(provider|session)\.[A-Za-z][A-Za-z0-9_.]{0,20}\Z"),
        st.text(max_size=40)
        .filter(lambda text: not set(text) & set("\t\r\n\0"))
        .filter(lambda text: text.isprintable()),
        max_size=5,
    )
)
def test_what_is_written_can_be_read_again(
    tmp_path_factory: pytest.TempPathFactory, options: dict[str, str]
) -> None:
    lines = written(tmp_path_factory.mktemp("o"), options).decode().split("\n")[:-1]
    assert dict(line.split("\t") for line in lines) == options
