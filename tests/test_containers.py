"""Containers of hand-made bundles: every file that is written, held against its own schema."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import re
import shutil
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import numpy as np
import onnx
import pytest
import yaml
from google.protobuf import text_format
from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import helper

from edge import containers, errors, field, samples
from edge.containers import memory
from edge.containers.memory import Memory
from edge.containers.ports import Port, ports
from edge.parity import Tolerance, measure, verdict
from edge.results import Results
from tests import models
from tests.containers import handmade
from tests.reports import RECORD

TEMPLATES = handmade.TEMPLATES / "container"
MEMORY = Memory(256, "as said by --memory")
GPU = {"requires": {"gpu": "nvidia"}}
DEPLOYED = "Deployment"
KUBERNETES = ("1.29", kubernetes_validate.latest_version())
OPTIONS = {
    "tensorrt": "provider.trt_fp16_enable\t1\nprovider.trt_profile_max_shapes\tx:8x4\n",
    "openvino-x64": "provider.NUM_STREAMS\t1\nprovider.PERFORMANCE_HINT\tLATENCY\n",
}
TARGETS: dict[str, dict[str, Any]] = {
    "linux-x64": {},
    "linux-arm64": {"target": {"platform": "linux-arm64"}},
    "openvino-x64": {"artifact": "model.xml", "provider": "openvino:CPU", "cache": True},
    "openvino-ort-x64": {"provider": "OpenVINOExecutionProvider"},
    "cuda": {"provider": "CUDAExecutionProvider", "runtime": GPU},
    "tensorrt": {"provider": "TensorrtExecutionProvider", "runtime": GPU, "cache": True},
    "tensorrt-plan": {"artifact": "engine.plan", "provider": "tensorrt", "runtime": GPU},
    "tensorrt-rtx": {"artifact": "engine.rtx", "provider": "tensorrt-rtx", "runtime": GPU},
}
each_target = pytest.mark.parametrize("target", TARGETS)


def made(folder: Path, kind: str, /, **changes: Any) -> field.Bundle:
    """A hand-made bundle for a target."""
    tables = {**TARGETS[kind], **changes}
    tables["target"] = {"name": kind, **tables.get("target", {})}
    folder.mkdir(parents=True, exist_ok=True)
    if tables.get("artifact") == "model.xml":
        ir(folder)
    if kind in OPTIONS:
        (folder / "runner").mkdir()
        (folder / "runner" / "options.tsv").write_text(OPTIONS[kind])
    return field.read(handmade.bundle(folder, **tables))


def ir(folder: Path) -> None:
    """``models.mlp`` as an OpenVINO IR, its batch open."""
    import openvino

    models.save(models.mlp(), folder / "m.onnx")
    openvino.save_model(openvino.Core().read_model(folder / "m.onnx"), folder / "model.xml")
    (folder / "m.onnx").unlink()


def write(what: field.Bundle, **wish: Any) -> Path:
    """The container's folder."""
    asked = containers.Wish(storage_uri="s3://bucket/models", **wish)
    place = what.folder.with_name(what.folder.name + containers.SUFFIX)
    return containers.write(what, place, asked, MEMORY, TEMPLATES).folder


def documents(folder: Path) -> Iterator[dict[str, Any]]:
    """Every Kubernetes object that was written."""
    for path in sorted((folder / "k8s").iterdir()):
        yield from yaml.safe_load_all(path.read_text())


# ---- Kubernetes and KServe ----------------------------------------------------------------------


@each_target
def test_kubernetes_takes_every_manifest(tmp_path: Path, target: str) -> None:
    folder = write(made(tmp_path / "b", target), replicas=3, threads=2)
    found = {each["kind"]: each for each in documents(folder)}
    assert set(found) == {"Deployment", "Service", "Job"}
    for each in found.values():
        for version in KUBERNETES:
            kubernetes_validate.validate(each, version, strict=True)
    assert found["Deployment"]["spec"]["replicas"] == 3
    selector = found["Deployment"]["spec"]["selector"]["matchLabels"]
    assert selector == found["Service"]["spec"]["selector"]
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= labels.items()
    assert not selector.items() <= found["Job"]["spec"]["template"]["metadata"]["labels"].items()


