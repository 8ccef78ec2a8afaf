"""Templates: what is rendered, what is refused, and text that may never leave its literal."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge import errors
from edge.convert import render
from edge.convert.render import folder_digest, template_files

HOSTILE = (
    '"',
    "\\",
    '\\"',
    "$",
    "${x}",
    "$(id)",
    "\\(x)",
    "\n",
    "\r\n",
    "\0",
    "'",
    "`id`",
    "</script>",
    "]]>",
    "-->",
    "{{ x }}",
    "{% x %}",
    "&amp;",
    "\u2028",
    "\ud800",
    "\U0001f600",
    '"; exit(1); "',
    '"""',
    "#pragma",
    "//",
    "/*",
    "*/",
)
texts = st.one_of(
    st.text(st.characters(exclude_categories=()), max_size=40),
    st.lists(st.sampled_from(HOSTILE), max_size=6).map("".join),
)


def well_formed(text: str) -> str:
    return "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)


def make(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return folder


def rendered(tmp_path: Path, text: str, **variables: object) -> str:
    render.render(make(tmp_path / "t", {"a.txt.j2": text}), tmp_path / "o", variables)
    return (tmp_path / "o" / "a.txt").read_text(encoding="utf-8")


def fails(tmp_path: Path, text: str, **variables: object) -> errors.ConfigError:
    with pytest.raises(errors.ConfigError) as caught:
        rendered(tmp_path, text, **variables)
    return caught.value


# -------------------------------------------------------------------------------- filters
def kotlin_value(literal: str) -> str:
    """What Kotlin reads in a literal; fails for whatever would end it or start a template."""
    assert re.fullmatch(r'"(?:[ !#%-\[\]-~]|\\["\\$nrt]|\\u[0-9a-f]{4})*"', literal)
    plain = {'\\"': '"', "\\\\": "\\", "\\$": "$", "\\n": "\n", "\\r": "\r", "\\t": "\t"}
    units = re.findall(r"\\u[0-9a-f]{4}|\\.|.", literal[1:-1])
    text = "".join(chr(int(u[2:], 16)) if u[:2] == "\\u" else plain.get(u, u) for u in units)
    return text.encode("utf-16", "surrogatepass").decode("utf-16")


def swift_value(literal: str) -> str:
    """What Swift reads in a literal; fails for whatever would end it or start an interpolation."""
    assert re.fullmatch(r'"(?:[ !#-\[\]-~]|\\["\\nrt]|\\u\{[0-9a-f]{1,6}\})*"', literal)
    plain = {'\\"': '"', "\\\\": "\\", "\\n": "\n", "\\r": "\r", "\\t": "\t"}
    units = re.findall(r"\\u\{[0-9a-f]+\}|\\.|.", literal[1:-1])
    return "".join(chr(int(u[3:-1], 16)) if u[:2] == "\\u" else plain.get(u, u) for u in units)


@given(texts)
def test_kotlin_literal_holds_exactly_the_text(text: str) -> None:
    assert kotlin_value(render.kotlin_string(text)) == well_formed(text)


@given(texts)
def test_swift_literal_holds_exactly_the_text(text: str) -> None:
    assert swift_value(render.swift_string(text)) == well_formed(text)


@given(texts)
def test_json_and_js_literals_hold_exactly_the_text(text: str) -> None:
    assert json.loads(render.json_value(text)) == text
    assert json.loads(render.js_string(text)) == well_formed(text)
    assert re.fullmatch(r"\"[ -%(-;=?-~]*\"", render.js_string(text))


@given(st.dictionaries(texts, st.one_of(texts, st.integers(), st.none(), st.lists(texts))))
def test_json_values(value: dict[str, object]) -> None:
    made = render.json_value(value)
    assert json.loads(made) == value
    assert not set("<>&") & set(made)


@given(texts)
def test_xml_text_and_attribute_hold_the_text(text: str) -> None:
    made = render.xml(text)
    element = ET.fromstring(f"<a b=\"{made}\" c='{made}'>{made}</a>")
    allowed = "".join(
        c if c in "\t\n\r" or (c >= " " and c not in "\ufffe\uffff") else "\ufffd"
        for c in well_formed(text)
    )
    assert element.get("b") == element.get("c") == (element.text or "") == allowed
    assert made.isascii()


@given(texts)
def test_markdown_is_one_line_with_everything_escaped(text: str) -> None:
    made = render.markdown(text)
    assert made.isprintable()
    assert not re.search(r"(?<!\\)[!-/:-@\[^-`{-~]", re.sub(r"\\\\", "", made))
    words = "".join(c if c.isprintable() else " " for c in well_formed(text)).split()
    assert re.sub(r"\\(.)", r"\1", made).split() == words


@pytest.mark.parametrize(
    ("value", "literal"), [(1, "1.0"), (1e-05, "1e-05"), (0.001, "0.001"), (None, "nil")]
)
def test_double(value: float | None, literal: str) -> None:
    assert render.double(value, "nil") == literal


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", True, [1]])
def test_double_refuses(value: object) -> None:
    with pytest.raises(errors.ConfigError, match="no finite number"):
        render.double(value)


@pytest.mark.parametrize("value", [1.0, "1", True, None])
def test_integer_refuses(value: object) -> None:
    with pytest.raises(errors.ConfigError, match="no whole number"):
        render.integer(value)


@pytest.mark.parametrize("value", ["1.29.0", "model.ort", "arm64-v8a", "x86_64", "1.0+b1"])
def test_plain_words(value: str) -> None:
    assert render.plain(value) == value


@pytest.mark.parametrize("value", ["", "a b", "a\n", "../a", ".a", "a/b", '"', "ä", 3, "a" * 65])
def test_plain_refuses(value: object) -> None:
    with pytest.raises(errors.ConfigError, match="is no plain word"):
        render.plain(value)


@pytest.mark.parametrize("value", ["app", "a..b", "1.a", "a.1", "a.b-c", "$(x).y", "a.b\n"])
def test_application_id_refuses(value: str) -> None:
    with pytest.raises(errors.ConfigError, match="no application id"):
        render.application_id(value)


def test_application_id_and_sha256() -> None:
    assert render.application_id("dev.edge_wright.bench2") == "dev.edge_wright.bench2"
    assert render.sha256("0f" * 32) == "0f" * 32
    with pytest.raises(errors.ConfigError, match="no SHA-256"):
        render.sha256("0F" * 32)


# ------------------------------------------------------------------------------ rendering
def test_template_loses_its_suffix_and_keeps_its_last_line_end(tmp_path: Path) -> None:
    assert rendered(tmp_path, "{{ a }}\n", a="b") == "b\n"


def test_nothing_is_escaped_on_its_own(tmp_path: Path) -> None:
    assert rendered(tmp_path, "{{ a }}", a="<&>") == "<&>"


def test_filters_in_a_template(tmp_path: Path) -> None:
    text = "{{ a | kotlin_string }} {{ b.c | double('null') }} {{ d | map('plain') | join(',') }}"
    assert rendered(tmp_path, text, a="$x", b={"c": None}, d=["e", "f"]) == '"\\$x" null e,f'


def test_other_files_are_copied_with_the_executable_bit(tmp_path: Path) -> None:
    content = bytes(range(256)) + b"{{ not a template }}\r\n"
    folder = tmp_path / "t"
    (folder / "d").mkdir(parents=True)
    (folder / "d" / "run.sh").write_bytes(content)
    (folder / "d" / "run.sh").chmod(0o700)
    (folder / "plain").write_bytes(b"")
    (folder / "plain").chmod(0o600)
    render.render(folder, tmp_path / "o", {})
    assert (tmp_path / "o/d/run.sh").read_bytes() == content
    assert (tmp_path / "o/d/run.sh").stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "o/plain").stat().st_mode & 0o777 == 0o644


