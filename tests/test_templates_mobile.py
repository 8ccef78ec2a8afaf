"""The Android and iOS templates: they render, they parse, and no name leaves its literal."""

from __future__ import annotations

import plistlib
import re
import tomllib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from edge import errors
from edge.convert.render import render

TEMPLATES = Path(__file__).parent.parent / "templates"
COREML: dict[str, object] = {
    "artifact": "coreml/model.basic.ort",
    "key": "ab" * 32,
    "options": {"ModelFormat": "MLProgram", "MLComputeUnits": "ALL"},
    "package": "coreml/model.mlpackage",
    "package_key": "cd" * 32,
    "ways": ["CPUExecutionProvider", "CoreMLExecutionProvider:CPUOnly", "coreml:ALL"],
}
BASE: dict[str, object] = {
    "model_name": "Magika",
    "model_version": "3.3",
    "application_id": "dev.edge_wright.bench",
    "artifact": "model.ort",
    "runtime_version": "1.29.0",
    "embedded": False,
    "reduced": False,
    "tolerance": {
        "max_abs": 1e-05,
        "max_rel": 0.001,
        "floor": 0.001,
        "sqnr_db": None,
        "argmax": None,
    },
    "min_sdk": 24,
    "abis": ("arm64-v8a", "x86_64"),
    "ios_deployment_target": "15.1",
    "pod_checksum": None,
    "coreml": COREML,
}
CASES: dict[str, dict[str, object]] = {
    "plain": {},
    "embedded": {"embedded": True},
    "reduced": {"embedded": True, "reduced": True},
    "pod": {"pod_checksum": "ab" * 32},
    "no coreml": {"coreml": {}},
    "no package": {"coreml": {**COREML, "package": ""}},
    "no provider": {"coreml": {**COREML, "artifact": ""}},
    "onnx": {"artifact": "model.onnx", "abis": ("armeabi-v7a",)},
}
HOSTILE = (
    '"; exit(1) //',
    "${throw Exception()}",
    "$model_name",
    "\\(fatalError())",
    "\\",
    "a\nb",
    "a\r\n    rm -rf /\n",
    "$(rm -rf /)",
    "`id`",
    '*/ /* \' """',
    "</string><key>x</key>",
    "{{ artifact }}{% raw %}",
    "\ud800 \u2028 \U0001f600",
    "# h\n\n    ./gradlew evil\n",
)
EVENTS = ("env", "load", "first", "output", "warmup", "sample", "memory", "profile", "end", "error")
OPTIONS = ("warmup", "warmup-ns", "warmup-limit-ns", "iterations", "min-ns", "max-ns", "threads",
           "provider", "optimization", "profile", "check-only")  # fmt: skip


def made(tmp_path: Path, platform: str, **changed: object) -> Path:
    """The bundle's ``app`` folder with the rendered template, the rest of the bundle around it."""
    app = tmp_path / platform / "app"
    render(TEMPLATES / platform, app, {**BASE, **changed})
    return app