@each_target
def test_pods_are_confined_and_bounded(tmp_path: Path, target: str) -> None:
    what = made(tmp_path / "b", target)
    folder = write(what, threads=2)
    pods = [d["spec"]["template"]["spec"] for d in documents(folder) if d["kind"] != "Service"]
    gpu = {"nvidia.com/gpu": 1} if TARGETS[target].get("runtime") else {}
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        arch = "arm64" if target == "linux-arm64" else "amd64"
        assert pod["nodeSelector"]["kubernetes.io/arch"] == arch
        (only,) = pod["containers"]
        assert only["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert only["resources"]["limits"] == {"cpu": 2, "memory": "256Mi", **gpu}
        assert only["resources"]["requests"] == {"cpu": 2, "memory": "256Mi"}
        assert {m["mountPath"] for m in only["volumeMounts"]} == {"/cache"}
        env = {each["name"]: each["value"] for each in only["env"]}
        assert env.get("EDGE_CACHE") == ("/cache" if TARGETS[target].get("cache") else None)
        assert re.fullmatch(r".*:[0-9a-f]{12}", only["image"])
        assert ("tolerations" in pod) == bool(gpu)
        assert only["args"] == (["check"] if only["name"] == "check" else ["serve"])


@pytest.mark.parametrize(("target", "surge"), [("linux-x64", (1, 0)), ("cuda", (0, 1))])
def test_an_update_needs_no_spare_gpu(tmp_path: Path, target: str, surge: tuple[int, int]) -> None:
    (found,) = (d for d in documents(write(made(tmp_path / "b", target))) if d["kind"] == DEPLOYED)
    update = found["spec"]["strategy"]["rollingUpdate"]
    assert (update["maxSurge"], update["maxUnavailable"]) == surge
    tolerated = found["spec"]["template"]["spec"].get("tolerations", [])
    gpu = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    assert tolerated == ([gpu] if target == "cuda" else [])


def image_and_job(folder: Path) -> tuple[str, str]:
    """The image's tag and the Job's name."""
    (job,) = (each for each in documents(folder) if each["kind"] == "Job")
    assert job["spec"]["ttlSecondsAfterFinished"] == 86_400
    (only,) = job["spec"]["template"]["spec"]["containers"]
    return only["image"].rpartition(":")[2], job["metadata"]["name"]


def test_the_tag_is_of_everything_in_the_image(tmp_path: Path) -> None:
    """Another server with the same bundle is another image, and its check another Job."""
    what = made(tmp_path / "b", "linux-x64")
    tag, job = image_and_job(write(what))
    assert job == f"mlp-linux-x64-check-{tag}"
    # What is not in the image does not change it.
    assert image_and_job(write(what, replicas=2, threads=3, registry="r")) == (tag, job)
    templates = tmp_path / "container"
    shutil.copytree(TEMPLATES, templates)
    with (templates / "image" / "http_server.py").open("a") as server:
        server.write("# mended\n")
    place = what.folder.with_name("b.container")
    again = containers.write(what, place, containers.Wish(), MEMORY, templates)
    assert image_and_job(again.folder)[0] != tag
    assert again.image.endswith(image_and_job(again.folder)[0])
    shutil.copytree(what.folder, tmp_path / "c")
    handmade.seal(tmp_path / "c", {"samples": {"count": 3}})
    assert image_and_job(write(field.read(tmp_path / "c")))[0] != tag


def test_a_schema_violation_would_be_seen(tmp_path: Path) -> None:
    folder = write(made(tmp_path / "b", "linux-x64"))
    deployment = next(documents(folder))
    deployment["spec"]["template"]["spec"]["containers"][0]["readOnly"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES[-1], strict=True)


@each_target
def test_kserve_takes_the_inference_service(tmp_path: Path, target: str) -> None:
    folder = write(made(tmp_path / "b", target))
    if target == "tensorrt-rtx":
        assert not (folder / "kserve.yaml").exists()
        return
    schema = json.loads((Path(__file__).parent / "containers/inferenceservice.json").read_text())
    service = yaml.safe_load((folder / "kserve.yaml").read_text())
    jsonschema.Draft202012Validator(schema).validate(service)
    model = service["spec"]["predictor"]["model"]
    assert model["storageUri"] == "s3://bucket/models"
    assert model["modelFormat"]["name"] == (
        "onnx" if (folder / "triton/mlp/1/model.onnx").exists() else "triton"
    )
    assert model["resources"]["limits"]["memory"] == "2304Mi"
    del service["spec"]["predictor"]["model"]["modelFormat"]["name"]
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.Draft202012Validator(schema).validate(service)


def test_without_a_storage_uri_there_is_no_inference_service(tmp_path: Path) -> None:
    what = made(tmp_path / "b", "linux-x64")
    done = containers.write(what, tmp_path / "c", containers.Wish(), MEMORY, TEMPLATES)
    assert done.parts == ("image", "k8s", "triton")
    assert not (tmp_path / "c" / "kserve.yaml").exists()


# ---- Triton -------------------------------------------------------------------------------------


def config(folder: Path) -> Any:
    """The parsed model configuration."""
    from tritonclient.grpc import model_config_pb2

    text = (folder / "triton" / "mlp" / "config.pbtxt").read_text()
    return text_format.Parse(text, model_config_pb2.ModelConfig())


@pytest.mark.parametrize("target", [name for name in TARGETS if name != "tensorrt-rtx"])
def test_triton_parses_the_configuration(tmp_path: Path, target: str) -> None:
    folder = write(made(tmp_path / "b", target))
    found = config(folder)
    suffix = {"openvino-x64": "xml", "tensorrt-plan": "plan"}.get(target, "onnx")
    assert (folder / "triton" / "mlp" / "1" / f"model.{suffix}").is_file()
    assert found.backend == {"onnx": "onnxruntime", "xml": "openvino", "plan": "tensorrt"}[suffix]
    kind = "KIND_GPU" if TARGETS[target].get("runtime") else "KIND_CPU"
    (group,) = found.instance_group
    assert type(group).Kind.Name(group.kind) == kind
    (warm,) = found.model_warmup
    value = warm.inputs["x"]
    file = folder / "triton" / "mlp" / "warmup" / value.input_data_file
    size = 4  # float32
    for extent in value.dims:
        size *= extent
    assert file.stat().st_size == size


def test_triton_is_told_of_providers(tmp_path: Path) -> None:
    accelerators = config(write(made(tmp_path / "trt", "tensorrt"))).optimization
    (tensorrt,) = accelerators.execution_accelerators.gpu_execution_accelerator
    assert tensorrt.name == "tensorrt"
    assert dict(tensorrt.parameters) == {
        "precision_mode": "FP16",
        "trt_profile_max_shapes": "x:8x4",
    }
    accelerators = config(write(made(tmp_path / "ov", "openvino-ort-x64"))).optimization
    (openvino,) = accelerators.execution_accelerators.cpu_execution_accelerator
    assert openvino.name == "openvino"
    parameters = config(write(made(tmp_path / "ir", "openvino-x64"), threads=3)).parameters
    said = {key: value.string_value for key, value in parameters.items()}
    assert said == {
        "INFERENCE_NUM_THREADS": "3",
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": "1",
    }


@pytest.mark.parametrize(
    ("target", "name"),
    [("openvino-x64", "OpenVINO backend"), ("openvino-ort-x64", "OpenVINO accelerator")],
)
def test_that_triton_does_not_pin_the_precision_is_said(
    tmp_path: Path, target: str, name: str
) -> None:
    folder = write(made(tmp_path / "b", target))
    said = f"Triton's {name} takes no INFERENCE_PRECISION_HINT"
    notes = json.loads((folder / containers.RECORD).read_text())["notes"]
    assert [note for note in notes if note.startswith(said)]
    assert said in (folder / "triton" / "mlp" / "config.pbtxt").read_text()


def test_where_triton_computes_as_proven_nothing_is_said(tmp_path: Path) -> None:
    folder = write(made(tmp_path / "b", "linux-x64"))
    notes = json.loads((folder / containers.RECORD).read_text())["notes"]
    assert all(note.startswith("unverified") for note in notes)


def test_the_graph_is_optimized_again_where_the_runner_does_it(tmp_path: Path) -> None:
    assert config(write(made(tmp_path / "cpu", "linux-x64"))).optimization.graph.level == 2
    runtime = {**GPU, "online_optimization": "all"}
    found = config(write(made(tmp_path / "cuda", "cuda", runtime=runtime)))
    assert not found.HasField("optimization")  # Triton's default: all levels


def test_an_open_batch_is_tritons_to_fill(tmp_path: Path) -> None:
    folder = write(made(tmp_path / "b", "linux-x64"))
    found = config(folder)
    assert (found.max_batch_size, list(found.input[0].dims), list(found.output[0].dims)) == (
        4,
        [4],
        [3],
    )
    assert found.HasField("dynamic_batching")
    warmup = (folder / "triton/mlp/warmup/000.input.0.bin").read_bytes()
    assert warmup == handmade.mlp_cases()[0][0]["x"][:1].tobytes()


@pytest.mark.parametrize(
    ("symbol", "batches"), [("N", True), ("batch_size", True), ("T", False), ("tokens", False)]
)
def test_time_is_no_batch(tmp_path: Path, symbol: str, batches: bool) -> None:
    """Triton would put two requests together as one sequence."""
    what = made(tmp_path / "b", "linux-x64")
    model = models.mlp()
    for value in (*model.graph.input, *model.graph.output):
        value.type.tensor_type.shape.dim[0].dim_param = symbol
    models.save(model, what.folder / "model.onnx")
    handmade.seal(what.folder, {})
    found = config(write(field.read(what.folder)))
    assert found.HasField("dynamic_batching") == batches
    assert list(found.input[0].dims) == ([4] if batches else [-1, 4])


def test_names_of_tensors_are_triton_s_to_read(tmp_path: Path) -> None:
    name = 'x" }\n<é\U0001f600'.replace("\n", "")
    model = models.mlp()
    model.graph.input[0].name = model.graph.node[0].input[0] = name
    what = made(tmp_path / "b", "linux-x64")
    models.save(model, what.folder / "model.onnx")
    cases = [({name: pair[0]["x"]}, pair[1]) for pair in handmade.mlp_cases()]
    samples.write(what.folder / "samples", cases)
    handmade.seal(what.folder, {})
    found = config(write(field.read(what.folder)))
    assert [each.name for each in found.input] == [name]
    assert list(found.model_warmup[0].inputs) == [name]


def test_profiles_bound_a_batch_that_triton_may_not_fill(tmp_path: Path) -> None:
    found = config(write(made(tmp_path / "b", "tensorrt")))
    assert (found.max_batch_size, list(found.input[0].dims)) == (0, [-1, 4])


DTYPES = {
    "float16": "TYPE_FP16", "float32": "TYPE_FP32", "float64": "TYPE_FP64", "bool": "TYPE_BOOL",
    "int8": "TYPE_INT8", "uint8": "TYPE_UINT8", "int64": "TYPE_INT64", "uint16": "TYPE_UINT16",
}  # fmt: skip


def test_dtypes_and_scalars_are_the_models(tmp_path: Path) -> None:
    nodes, inputs, outputs = [], [], []
    for name in DTYPES:
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(name))
        nodes.append(helper.make_node("Identity", [name], [f"{name}_out"]))
        shape = [] if name == "int64" else [2, 3]
        inputs.append(helper.make_tensor_value_info(name, kind, shape))
        outputs.append(helper.make_tensor_value_info(f"{name}_out", kind, shape))
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    folder = handmade.bundle(tmp_path / "b")
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "model.onnx"
    )
    values = {n: np.ones(() if n == "int64" else (2, 3), n) for n in DTYPES}
    shutil.rmtree(folder / "samples")
    samples.write(folder / "samples", [(values, {f"{n}_out": v for n, v in values.items()})])
    handmade.seal(folder, {})
    found = config(write(field.read(folder)))
    kinds = {
        p.name: type(found)
        .DESCRIPTOR.file.enum_types_by_name["DataType"]
        .values_by_number[p.data_type]
        .name
        for p in found.input
    }
    assert kinds == DTYPES
    (scalar,) = [port for port in found.input if port.name == "int64"]
    assert (list(scalar.dims), list(scalar.reshape.shape)) == ([1], [])
    assert scalar.HasField("reshape")