def test_names_hold_variables(tmp_path: Path) -> None:
    folder = make(tmp_path / "t", {"src/{{package}}/{{ name }}-x.kt.j2": "{{ name }}"})
    render.render(folder, tmp_path / "o", {"package": "p", "name": "n"})
    assert (tmp_path / "o/src/p/n-x.kt").read_text() == "n"


@pytest.mark.parametrize(
    "value", ["..", ".", "", "a/b", "/a", "a\\b", "a\0b", "a\nb", " a", "a:b", "x" * 300, "a*"]
)
def test_names_cannot_lead_elsewhere(tmp_path: Path, value: str) -> None:
    folder = make(tmp_path / "t", {"{{name}}/a.txt": "x"})
    with pytest.raises(errors.ConfigError, match=r"template \{\{name\}\}/a.txt would give a file"):
        render.render(folder, tmp_path / "o", {"name": value})
    assert not list(tmp_path.glob("o/**/a.txt"))


def test_name_with_an_unknown_variable(tmp_path: Path) -> None:
    folder = make(tmp_path / "t", {"{{nope}}.txt": "x"})
    with pytest.raises(errors.ConfigError, match="variable 'nope' is not given"):
        render.render(folder, tmp_path / "o", {})


def test_two_templates_for_one_file(tmp_path: Path) -> None:
    folder = make(tmp_path / "t", {"a.txt": "x", "A.txt.j2": "y"})
    with pytest.raises(errors.ConfigError, match="as another one does"):
        render.render(folder, tmp_path / "o", {})


