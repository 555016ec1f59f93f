import contextlib
import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from mislabel.sweeps.checks.reader import read_spec
from mislabel.sweeps.errors import Problem, SpecError
from mislabel.sweeps.spec.document import DEEPEST, LARGEST_BYTES, Document, read_document, read_value, text_from_value

scalars = st.none() | st.booleans() | st.integers(-(10**18), 10**18) | st.floats(allow_nan=False) | st.text(max_size=20)
json_like = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


def problems(text: str) -> list[Problem]:
    with pytest.raises(SpecError) as caught:
        read_document(text, "a.yaml")
    assert caught.value.source == "a.yaml"
    return caught.value.problems


def located(text: str) -> list[tuple[str, str]]:
    """The place and the path of each problem."""
    return [(problem.place, problem.path) for problem in problems(text)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        ("-2.5e+4", -25000.0),
        (".5", 0.5),
        ("5.", 5.0),
        ("1_000", 1000),
        ("1_000.5", 1000.5),
        ("+7", 7),
        ("017", 17),
        (".inf", math.inf),
        ("+.inf", math.inf),
        ("-.INF", -math.inf),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
    ],
)
def test_numbers_and_constants_are_read_as_a_researcher_means_them(text: str, value: object) -> None:
    read = read_value(text, "test")
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "yes",
        "on",
        "off",
        "No",
        "y",
        "0x1F",
        "0o17",
        "1:30",
        "2024-01-01",
        "1e",
        "e5",
        ".",
        "1__0",
        "_1",
        "nULL",
        "tRUE",
    ],
)
def test_strings_that_yaml_1_1_would_convert_stay_strings(text: str) -> None:
    assert read_value(text, "test") == text


def test_not_a_number_is_read_as_such() -> None:
    assert math.isnan(read_value(".nan", "test"))
    assert math.isnan(read_value(".NaN", "test"))


def test_a_quoted_number_stays_a_string() -> None:
    assert read_value("'1e-3'", "test") == "1e-3"
    assert read_value('"true"', "test") == "true"


@given(json_like)
def test_written_values_read_back_equal(value: Any) -> None:
    assert read_value(text_from_value(value), "test") == value


@given(st.text(max_size=30))
def test_every_string_reads_back_as_that_string(text: str) -> None:
    assert read_value(text_from_value({"key": [text]}), "test") == {"key": [text]}


def looks_like_yaml_1_2(text: str) -> bool:
    """Strings in YAML 1.1 that are numbers in YAML 1.2: safe_dump does not quote them."""
    return bool(re.fullmatch(r"[-+]?[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|[-+]?\.[0-9_]+([eE][-+]?[0-9]+)?", text))


@given(json_like.filter(lambda value: not any(map(looks_like_yaml_1_2, re.findall(r"[^\s,\[\]{}:'\"]+", str(value))))))
def test_values_dumped_by_pyyaml_read_back_equal(value: Any) -> None:
    dumped = yaml.safe_dump(value, allow_unicode=True)
    assume(yaml.safe_load(dumped) == value)  # it breaks lines at \x85, and reads them as blanks
    assert read_value(dumped, "test") == value


def test_every_part_has_its_line() -> None:
    document = read_document("name: a\nparameters:\n  width:\n    values:\n    - 1\n    - 2\n", "a.yaml")
    assert str(document.problem(("name",), "x")) == "line 1, name: x"
    assert str(document.problem(("parameters", "width"), "x")) == "line 3, parameters.width: x"
    assert str(document.problem(("parameters", "width", "values", 1), "x")) == "line 6, parameters.width.values[1]: x"


def test_a_missing_part_has_the_line_of_the_section_around_it() -> None:
    document = read_document("name: a\nbudget:\n  wall: 1h\n", "a.yaml")
    assert str(document.problem(("budget", "cells"), "is missing")) == "line 2, budget.cells: is missing"


def test_a_repeated_key_is_refused_with_both_lines() -> None:
    first, second = problems("name: a\nseeds: 1\nname: b\nparameters: {x: 1, x: 2}\n")
    assert (first.place, first.path) == ("line 3", "name")
    assert "line 1" in first.text
    assert (second.place, second.path) == ("line 4", "parameters.x")


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!int", "!own"])
def test_tags_are_refused(tag: str) -> None:
    (problem,) = problems(f"name: a\nseeds: {tag} [echo]\n")
    assert problem.place == "line 2"