def test_what_triton_cannot_load_is_said(tmp_path: Path) -> None:
    what = made(tmp_path / "b", "tensorrt-rtx")
    done = containers.write(what, tmp_path / "c", containers.Wish(), MEMORY, TEMPLATES)
    assert done.parts == ("image", "k8s")
    assert "no Triton repository: it does not load .rtx files" in done.notes


def test_a_model_of_several_files_is_a_folder_for_triton(tmp_path: Path) -> None:
    folder = handmade.bundle(tmp_path / "b")
    model = onnx.load(folder / "model.onnx")
    onnx.save(
        model,
        folder / "model.onnx",
        save_as_external_data=True,
        location="model.data",
        size_threshold=0,
    )
    handmade.seal(folder, {})
    made_at = write(field.read(folder)) / "triton" / "mlp" / "1" / "model.onnx"
    assert sorted(path.name for path in made_at.iterdir()) == ["model.data", "model.onnx"]
    onnx.checker.check_model(str(made_at / "model.onnx"))


def test_open_dimensions_of_an_ir_and_of_profiles(tmp_path: Path) -> None:
    assert [p.shape for p in ports(made(tmp_path / "ov", "openvino-x64"), "output")] == [(-1, 3)]
    profile = {"name": "x", "dtype": "float32", "dims": ["batch", 4], "least": [1, 4],
               "usual": [2, 4], "most": [8, 4]}  # fmt: skip
    runtime = {**GPU, "profiles": [profile]}
    what = made(tmp_path / "plan", "tensorrt-plan", runtime=runtime)
    assert [p.shape for p in ports(what, "input")] == [(-1, 4)]
    found = config(write(what))
    assert (list(found.input[0].dims), len(found.output)) == ([-1, 4], 0)