def test_symbolic_links_are_refused(tmp_path: Path) -> None:
    folder = make(tmp_path / "t", {"a.txt": "x"})
    (folder / "link").symlink_to("/etc/hostname")
    with pytest.raises(errors.ConfigError, match="link is a symbolic link"):
        render.render(folder, tmp_path / "o", {})


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="no template folder"):
        render.render(tmp_path / "nope", tmp_path / "o", {})


def test_twice_the_same_bytes(tmp_path: Path) -> None:
    folder = make(tmp_path / "t", {"b.j2": "{{ x | json }}", "a/{{n}}": "", "a/c": "1"})
    for out in ("o1", "o2"):
        render.render(folder, tmp_path / out, {"x": {"k": [1, 2]}, "n": "m"})
    first, second = (
        {p.relative_to(o).as_posix(): p.read_bytes() for p in o.rglob("*") if p.is_file()}
        for o in (tmp_path / "o1", tmp_path / "o2")
    )
    assert first == second
    assert sorted(first) == ["a/c", "a/m", "b"]


# --------------------------------------------------------------------------------- errors
def test_undefined_variable_names_file_line_and_variable(tmp_path: Path) -> None:
    error = fails(tmp_path, "a\nb\n{{ nope }}\n")
    assert "a.txt.j2:3" in error.message
    assert "'nope' is undefined" in error.message
    assert error.remedy


@pytest.mark.parametrize("name", render.FILTERS)
def test_undefined_variable_in_a_filter(tmp_path: Path, name: str) -> None:
    error = fails(tmp_path, f"\n{{{{ nope | {name} }}}}")
    assert "a.txt.j2:2: 'nope' is undefined" in error.message


def test_undefined_key_of_a_mapping(tmp_path: Path) -> None:
    error = fails(tmp_path, "{{ a.b | double }}", a={"c": 1})
    assert "a.txt.j2:1" in error.message
    assert "'b'" in error.message


def test_undefined_variable_in_a_condition(tmp_path: Path) -> None:
    assert "'nope'" in fails(tmp_path, "{% if nope %}x{% endif %}").message


def test_syntax_error_names_file_and_line(tmp_path: Path) -> None:
    assert "a.txt.j2:2: " in fails(tmp_path, "a\n{% if %}").message


def test_refused_value_names_file_and_line(tmp_path: Path) -> None:
    error = fails(tmp_path, "a\n{{ v | plain }}", v="1.0; rm")
    assert "a.txt.j2:2: '1.0; rm' is no plain word" in error.message


def test_unknown_filter(tmp_path: Path) -> None:
    assert "No filter named 'nope'" in fails(tmp_path, "{{ 1 | nope }}").message


def test_value_of_another_kind(tmp_path: Path) -> None:
    assert "a.txt.j2:1" in fails(tmp_path, "{{ a + 1 }}", a="x").message


@pytest.mark.parametrize(
    "text",
    ["{{ ''.__class__.__mro__ }}", "{{ a.append(1) }}", "{% for x in range(10**9) %}{% endfor %}"],
)
def test_templates_run_in_a_sandbox(tmp_path: Path, text: str) -> None:
    assert "a.txt.j2:1" in fails(tmp_path, text, a=[]).message


def test_values_are_never_templates_themselves(tmp_path: Path) -> None:
    assert rendered(tmp_path, "{{ a }}", a="{{ b }}") == "{{ b }}"


def test_template_that_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "a.j2").write_bytes(b"\xff")
    with pytest.raises(errors.ConfigError, match=r"a\.j2 is no UTF-8 text"):
        render.render(tmp_path / "t", tmp_path / "o", {})


def test_too_large_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "MAX_TEMPLATE_BYTES", 3)
    assert "larger than 3 bytes" in fails(tmp_path, "abcd").message


# --------------------------------------------------------------------------------- digest
def test_digest_follows_names_modes_and_contents(tmp_path: Path) -> None:
    folder = make(tmp_path / "t", {"a": "1", "b/c": "2"})
    seen = [folder_digest(folder)]
    make(folder, {"a": "2"})
    seen.append(folder_digest(folder))
    (folder / "a").chmod(0o755)
    seen.append(folder_digest(folder))
    (folder / "a").rename(folder / "d")
    seen.append(folder_digest(folder))
    assert len(set(seen)) == 4
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in seen)


def test_digest_is_the_same_for_a_copy_made_at_another_time(tmp_path: Path) -> None:
    files = {"a": "1", "b/c": "2"}
    one, two = make(tmp_path / "1", files), make(tmp_path / "2", dict(reversed(files.items())))
    os.utime(two / "a", (1, 1))
    assert folder_digest(one) == folder_digest(two)


def test_template_files(tmp_path: Path) -> None:
    folder = make(tmp_path / "t", {"b/c": "2", "a": "1"})
    assert template_files(folder) == {"a": folder / "a", "b/c": folder / "b" / "c"}
    assert list(template_files(folder)) == ["a", "b/c"]