def test_anchors_and_aliases_are_refused() -> None:
    assert located("a: &one [1]\nb: *one\n") == [("line 1", "&one"), ("line 2", "*one")]


def test_an_alias_bomb_is_refused_at_once() -> None:
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    )
    assert any(problem.path == "*a" for problem in problems(bomb))


@pytest.mark.parametrize("opening", ["[", "{a: ", "- "])
def test_deep_nesting_is_refused_at_once(opening: str) -> None:
    (problem,) = problems(opening * (LARGEST_BYTES // 10))
    assert str(DEEPEST) in problem.text


def test_several_documents_are_refused() -> None:
    assert len(problems("name: a\n---\nname: b\n")) == 1


@pytest.mark.parametrize(("text", "kind"), [("[1, 2]", "a list"), ("word", "the value 'word'"), ("3", "the value 3")])
def test_a_document_that_is_no_mapping_is_refused(text: str, kind: str) -> None:
    (problem,) = problems(text)
    assert kind in problem.text


def test_an_empty_document_is_an_empty_mapping() -> None:
    assert read_document("", "a.yaml").values == {}
    assert read_document("# nothing yet\n", "a.yaml").values == {}


def test_a_key_that_is_no_string_is_refused() -> None:
    assert located("name: a\n? [1, 2]\n: b\n") == [("line 2", "")]


@pytest.mark.parametrize("text", ["a: [1, 2", "a: b: c", "a:\n\t- b", "'unclosed", "\x00", "a: \x07"])
def test_broken_yaml_is_one_problem_in_one_line(text: str) -> None:
    (problem,) = problems(text)
    assert "\n" not in str(problem)


def test_broken_yaml_is_named_with_line_and_column() -> None:
    (problem,) = problems("name: a\nseeds: [1, 2\ntask: b\n")
    assert problem.place == "line 3, column 5"


@given(st.text(max_size=200))
def test_every_text_gives_values_or_a_spec_error(text: str) -> None:
    with contextlib.suppress(SpecError):
        assert isinstance(read_document(text, "a.yaml").values, dict)


def test_a_huge_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "huge.yaml"
    with path.open("wb") as file:
        file.truncate(100 << 20)
    with pytest.raises(SpecError, match=r"104,857,600 bytes"):
        read_spec(str(path))


def test_a_long_text_is_refused() -> None:
    (problem,) = problems("#" * (LARGEST_BYTES + 1))
    assert "1,000,001" in problem.text


# --set


def test_an_assignment_replaces_a_value_and_its_place() -> None:
    document = read_document("name: a\nparameters:\n  width: 1\n", "a.yaml")
    document.set("parameters.width=1e3")
    assert document.values["parameters"] == {"width": 1000.0}
    assert str(document.problem(("parameters", "width"), "x")) == "--set parameters.width=1e3, parameters.width: x"
    assert str(document.problem(("name",), "x")) == "line 1, name: x"


def test_an_assignment_creates_missing_sections() -> None:
    document = Document("a.yaml", {"seeds": 5})
    document.set("parameters.width={min: 1, max: 2}")
    document.set("seeds.count=3")
    document.set("exclude=[a == 1, b >= 2]")
    assert document.values == {
        "seeds": {"count": 3},
        "parameters": {"width": {"min": 1, "max": 2}},
        "exclude": ["a == 1", "b >= 2"],
    }


def test_parts_of_an_assigned_value_have_the_place_of_the_assignment() -> None:
    document = read_document("parameters:\n  width:\n    values: [1, 2]\n", "a.yaml")
    document.set("parameters.width={values: [1, x]}")
    assert (
        str(document.problem(("parameters", "width", "values", 1), "y"))
        == "--set parameters.width={values: [1, x]}, parameters.width.values[1]: y"
    )


@pytest.mark.parametrize("assignment", ["seeds", "=5", ".width=5", "parameters..width=5", ""])
def test_an_assignment_without_key_or_value_is_refused(assignment: str) -> None:
    with pytest.raises(SpecError) as caught:
        Document("a.yaml", {}).set(assignment)
    assert (caught.value.source, caught.value.problems[0].path) == ("--set", assignment)


def test_an_assignment_of_broken_yaml_names_the_assignment() -> None:
    with pytest.raises(SpecError) as caught:
        Document("a.yaml", {}).set("exclude=[1")
    assert caught.value.source == "--set exclude=[1"
    assert caught.value.problems[0].place == "line 1, column 3"