# ---- the image ----------------------------------------------------------------------------------


def instructions(folder: Path) -> list[tuple[str, str]]:
    """The Dockerfile's instructions in order, continuation lines joined, comments gone."""
    lines = [x for x in (folder / "Dockerfile").read_text().splitlines() if not x.startswith("#")]
    text = re.sub(r"\\\n\s*", "", "\n".join(lines))
    pairs = (line.partition(" ") for line in text.splitlines() if line.strip())
    return [(word, rest) for word, _, rest in pairs]


@each_target
def test_the_dockerfile_is_what_it_should_be(tmp_path: Path, target: str) -> None:
    what = made(tmp_path / "b", target)
    folder = write(what)
    found = instructions(folder)
    words = {word for word, _ in found}
    assert words <= {"ARG", "FROM", "COPY", "RUN", "USER", "LABEL", "ENV", "EXPOSE", "STOPSIGNAL",
                     "ENTRYPOINT", "CMD"}  # fmt: skip
    last = max(index for index, (word, _) in enumerate(found) if word == "FROM")
    final = found[last:]
    assert "RUN" not in {word for word, _ in final}, "there is no shell in the final image"
    assert [rest for word, rest in final if word == "USER"] == ["65532:65532"]
    (entry,) = (rest for word, rest in final if word == "ENTRYPOINT")
    assert json.loads(entry) == ["python3", "/server/serve.py"]
    bases = dict(rest.split("=", 1) for word, rest in found if word == "ARG")
    assert all(":" in base and not base.endswith(":latest") for base in bases.values())
    stages = {rest.split(" AS ")[1] for word, rest in found if word == "FROM"}
    used = set(re.findall(r"--from=(\w+)", "\n".join(rest for _, rest in found)))
    assert used <= stages
    arch = "arm64" if target == "linux-arm64" else "amd64"
    assert all(f"--platform=linux/{arch} " in rest for word, rest in found if word == "FROM")
    (label,) = (rest for word, rest in final if word == "LABEL")
    assert f'org.opencontainers.image.revision="{what.digest}"' in label
    (env,) = (rest for word, rest in final if word == "ENV")
    assert ("NVIDIA_VISIBLE_DEVICES=all" in env) == bool(TARGETS[target].get("runtime"))