def texts(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


# ---------------------------------------------------------------------------------- lexing
PAIRS = {")": "(", "]": "[", "}": "{"}


class Lexer:
    """Reads Kotlin or Swift as far as brackets, strings and comments go.

    ``skeleton`` is the code without comments and without what strings hold; unbalanced brackets,
    a string that does not end on its line, or a comment without end raise AssertionError.
    """

    def __init__(self, text: str, *, kotlin: bool) -> None:
        self.text, self.kotlin, self.at = text, kotlin, 0
        self.open = "${" if kotlin else "\\("
        self.skeleton = self._code("")

    def _code(self, until: str) -> str:
        found: list[str] = []
        stack: list[str] = []
        while self.at < len(self.text):
            if self._comment():
                continue
            if until and not stack and self.text.startswith(until, self.at):
                self.at += 1
                return "".join(found)
            found.append(self._token(stack))
        assert not stack, f"not closed: {stack}"
        assert not until, f"the interpolation lacks its {until}"
        return "".join(found)

    def _token(self, stack: list[str]) -> str:
        character = self.text[self.at]
        if character == '"':
            return self._string('"""' if self.text.startswith('"""', self.at) else '"')
        if self.kotlin and character == "'":
            match = re.compile(r"'(\\u[0-9a-f]{4}|\\.|[^'\\\n])'").match(self.text, self.at)
            assert match, f"no character literal at {self.at}"
            self.at = match.end()
            return "''"
        self.at += 1
        if character in "([{":
            stack.append(character)
        elif character in PAIRS:
            opened = stack.pop() if stack else ""
            assert opened == PAIRS[character], f"stray {character} at {self.at}"
        return character

    def _string(self, quote: str) -> str:
        self.at += len(quote)
        found = quote
        while not self.text.startswith(quote, self.at):
            assert self.at < len(self.text), "a string lacks its end"
            if self.text.startswith(self.open, self.at):
                self.at += 2
                found += self.open + self._code(")" if self.open == "\\(" else "}")
                continue
            assert quote == '"""' or self.text[self.at] != "\n", "a string runs over its line"
            self.at += 2 if self.text[self.at] == "\\" else 1
        self.at += len(quote)
        return found + quote

    def _comment(self) -> bool:
        if self.text.startswith("//", self.at):
            end = self.text.find("\n", self.at)
            self.at = len(self.text) if end < 0 else end
            return True
        if not self.text.startswith("/*", self.at):
            return False
        depth = 0
        while True:  # both languages nest them
            assert self.at < len(self.text), "a comment lacks its end"
            step = {"/*": 1, "*/": -1}.get(self.text[self.at : self.at + 2], 0)
            depth += step
            self.at += 2 if step else 1
            if depth == 0:
                return True


def skeletons(folder: Path) -> dict[str, str]:
    return {
        name: Lexer(text, kotlin=not name.endswith(".swift")).skeleton
        for name, text in texts(folder).items()
        if name.endswith((".kt", ".kts", ".swift"))
    }


@pytest.mark.parametrize(
    "text", ['f("', "f(]", 'x = "a\nb"', "{", "/* /* */", '"\\(f(1)"', ")", '"""a"']
)
def test_lexer_finds_what_is_broken(text: str) -> None:
    with pytest.raises(AssertionError):
        Lexer(text, kotlin=False)


def test_lexer_reads_both_languages() -> None:
    assert Lexer('f("a)\\"", "${g("}")}") // )', kotlin=True).skeleton == 'f("", "${g("")") '
    assert Lexer('f("\\(g(")"))") /* /* ( */ */', kotlin=False).skeleton == 'f("\\(g("")") '
    assert Lexer("'\"' + '\\''", kotlin=True).skeleton == "'' + ''"


# -------------------------------------------------------------------------------- rendering
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("platform", ["android", "ios"])
def test_renders_and_every_source_is_balanced(tmp_path: Path, platform: str, case: str) -> None:
    app = made(tmp_path, platform, **CASES[case])
    assert skeletons(app)
    for name, text in texts(app).items():
        assert "{%" not in text, name
        assert not re.search(r"(?<!\$)\{\{", text), name
        assert not name.endswith(".j2")
        assert text.endswith("\n"), name


@pytest.mark.parametrize("platform", ["android", "ios"])
def test_twice_the_same_bytes(tmp_path: Path, platform: str) -> None:
    assert texts(made(tmp_path / "1", platform)) == texts(made(tmp_path / "2", platform))


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("platform", ["android", "ios"])
def test_hostile_names_stay_inside_their_literals(tmp_path: Path, platform: str, name: str) -> None:
    tame = made(tmp_path / "tame", platform)
    hostile = made(tmp_path / "hostile", platform, model_name=name, model_version=name)
    assert skeletons(hostile) == skeletons(tame)
    changed = {f for f, text in texts(hostile).items() if text != texts(tame)[f]}
    model = "EdgeModel.kt" if platform == "android" else "EdgeModel.swift"
    assert changed <= {
        "README.md",
        "app/build.gradle.kts",
        f"app/src/main/kotlin/dev/edgewright/bench/{model}",
        f"EdgeBench/Sources/EdgeBench/{model}",
    }
    readme = (hostile / "README.md").read_text().splitlines()
    assert readme[1:] == (tame / "README.md").read_text().splitlines()[1:]
    assert readme[0].startswith("# ")


@pytest.mark.parametrize("platform", ["android", "ios"])
@pytest.mark.parametrize("key", sorted(set(BASE) - {"embedded", "reduced"}))
def test_every_variable_is_needed_somewhere(tmp_path: Path, platform: str, key: str) -> None:
    other = {
        "android": {"ios_deployment_target", "pod_checksum", "coreml"},
        "ios": {"min_sdk", "abis", "pod_checksum"},
    }
    variables = {k: v for k, v in BASE.items() if k != key}
    if key in other[platform]:
        render(TEMPLATES / platform, tmp_path, variables)
        return
    with pytest.raises(errors.ConfigError, match=f"'{key}' is undefined"):
        render(TEMPLATES / platform, tmp_path, variables)


@pytest.mark.parametrize("platform", ["android", "ios"])
def test_readme_documents_every_variable(platform: str) -> None:
    head = (TEMPLATES / platform / "README.md.j2").read_text().partition("-#}")[0]
    own = set(BASE) - ({"pod_checksum", "coreml"} if platform == "android" else set())
    assert [key for key in sorted(own) if not re.search(rf"\b{key}\b", head)] == []


# --------------------------------------------------------------------------------- protocol
@pytest.mark.parametrize(
    ("platform", "runner"), [("android", "EdgeRunner.kt"), ("ios", "EdgeRunner.swift")]
)
def test_runner_says_every_event(tmp_path: Path, platform: str, runner: str) -> None:
    (path,) = made(tmp_path, platform).rglob(runner)
    text = path.read_text()
    said = re.findall(r'say\(\s*"(\w+)"|"event": \.string\("(\w+)"\)', text)
    assert {kotlin or swift for kotlin, swift in said} == set(EVENTS)
    name = "kotlin" if platform == "android" else "swift"
    assert re.search(rf'"protocol"\W+(to |\.int\()1.*"runner"\W+(to |\.string\()?"{name}"', text)


@pytest.mark.parametrize(
    ("platform", "options"), [("android", "EdgeOptions.kt"), ("ios", "EdgeOptions.swift")]
)
def test_options_have_the_names_of_the_protocol(
    tmp_path: Path, platform: str, options: str
) -> None:
    (path,) = made(tmp_path, platform).rglob(options)
    text = path.read_text()
    assert [name for name in OPTIONS if not re.search(rf'"(--)?{name}"', text)] == []
    for default in ("500_000_000", "10_000_000_000", "5_000_000_000", "60_000_000_000"):
        assert default in text


# ---------------------------------------------------------------------------------- Android
def test_android_gradle_reads_the_bundle_where_it_lies(tmp_path: Path) -> None:
    text = (made(tmp_path, "android") / "app/build.gradle.kts").read_text()
    assert 'rootProject.layout.projectDirectory.dir("..")' in text
    assert 'bundle.file("model.ort")' in text
    assert 'bundle.dir("samples")' in text
    assert 'noCompress += listOf("ort", "onnx")' in text
    assert re.findall(r'abiFilters \+= "(.*)"', text) == ["arm64-v8a", "x86_64"]
    assert "minSdk = 24" in text
    assert 'applicationId = "dev.edge_wright.bench"' in text
    assert "implementation(libs.onnxruntime)" in text


def test_android_embedded_runtime_comes_from_the_bundle(tmp_path: Path) -> None:
    app = made(tmp_path, "android", embedded=True)
    text = (app / "app/build.gradle.kts").read_text()
    assert "libs.onnxruntime" not in text
    (path,) = re.findall(r'files\("(.*)"\)', text)
    runtime = tmp_path / "android/runtime/onnxruntime-android-1.29.0.aar"
    assert (app / "app" / path).resolve() == runtime.resolve()


def test_android_versions(tmp_path: Path) -> None:
    versions = tomllib.loads((made(tmp_path, "android") / "gradle/libs.versions.toml").read_text())
    assert versions["versions"]["onnxruntime"] == "1.29.0"
    library = versions["libraries"]["onnxruntime"]
    assert library["module"] == "com.microsoft.onnxruntime:onnxruntime-android"
    for entry in [*versions["libraries"].values(), *versions["plugins"].values()]:
        assert entry["version"]["ref"] in versions["versions"]


def test_android_manifest_has_no_network_and_names_a_class_that_exists(tmp_path: Path) -> None:
    app = made(tmp_path, "android")
    root = ET.parse(app / "app/src/main/AndroidManifest.xml").getroot()
    android = "{http://schemas.android.com/apk/res/android}"
    for permission in root.iter("uses-permission"):
        assert permission.get("{http://schemas.android.com/tools}node") == "remove"
    (activity,) = root.iter("activity")
    name = str(activity.get(f"{android}name"))
    source = app / "app/src/main/kotlin" / (name.replace(".", "/") + ".kt")
    assert f"class {name.rpartition('.')[2]}" in source.read_text()


def test_android_packages_match_their_folders(tmp_path: Path) -> None:
    for name, text in texts(made(tmp_path, "android")).items():
        if name.endswith(".kt"):
            package = name.partition("/kotlin/")[2].rpartition("/")[0].replace("/", ".")
            assert text.startswith(f"package {package}\n"), name


def test_android_keeps_the_runtimes_classes(tmp_path: Path) -> None:
    rules = (made(tmp_path, "android") / "app/proguard-rules.pro").read_text()
    assert "-keep class ai.onnxruntime.** { *; }" in rules


# -------------------------------------------------------------------------------------- iOS
def openstep(text: str) -> Any:
    """The value of an OpenStep property list, as Xcode writes its projects."""
    text = re.sub(r'/\*.*?\*/|^//.*?$|("(?:[^"\\]|\\.)*")', r"\1", text, flags=re.S | re.M)
    tokens = re.findall(r'"(?:[^"\\]|\\.)*"|[{}()=;,]|[^\s{}()=;,"]+', text)
    value, rest = _value(tokens)
    assert rest == []
    return value


def _value(tokens: list[str]) -> tuple[Any, list[str]]:
    head, rest = tokens[0], tokens[1:]
    if head == "{":
        table: dict[str, Any] = {}
        while rest[0] != "}":
            key, equals = rest[0], rest[1]
            assert equals == "="
            assert key not in table
            table[key], rest = _value(rest[2:])
            assert rest[0] == ";"
            rest = rest[1:]
        return table, rest[1:]
    if head == "(":
        items = []
        while rest[0] != ")":
            item, rest = _value(rest)
            items.append(item)
            assert rest[0] == ","
            rest = rest[1:]
        return items, rest[1:]
    assert head not in "})=;,"
    return head.strip('"'), rest


def identifiers(value: object) -> set[str]:
    """The object identifiers in a value."""
    if isinstance(value, dict):
        return set().union(*(identifiers(item) for pair in value.items() for item in pair))
    if isinstance(value, list):
        return set().union(*map(identifiers, value))
    return {value} if isinstance(value, str) and re.fullmatch(r"[0-9A-F]{24}", value) else set()


def project(app: Path) -> dict[str, Any]:
    path = app / "EdgeBenchApp/EdgeBenchApp.xcodeproj/project.pbxproj"
    return dict(openstep(path.read_text()))


def test_ios_project_refers_to_objects_that_exist(tmp_path: Path) -> None:
    found = project(made(tmp_path, "ios"))
    objects = found["objects"]
    used = set().union(*map(identifiers, objects.values())) | {found["rootObject"]}
    assert used == set(objects)
    assert {entry["isa"] for entry in objects.values()} >= {"PBXProject", "PBXNativeTarget"}


def test_ios_project_refers_to_files_that_exist(tmp_path: Path) -> None:
    app = made(tmp_path, "ios")
    (tmp_path / "ios" / "model.ort").write_bytes(b"")
    (tmp_path / "ios" / "samples").mkdir()
    (tmp_path / "ios" / "coreml").mkdir()
    home = app / "EdgeBenchApp"
    seen = 0
    for entry in project(app)["objects"].values():
        if entry["isa"] == "XCLocalSwiftPackageReference":
            assert (home / entry["relativePath"] / "Package.swift").is_file()
        if entry["isa"] == "PBXFileReference" and entry["sourceTree"] != "BUILT_PRODUCTS_DIR":
            base = home if entry["sourceTree"] == "SOURCE_ROOT" else home / "EdgeBenchApp"
            assert (base / entry["path"]).exists(), entry["path"]
            seen += 1
    assert seen == 6


def test_ios_project_settings(tmp_path: Path) -> None:
    app = made(tmp_path, "ios", ios_deployment_target="16.0")
    settings = [
        e["buildSettings"] for e in project(app)["objects"].values() if "buildSettings" in e
    ]
    bundles = {s["PRODUCT_BUNDLE_IDENTIFIER"] for s in settings if "PRODUCT_NAME" in s}
    assert bundles == {"dev.edge-wright.bench", "dev.edge-wright.bench.tests"}  # no "_" there
    assert {s.get("IPHONEOS_DEPLOYMENT_TARGET", "16.0") for s in settings} == {"16.0"}
    plists = {s["INFOPLIST_FILE"] for s in settings if "INFOPLIST_FILE" in s}
    for name in plists:
        info = plistlib.loads((app / "EdgeBenchApp" / name).read_bytes())
        assert info["UIFileSharingEnabled"] is True
    assert plists


def test_ios_scheme_names_the_projects_targets(tmp_path: Path) -> None:
    app = made(tmp_path, "ios")
    (scheme,) = (app / "EdgeBenchApp").rglob("*.xcscheme")
    root = ET.parse(scheme).getroot()
    objects = project(app)["objects"]
    for reference in root.iter("BuildableReference"):
        target = objects[reference.get("BlueprintIdentifier")]
        assert target["name"] == reference.get("BlueprintName")
    test = root.find("TestAction")
    assert test is not None
    assert test.get("buildConfiguration") == "Release"


def test_ios_runtime_from_the_swift_package(tmp_path: Path) -> None:
    package = (made(tmp_path, "ios") / "EdgeBench/Package.swift").read_text()
    assert package.startswith("// swift-tools-version: 5.9\n")
    assert 'exact: "1.29.0"' in package
    assert "binaryTarget" not in package


def test_ios_runtime_from_the_official_archive(tmp_path: Path) -> None:
    package = (
        made(tmp_path, "ios", pod_checksum="ab" * 32) / "EdgeBench/Package.swift"
    ).read_text()
    assert 'pod-archive-onnxruntime-c-1.29.0.zip",' in package
    assert f'checksum: "{"ab" * 32}"' in package


def test_ios_embedded_runtime_comes_from_the_bundle(tmp_path: Path) -> None:
    app = made(tmp_path, "ios", embedded=True)
    package = (app / "EdgeBench/Package.swift").read_text()
    (path,) = re.findall(r'binaryTarget\(name: "onnxruntime", path: "(.*)"\)', package)
    runtime = tmp_path / "ios/runtime/onnxruntime.xcframework.zip"
    assert (app / "EdgeBench" / path).resolve() == runtime.resolve()
    assert "https:" not in package


def test_ios_targets_of_the_package_have_their_folders(tmp_path: Path) -> None:
    package = made(tmp_path, "ios") / "EdgeBench"
    text = (package / "Package.swift").read_text()
    for name in re.findall(r'\.target\(name: "(\w+)", dependencies', text):
        assert (package / "Sources" / name).is_dir()
    for name in re.findall(r'\.testTarget\(name: "(\w+)"', text):
        assert (package / "Tests" / name).is_dir()


def test_ios_tool_is_a_package_beside_the_library(tmp_path: Path) -> None:
    tool = made(tmp_path, "ios") / "EdgeBenchTool"
    text = (tool / "Package.swift").read_text()
    (path,) = re.findall(r'\.package\(path: "(.*)"\)', text)
    assert (tool / path / "Package.swift").is_file()
    (name,) = re.findall(r'executableTarget\(\s*name: "(.*?)"', text)
    assert (tool / "Sources" / name / "main.swift").is_file()


def test_ios_model_says_what_is_there_for_core_ml(tmp_path: Path) -> None:
    model = "EdgeBench/Sources/EdgeBench/EdgeModel.swift"
    text = (made(tmp_path / "1", "ios") / model).read_text()
    assert 'artifact: "coreml/model.basic.ort"' in text
    assert '"MLComputeUnits": "ALL",' in text
    for way in ("CPUExecutionProvider", "CoreMLExecutionProvider:CPUOnly", "coreml:ALL"):
        assert f'        "{way}",\n' in text
    text = (made(tmp_path / "2", "ios", coreml={}) / model).read_text()
    assert "coreml: EdgeCoreMLFiles? = nil" in text
    assert text.count("ExecutionProvider") == 1


def test_ios_without_core_ml_has_no_folder_of_it(tmp_path: Path) -> None:
    app = made(tmp_path, "ios", coreml={})
    names = {entry.get("name") for entry in project(app)["objects"].values()}
    assert "samples" in names
    assert "coreml" not in names


def test_ios_app_has_no_compiler_of_packages_in_its_way(tmp_path: Path) -> None:
    """Xcode would compile a package that it knows; the runner does that, to measure it."""
    objects = project(made(tmp_path, "ios"))["objects"].values()
    (folder,) = [entry for entry in objects if entry.get("name") == "coreml"]
    assert folder["lastKnownFileType"] == "folder"


def test_ios_telemetry_is_off_before_the_runtime_can_see_it(tmp_path: Path) -> None:
    (path,) = made(tmp_path, "ios").rglob("EdgeSession.swift")
    text = path.read_text()
    assert text.index('setenv("ORT_DISABLE_TELEMETRY", "1", 1)') < text.index("CreateEnv")


def test_ios_tests_find_the_bundle(tmp_path: Path) -> None:
    app = made(tmp_path, "ios")
    (test,) = app.rglob("EdgeBenchTests.swift")
    (up,) = re.findall(r'appendingPathComponent\("([./]+)"\)', test.read_text())
    assert (test.parent / up).resolve() == app.parent.resolve()


def test_ios_runner_knows_no_user_interface(tmp_path: Path) -> None:
    for name, text in texts(made(tmp_path, "ios") / "EdgeBench/Sources").items():
        assert not re.search(r"^import (UIKit|SwiftUI)", text, re.MULTILINE), name
