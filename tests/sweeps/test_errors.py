import pytest

from mislabel.sweeps.errors import MislabelError, Problem, SpecError, StoreError, SweepBusyError, nearest


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem("seeds", "is missing"), "seeds: is missing"),
        (Problem("seeds", "is missing", "line 3"), "line 3, seeds: is missing"),
        (Problem("", "is no mapping", "line 3"), "line 3: is no mapping"),
        (Problem("", "is no mapping"), "is no mapping"),
    ],
)
def test_a_problem_is_its_place_its_path_and_a_sentence(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_a_spec_error_lists_all_problems_below_its_source() -> None:
    error = SpecError("a.yaml", [Problem("a", "x"), Problem("b", "y")])
    assert str(error) == "a.yaml\n  a: x\n  b: y"


@pytest.mark.parametrize("kind", [StoreError, SweepBusyError])
def test_every_error_is_one_of_ours(kind: type[Exception]) -> None:
    assert issubclass(kind, MislabelError)


def test_a_near_miss_is_offered_and_nothing_else() -> None:
    assert nearest("widht", ["depth", "width"]) == "; did you mean width?"
    assert nearest("zzz", ["depth", "width"]) == ""
    assert nearest("widht", []) == ""