@each_target
def test_everything_that_is_copied_is_in_the_context(tmp_path: Path, target: str) -> None:
    folder = write(made(tmp_path / "b", target))
    copied = set()
    for word, rest in instructions(folder):
        if word == "COPY" and "--from" not in rest:
            parts = json.loads(rest) if rest.startswith("[") else rest.split()
            copied |= set(parts[:-1])
    assert all((folder / path).exists() for path in copied)
    artifacts = [p for p in copied if re.fullmatch(r"bundle/(model|engine)\..*", p)]
    assert len(artifacts) == (2 if target == "openvino-x64" else 1)
    kept = {"bundle/manifest.json", "bundle/runner/edge_bundle.py", "bundle/samples/samples.tsv",
            "serve.py", "served_model.py", "inference_protocol.py", "ports.json"}  # fmt: skip
    assert kept <= copied
    ignored = (folder / ".dockerignore").read_text().splitlines()
    assert ignored[0] == "*"
    assert {"!bundle", "!ports.json", "!requirements.txt", "!*.py"} == set(ignored[1:])


@pytest.mark.parametrize(
    ("runtime", "wanted"),
    [
        ({}, ["onnxruntime==1.32.0", containers.NUMPY]),
        ({"python": ["onnxruntime-gpu[cuda,cudnn]==1.31.1", "numpy==2.3.0"]},
         ["onnxruntime-gpu[cuda,cudnn]==1.31.1", "numpy==2.3.0"]),
        ({"python": ["openvino==2026.4.1"]}, ["openvino==2026.4.1", containers.NUMPY]),
    ],
)  # fmt: skip
def test_requirements_are_exact(tmp_path: Path, runtime: dict[str, Any], wanted: list[str]) -> None:
    what = made(tmp_path / "b", "linux-x64", runtime=runtime)
    text = (write(what) / "requirements.txt").read_text().splitlines()
    assert [line for line in text if not line.startswith("#")] == wanted


def test_packages_that_are_sources_are_not_asked_for_as_wheels(tmp_path: Path) -> None:
    def install(name: str, package: str) -> list[str]:
        folder = write(made(tmp_path / name, "linux-x64", runtime={"python": [package]}))
        (words,) = (rest for word, rest in instructions(folder) if word == "RUN")
        return list(json.loads(words))

    assert "--only-binary=:all:" in install("a", "openvino==2026.4.1")
    assert "--only-binary=:all:" not in install("b", "tensorrt-rtx==1.7.1.116")


@pytest.mark.parametrize(
    "each", ["a==1\n--index-url http://x", "a @ http://x/a.whl", "-r /etc/passwd", "a>=1", "a"]
)
def test_requirements_that_are_no_release_are_refused(tmp_path: Path, each: str) -> None:
    what = made(tmp_path / "b", "linux-x64", runtime={"python": [each]})
    with pytest.raises(errors.UsageError, match="is no exact release"):
        write(what)


def test_the_largest_body_follows_from_the_model(tmp_path: Path) -> None:
    bound = made(tmp_path / "b", "linux-x64")
    assert memory.load(bound) == memory.Load(65536 + 32 * 8, 65536 + 32 * 6)
    symbolic = made(tmp_path / "s", "linux-x64", target={"dims": "symbolic"})
    assert memory.load(symbolic) == memory.Load(65536 + 32 * 8 * 8, 65536 + 32 * 6 * 8)
    assert "EDGE_MAX_BODY=65792 " in dict(instructions(write(bound)))["ENV"]


# ---- the folder ---------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    """All files."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_the_same_bundle_gives_the_same_bytes(tmp_path: Path) -> None:
    what = made(tmp_path / "one" / "linux-x64", "linux-x64")
    other = made(tmp_path / "two" / "linux-x64", "linux-x64")
    assert contents(write(what)) == contents(write(other))


@pytest.mark.parametrize("record", [None, "[]", '{"schema": 1}', "{"])
def test_a_container_is_replaced_and_a_strangers_folder_is_not(
    tmp_path: Path, record: str | None
) -> None:
    what = made(tmp_path / "b", "linux-x64")
    folder = write(what)
    assert write(what, replicas=2) == folder
    assert "replicas: 2" in (folder / "k8s" / "deployment.yaml").read_text()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis").write_text("")
    if record:
        (tmp_path / "mine" / containers.RECORD).write_text(record)
    with pytest.raises(errors.UsageError, match="no container of edge"):
        containers.write(what, tmp_path / "mine", containers.Wish(), MEMORY, TEMPLATES)
    assert (tmp_path / "mine" / "thesis").exists()
    (folder / "k8s" / "mine.yaml").write_text("")
    with pytest.raises(errors.UsageError, match=r"did not write, the first is k8s/mine\.yaml"):
        write(what)
    assert (folder / "k8s" / "mine.yaml").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "b.container", "mine"]


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "new").mkdir()
    what = made(tmp_path / "b", "linux-x64")
    made_ = containers.write(what, tmp_path / "new", containers.Wish(), MEMORY, TEMPLATES)
    assert (made_.folder / "Dockerfile").is_file()


def test_the_images_user_can_read_every_file(tmp_path: Path) -> None:
    """COPY keeps modes, and the user of the image is another one."""
    what = made(tmp_path / "b", "linux-x64")
    mask = os.umask(0o077)
    try:
        folder = write(what)
    finally:
        os.umask(mask)
    modes = {path.stat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}
    assert modes == {0o644, 0o755}


def test_the_record_lists_every_file(tmp_path: Path) -> None:
    folder = write(made(tmp_path / "b", "linux-x64"), registry="registry.example.com/team")
    said = json.loads((folder / containers.RECORD).read_text())
    assert set(said["files"]) == set(contents(folder)) - {containers.RECORD}
    assert re.fullmatch(r"registry\.example\.com/team/mlp-linux-x64:[0-9a-f]{12}", said["image"])
    assert any(note.startswith("unverified: the image was not built") for note in said["notes"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": {"platform": "android"}}, "for android, which runs in no container"),
        ({"target": {"platform": "win-x64"}}, "for win-x64, which runs in no container"),
        ({"state": "planned", "planned": ["libonnxruntime.so"]}, "planned, not built"),
    ],
)
def test_what_fits_no_container_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.UsageError, match=message):
        write(made(tmp_path / "b", "linux-x64", **changes))


def test_a_bundle_without_a_python_runner_is_refused(tmp_path: Path) -> None:
    what = made(tmp_path / "b", "linux-x64")
    shutil.rmtree(what.folder / "runner")
    handmade.seal(what.folder, {})
    with pytest.raises(errors.UsageError, match="no runner in Python"):
        write(field.read(what.folder))


def test_a_damaged_bundle_is_refused(tmp_path: Path) -> None:
    what = made(tmp_path / "b", "linux-x64")
    (what.folder / "samples" / "000.input.0.bin").write_bytes(b"\0" * 32)
    with pytest.raises(errors.StoreDamaged, match=r"000\.input\.0\.bin"):
        write(what)
    assert not (tmp_path / "b.container").exists()


@pytest.mark.parametrize(
    "registry",
    ["https://r", "a b", "R", "$(id)", "r/", "-r", "r:x/\n", "r.example.com/team:v1", "r:5000:1",
     "r//a", "r:5000x"],
)  # fmt: skip
def test_registries_that_are_none(tmp_path: Path, registry: str) -> None:
    with pytest.raises(errors.UsageError, match="--registry"):
        write(made(tmp_path / "b", "linux-x64"), registry=registry)


@pytest.mark.parametrize(
    "registry",
    ["r", "localhost:5000", "r.example.com:443/team/sub", "1.dkr.ecr.eu-1.amazonaws.com", "r/a__b"],
)
def test_registries(tmp_path: Path, registry: str) -> None:
    folder = write(made(tmp_path / "b", "linux-x64"), registry=registry)
    image = json.loads((folder / containers.RECORD).read_text())["image"]
    assert image.startswith(f"{registry}/mlp-linux-x64:")


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("3d-unet", "m-3d-unet-linux-x64"),  # a Service begins with a letter
        ("YOLO_v8.n", "yolo-v8-n-linux-x64"),
        ("a" * 60, f"{'a' * 47}-[0-9a-f]{{8}}"),
        ("a" * 46 + "-b" * 8, f"{'a' * 46}-[0-9a-f]{{8}}"),
    ],
)
def test_objects_have_names_that_a_cluster_takes(tmp_path: Path, model: str, name: str) -> None:
    folder = write(made(tmp_path / "b", "linux-x64", model={"name": model}))
    names = {each["metadata"]["name"] for each in documents(folder)}
    # A Job's name ends with the image's tag, for which a long name gives way.
    (own,) = (each for each in names if "-check-" not in each)
    (job,) = names - {own}
    assert own.startswith(re.sub("-check-[0-9a-f]{12}$", "", job))
    assert re.fullmatch(name, own)
    assert all(re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", each) for each in names)


def test_a_long_name_keeps_its_target_apart(tmp_path: Path) -> None:
    names = set()
    for target in ("linux-x64", "cuda"):
        folder = write(made(tmp_path / target, target, model={"name": "a" * 64}))
        names |= {each["metadata"]["name"] for each in documents(folder)}
    assert len(names) == 4


@pytest.mark.parametrize("version", ["1.0+cu130", "1" * 64, "2.0-", "0" * 61 + "._a"])
def test_labels_have_values_that_a_cluster_takes(tmp_path: Path, version: str) -> None:
    folder = write(made(tmp_path / "b", "linux-x64", model={"version": version}))
    said = [*documents(folder), yaml.safe_load((folder / "kserve.yaml").read_text())]
    for each in said:
        for value in each["metadata"]["labels"].values():
            assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", value)


@pytest.mark.parametrize("name", ["m\n  x: y", 'm" #', "${HOME}", "m {{ x }}"])
def test_names_from_a_manifest_stay_in_their_place(tmp_path: Path, name: str) -> None:
    what = made(tmp_path / "b", "linux-x64", model={"name": name})
    with pytest.raises(errors.UsageError, match="is no plain word"):
        write(what)


# ---- memory -------------------------------------------------------------------------------------


def test_memory_comes_from_the_measured_peak_of_this_bundle(tmp_path: Path) -> None:
    what = made(tmp_path / "b", "linux-x64")
    database = Results(tmp_path / "results.db")

    def add(identity: str, **changes: Any) -> None:
        base = RECORD
        model = replace(base.model, name="mlp")
        values = {"id": identity, "model": model, "target": "linux-x64", "device": "local",
                  "runner": "python", "manifest_sha256": what.digest, **changes}  # fmt: skip
        database.add(replace(base, **values), [])

    with pytest.raises(errors.UsageError, match="was not measured on local") as caught:
        memory.measured(database, what, "local")
    assert caught.value.remedy.startswith("edge bench linux-x64 -d local --runner python")
    add("other", manifest_sha256="f" * 64, peak_bytes=2**30)
    add("c", runner="c", peak_bytes=2**30)
    add("untold", peak_bytes=None)
    add("pi", device="pi", peak_bytes=2**30)
    with pytest.raises(errors.UsageError, match="was not measured"):
        memory.measured(database, what, "local")
    add("small", peak_bytes=90 * 2**20)
    add("large", peak_bytes=100 * 2**20)
    found = memory.measured(database, what, "local")
    held = memory.load(what).held
    assert found.mib == math.ceil(125 + held / 2**20)
    assert "measured peak 100.0 MiB on local (record large) x 1.25" in found.source


def test_a_load_bounds_what_connections_hold() -> None:
    small = memory.Load(2**16, 2**16)
    assert (small.connections, small.held) == (32, (32 + 10) * 2**16)
    speaks = memory.Load(2**16, 2**20)  # a small question, a long answer
    assert speaks.held == (32 + 5) * 2**20
    assert memory.Load(2**25, 2**16).connections == 16
    assert memory.Load(2**30, 2**16).connections == 8


SIZE = 800_000  # bytes of a body
MOST = SIZE // memory.ELEMENT_BYTES
PORTS = ([Port("x", "float32", (-1, 4))], [Port("y", "float32", (-1, 3))])
ROWS = (MOST - 80) // 4


def peak_of(work: Callable[[], Any]) -> int:
    """The most memory that it took."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("pad", [" ", "a", "\U0001f600"])
@pytest.mark.parametrize("row", ["1.5,1.5,1.5,1.5", "[1.5,2.5,3.5,4.5]"])
def test_a_request_takes_no_more_memory_than_pods_have_for_it(
    monkeypatch: pytest.MonkeyPatch, row: str, pad: str
) -> None:
    """The worst that is not refused: as many values as may be, and text for the rest."""
    protocol = handmade.image_module(monkeypatch, "inference_protocol")
    data = ",".join([row] * ROWS)
    entry = f'{{"name":"x","datatype":"FP32","shape":[{ROWS},4],"data":[{data}]}}'
    head = f'{{"inputs":[{entry}],"id":"'
    text = head + pad * ((SIZE - len(head) - 2) // len(pad.encode())) + '"}'
    body = bytearray(text.encode())
    asked = protocol.parse(body, len(body), PORTS, MOST)
    assert asked.feeds["x"].shape == (ROWS, 4)
    peak = peak_of(lambda: protocol.parse(body, len(body), PORTS, MOST))
    assert SIZE < peak < memory.PARSED * SIZE
    found = {"y": np.full((MOST // 3, 3), -1.2345678e-30, np.float32)}
    asked = asked._replace(id="7")
    assert peak_of(lambda: protocol.render(asked, ("m", "1"), found)) < memory.WRITTEN * SIZE


@pytest.mark.parametrize(
    "text",
    ["[" + "[]," * (SIZE // 3), "[" + "1," * (SIZE // 2), '[{"":0}' + ',{"":0}' * (SIZE // 7),
     "{" + '"":0,' * (SIZE // 5), "[" * SIZE],
)  # fmt: skip
def test_what_would_take_more_is_refused_before_it_is_parsed(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    protocol = handmade.image_module(monkeypatch, "inference_protocol")
    body = bytearray(text.encode())

    def parse() -> None:
        with pytest.raises(protocol.Refused, match="the JSON holds more"):
            protocol.parse(body, len(body), PORTS, MOST)

    assert peak_of(parse) < SIZE


def test_memory_below_the_bundles_size_is_refused(tmp_path: Path) -> None:
    what = made(tmp_path / "b", "linux-x64")
    (what.folder / "weights.bin").write_bytes(b"\0" * (6 << 20))
    handmade.seal(what.folder, {})
    what = field.read(what.folder)
    place = tmp_path / "c"
    with pytest.raises(errors.UsageError, match=r"5 MiB .* less than the bundle itself has, 6"):
        containers.write(what, place, containers.Wish(), memory.said("5Mi"), TEMPLATES)
    assert not place.exists()
    containers.write(what, place, containers.Wish(), memory.said("7Mi"), TEMPLATES)


def test_memory_as_said() -> None:
    assert (memory.said("512Mi").mib, memory.said("2Gi").mib) == (512, 2048)
    for text in ("512", "0Mi", "-1Gi", "1GB", "1Gi\n", ""):
        with pytest.raises(errors.UsageError, match="is no size"):
            memory.said(text)


# ---- the server's proof -------------------------------------------------------------------------


def served_model() -> Any:
    """The module of the image, loaded without leaving compiled files in the template."""
    path = TEMPLATES / "image" / "served_model.py"
    spec = importlib.util.spec_from_file_location("served_model_of_the_template", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    try:
        spec.loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = before
    return module


SERVED = served_model()
# Multiples of 1/8 and limits of 1/16: both sides compute without rounding.
EIGHTHS = st.integers(-24, 24).map(lambda n: n / 8)
ODD = st.sampled_from([float("nan"), float("inf"), float("-inf")])
CHANGES = st.sampled_from([0.125, -0.125, 0.25, 0.5, -1.0, 2.5])
FLOOR = st.sampled_from([1 / 8, 1.0, 4.0])
CLOSE = {"max_abs": [1 / 16, 0.25, 2.0], "max_rel": [1 / 16, 0.5]}
OTHER = {"sqnr_db": [-3.3, 11.7, 14.9, 30.1], "argmax": [0.4, 0.6, 1.0]}
EACH = {name: st.sampled_from(values) for name, values in {**CLOSE, **OTHER}.items()}
# Any limit alone, so that it decides, and any of them together.
LIMITS = st.one_of(
    *(st.fixed_dictionaries({name: values, "floor": FLOOR}) for name, values in EACH.items()),
    st.fixed_dictionaries({"floor": FLOOR}, optional=EACH),
)
PAIRS = st.lists(
    st.tuples(st.one_of(EIGHTHS, EIGHTHS, ODD), CHANGES, st.booleans()),
    min_size=6,
    max_size=6,
)


NEAR_ZERO = [(0.0, 0.25, True)] * 5 + [(0.0, 0.25, False)]
ONE_ROW_OF_TWO = [(1.0, 2.5, False), (0.0, 2.5, False), (0.0, 2.5, False), (1.0, 2.5, False),
                  (0.0, 2.5, True), (0.0, 2.5, False)]  # fmt: skip


@example(NEAR_ZERO, {"max_rel": 1 / 16, "floor": 4.0}, "float32", 0.0)
@example(ONE_ROW_OF_TWO, {"argmax": 0.6, "floor": 1.0}, "float32", 0.0)
@settings(max_examples=300)
@given(pairs=PAIRS, limits=LIMITS, dtype=st.sampled_from(["float32", "float64", "int8", "bool"]),
       odd=ODD)  # fmt: skip
def test_the_server_judges_as_the_product_does(
    pairs: list[tuple[float, float, bool]], limits: dict[str, Any], dtype: str, odd: float
) -> None:
    with np.errstate(invalid="ignore"):
        e = np.array([value for value, _, _ in pairs]).reshape(2, 3)
        a = e + np.array([change if moved else 0.0 for _, change, moved in pairs]).reshape(2, 3)
        if sum(moved for _, _, moved in pairs) == 6:
            a[0, 0] = odd
        if not dtype.startswith("float"):
            e, a = (np.nan_to_num(x, posinf=7, neginf=-7) * 8 for x in (e, a))
            e, a = (np.clip(x, -128, 127) for x in (e, a))
        e, a = e.astype(dtype), a.astype(dtype)
    tolerance = Tolerance(**limits)
    expected = verdict(measure(e, a, tolerance), tolerance)
    assert bool(SERVED.deviation(e, a, limits)) == bool(expected), (expected, e, a)


@pytest.mark.parametrize("actual", [np.zeros((2, 3), np.float64), np.zeros((3, 2), np.float32)])
def test_another_dtype_or_shape_is_no_proof(actual: Any) -> None:
    assert "not float32 [2, 3]" in SERVED.deviation(np.zeros((2, 3), np.float32), actual, {})


def test_integers_of_64_bits_are_compared_exactly() -> None:
    e, a = np.array([2**63 - 1]), np.array([-(2**63)])
    assert "differs by up to 18446744073709551615" in SERVED.deviation(e, a, {"max_abs": 5.0})
    assert SERVED.deviation(e, e - 5, {"max_abs": 5.0}) == ""
