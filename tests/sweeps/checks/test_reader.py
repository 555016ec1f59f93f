import time
from pathlib import Path

import pytest

from mislabel.sweeps.checks.reader import checked_spec, read_spec
from mislabel.sweeps.errors import SpecError
from mislabel.sweeps.spec.document import Document, read_document
from mislabel.sweeps.spec.model import Axis, Spec

HEAD = "name: a\ntask: bowl\n"
"""Mistakes below it stand on line 3."""


def checked(text: str) -> Spec:
    spec, task = checked_spec(read_document(text, "a.yaml"))
    assert task.name == spec.task
    return spec


def mistakes(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        checked(text)
    return [str(problem) for problem in caught.value.problems]


def test_a_good_spec_is_read_into_typed_values() -> None:
    spec = checked(
        HEAD
        + """
method: grid
metric: {name: loss, goal: minimize}
parameters:
  steps: 1e1
  rate: 1
  x: {values: [0, 1, 2.5]}
  level: {min: 1, max: 3}
  width: {min: 1, max: 64, scale: log, points: 3, when: x > 0}
exclude: [x == 1 and level > 2]
seeds: 20
budget: {wall: 6h, failures: 3}
resources: {cpu: 1, gpu: 0, pack: auto}
"""
    )
    assert spec.fixed() == {"steps": 10, "rate": 1.0}
    assert type(spec.fixed()["steps"]) is int
    assert type(spec.fixed()["rate"]) is float
    assert spec.axes()["x"].values == [0.0, 1.0, 2.5]
    assert spec.axes()["level"] == Axis(min=1, max=3)
    assert spec.exclude == ("x == 1 and level > 2",)
    assert list(spec.seed_range) == list(range(20))
    assert spec.budget.wall == 6 * 3600


def test_keys_without_a_value_take_their_default() -> None:
    empty = "parameters:\nmetric:\nexclude:\nseeds:\nbudget:\nresources:\nmethod:\ntrack:\n"
    assert checked(HEAD + empty) == checked(HEAD)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        # What is not there
        ("task: bowl", "name: is missing; give the sweep a name, such as noise-by-width"),
        ("name: a", "task: is missing; there are bowl, bowl.single, "),
        (HEAD + "method: random\nparameters: {x: {min: 0, max: 1}}",
         "budget.cells: is missing; random needs to know how many cells to propose"),
        (HEAD + "method: tpe\nmetric: {name: loss, goal: minimize}\nparameters: {x: {min: 0, max: 1}}\nbudget: {}",
         "line 6, budget.cells: is missing; tpe needs to know how many cells to propose"),
        (HEAD + "method: tpe\nparameters: {x: {min: 0, max: 1}}\nbudget: {cells: 3}",
         "metric: is missing; tpe needs to know what to improve, such as {name: .., goal: minimize}"),
        (HEAD + "method: random\nbudget: {cells: 3}", "parameters: none varies, so random has nothing to propose"),
        (HEAD + "metric: {name: loss}", "line 3, metric.goal: is missing"),
        (HEAD + "parameters: {x: {min: 0, max: 1}}",
         "line 3, parameters.x: a grid over a range needs points; write how many, or list values"),
        (HEAD + "parameters: {x: {min: 1}}", "line 3, parameters.x: a range needs both ends; max is missing"),
        (HEAD + "parameters: {x: {}}",
         "line 3, parameters.x: gives no values; write {values: [..]}, or {min: .., max: ..}"),
        (HEAD + "parameters: {x: {values: null}}",
         "line 3, parameters.x: gives no values; write {values: [..]}, or {min: .., max: ..}"),
        (HEAD + "parameters: {x: null}", "line 3, parameters.x: has no value"),
        (HEAD + "parameters: {x: {values: [1, null]}}", "line 3, parameters.x.values[1]: has no value"),
        (HEAD + "parameters: {x: {values: []}}", "line 3, parameters.x.values: is empty; list at least one value"),
        # Words that are not known
        ("name: a\ntask: bwl", "line 2, task: 'bwl' is not an installed task; did you mean bowl?"),
        ("name: a\ntask: gardening", "line 2, task: 'gardening' is not an installed task; there are bowl, "),
        (HEAD + "parmeters: {}", "line 3, parmeters: not a key of a spec; did you mean parameters?"),
        (HEAD + "color: red", "line 3, color: not a key of a spec; it has name, task, method, metric, "),
        (HEAD + "parameters: {widht: 3}", "line 3, parameters.widht: not a parameter of bowl; did you mean width?"),
        (HEAD + "parameters: {noise: 3}", "line 3, parameters.noise: not a parameter of bowl; it has steps, frames, "),
        (HEAD + "parameters: {x: {value: [1]}}",
         "line 3, parameters.x.value: not a key of parameters.x; did you mean values?"),
        (HEAD + "seeds: {count: 3, frst: 2}", "line 3, seeds.frst: not a key of seeds; did you mean first?"),
        (HEAD + "metric: {name: los, goal: minimize}",
         "line 3, metric.name: 'los' is not measured by bowl; did you mean loss?"),
        (HEAD + "metric: {name: speed, goal: minimize}",
         "line 3, metric.name: 'speed' is not measured by bowl; it measures height, loss, rest_step"),
        (HEAD + "metric: {name: loss, goal: minimise}",
         "line 3, metric.goal: 'minimise' is not one of minimize, maximize; did you mean minimize?"),
        (HEAD + "method: rnd",
         "line 3, method.name: 'rnd' is not one of grid, random, qmc, tpe, gp, cmaes, nsga2, nsga3"),
        (HEAD + "exclude: [wdth > 1]", "line 3, exclude[0]: 'wdth' is not a parameter of bowl; did you mean width?"),
        (HEAD + "parameters: {x: {values: [1], when: rat > 1}}",
         "line 3, parameters.x.when: 'rat' is not a parameter of bowl; did you mean rate?"),
        (HEAD + "parameters: {surface: smoth}", "line 3, parameters.surface: 'smoth' is not one of smooth, rough"),
        # Names that would leave the store
        *[
            (f"name: {name}\ntask: bowl", "line 1, name: ")
            for name in ("../a", "a/b", "/etc", "..", ".", ".hidden", "a..b", "a.", r"a\b", "a b", "-a", "''", "5", "ä")
        ],
        ("name: " + "a" * 101 + "\ntask: bowl",
         f"line 1, name: '{'a' * 101}' is not a name; use at most 100 letters, digits, - and _, with single dots"),
        # The wrong type
        (HEAD + "parameters: {x: word}", "line 3, parameters.x: 'word' is not a number"),
        (HEAD + "parameters: {x: true}", "line 3, parameters.x: True is not a number"),
        (HEAD + "parameters: {level: true}", "line 3, parameters.level: True is not a whole number"),
        (HEAD + "parameters: {level: 1.5}", "line 3, parameters.level: 1.5 is not a whole number"),
        (HEAD + "parameters: {level: {values: [true]}}",
         "line 3, parameters.level.values[0]: True is not a whole number"),
        (HEAD + "parameters: {tilted: 1}", "line 3, parameters.tilted: 1 is not true or false"),
        (HEAD + "parameters: {tilted: no}", "line 3, parameters.tilted: 'no' is not true or false"),
        (HEAD + "parameters: {surface: 1}", "line 3, parameters.surface: 1 is not a string"),
        (HEAD + "parameters: {x: [1, 2]}",
         "line 3, parameters.x: is a list; write {values: [1, 2]} to try each of them"),
        (HEAD + "parameters: {x: {values: 3}}", "line 3, parameters.x.values: 3 is not a list"),
        (HEAD + "parameters: {x: {values: [[1]]}}",
         "line 3, parameters.x.values[0]: a list is not true or false, nor a whole number, nor a number, nor a word"),
        (HEAD + "parameters: {x: {min: a, max: 1, points: 2}}", "line 3, parameters.x.min: 'a' is not a number"),
        (HEAD + "parameters: {x: {min: true, max: 1, points: 2}}", "line 3, parameters.x.min: True is not a number"),
        (HEAD + "parameters: {x: {min: 0, max: 1, points: 2.5}}",
         "line 3, parameters.x.points: 2.5 is not a whole number"),
        (HEAD + "parameters: {surface: {min: 1, max: 2, points: 2}}",
         "line 3, parameters.surface: surface takes words, which have no range; write {values: [..]}"),
        (HEAD + "parameters: {x: {values: [1], when: 3}}", "line 3, parameters.x.when: 3 is not a word"),
        (HEAD + "parameters: [x, 1]",
         "line 3, parameters: is a list; write a mapping of parameter names to values"),
        (HEAD + "metric: loss", "line 3, metric: is the value 'loss'; write a mapping of name, goal"),
        (HEAD + "metric: [loss]", "line 3, metric[0]: is the value 'loss'; write a mapping of name, goal"),
        (HEAD + "seeds: true",
         "line 3, seeds: is the value True; write a number of seeds, or {count: 20, first: 0}"),
        (HEAD + "seeds: [1, 2]", "line 3, seeds: is a list; write a number of seeds, or {count: 20, first: 0}"),
        (HEAD + "seeds: {count: x}", "line 3, seeds.count: 'x' is not a whole number"),
        (HEAD + "budget: 6h", "line 3, budget: is the value '6h'; write a mapping of cells, runs, wall, failures"),
        (HEAD + "budget: {wall: 6 hours}",
         "line 3, budget.wall: '6 hours' is not a time; write 90s, 15m, 6h or 2d"),
        (HEAD + "exclude: {x: 1}", "line 3, exclude: is a mapping; write a list of conditions"),
        (HEAD + "exclude: [5]", "line 3, exclude[0]: 5 is not a condition; write one such as 'noise_rate > 0.3'"),
        (HEAD + "resources: {pack: aut}",
         "line 3, resources.pack: 'aut' is not a whole number, nor auto; did you mean auto?"),
        # Out of bounds
        (HEAD + "parameters: {x: 11}", "line 3, parameters.x: 11 is not at most 10"),
        (HEAD + "parameters: {rate: {values: [0.5, 0]}}", "line 3, parameters.rate.values[1]: 0 is not above 0"),
        (HEAD + "parameters: {width: {min: 0, max: 3}}", "line 3, parameters.width.min: 0 is not at least 1"),
        (HEAD + "parameters: {width: {min: 1, max: 65}}", "line 3, parameters.width.max: 65 is not at most 64"),
        (HEAD + "parameters: {x: .nan}", "line 3, parameters.x: nan is not finite"),
        (HEAD + "parameters: {rate: .inf}", "line 3, parameters.rate: inf is not finite"),
        (HEAD + "parameters: {level: .nan}", "line 3, parameters.level: nan is not a whole number"),
        (HEAD + "parameters: {x: {values: [-.inf]}}", "line 3, parameters.x.values[0]: -inf is not finite"),
        (HEAD + "parameters: {x: {min: .nan, max: 1, points: 2}}", "line 3, parameters.x.min: nan is not finite"),
        (HEAD + "parameters: {x: {min: 0, max: .inf, points: 2}}", "line 3, parameters.x.max: inf is not finite"),
        (HEAD + "parameters: {steps: 100000000000000000000}",
         "line 3, parameters.steps: 100000000000000000000 is too large for a whole number of 64 bits"),
        (HEAD + "parameters: {x: {min: 2, max: 1, points: 3}}",
         "line 3, parameters.x: min 2 is not below max 1; a single value is written without a range"),
        (HEAD + "parameters: {x: {min: 1, max: 1, points: 3}}",
         "line 3, parameters.x: min 1 is not below max 1; a single value is written without a range"),
        (HEAD + "parameters: {x: {min: 0, max: 1, scale: log, points: 3}}",
         "line 3, parameters.x.min: 0 is not above 0, as a log scale needs"),
        (HEAD + "parameters: {x: {min: -1, max: 1, scale: log, points: 3}}",
         "line 3, parameters.x.min: -1 is not above 0, as a log scale needs"),
        (HEAD + "parameters: {x: {min: 0, max: 1, points: 0}}", "line 3, parameters.x.points: 0 is not at least 1"),
        (HEAD + "parameters: {x: {min: 0, max: 1, points: 1_000_000_000_000}}",
         "line 3, parameters.x.points: 1000000000000 is not at most 10000"),
        (HEAD + "seeds: 0", "line 3, seeds.count: 0 is not at least 1"),
        (HEAD + "seeds: {first: -1}", "line 3, seeds.first: -1 is not at least 0"),
        (HEAD + "seeds: 1e12", "line 3, seeds: is the value 1000000000000.0; write a number of seeds"),
        (HEAD + "seeds: 1_000_000_000_000", "line 3, seeds.count: 1000000000000 is not at most 1e+06"),
        (HEAD + "budget: {wall: 0s}", "line 3, budget.wall: '0s' is not above 0"),
        (HEAD + "budget: {failures: -1}", "line 3, budget.failures: -1 is not at least 0"),
        (HEAD + "resources: {cpu: 0}", "line 3, resources.cpu: 0 is not above 0"),
        (HEAD + "resources: {pack: 0}", "line 3, resources.pack: 0 is not at least 1, nor auto"),
        # What does not go together
        (HEAD + "budget: {cells: 3}",
         "line 3, budget.cells: a grid runs all its cells; remove it, or use method random or tpe"),
        (HEAD + "parameters: {x: {values: [1], min: 2, max: 3}}",
         "line 3, parameters.x: gives both values and a range; keep one of them"),
        (HEAD + "parameters: {x: {values: [1, 2], points: 3}}",
         "line 3, parameters.x: points, step and scale belong to a range, not to a list of values"),
        (HEAD + "parameters: {x: {values: [1, 2, 1.0]}}", "line 3, parameters.x.values[2]: 1.0 stands twice"),
        (HEAD + "parameters: {x: {values: [1], when: x > 1}}",
         "line 3, parameters.x.when: depends on x itself, directly or through other conditions"),
        (HEAD + "exclude: [surface > 3]",
         "line 3, exclude[0]: 'surface > 3' compares or combines values of different kinds"),
        (HEAD + "exclude: ['x >']", "line 3, exclude[0]: 'x >' is not a condition: invalid syntax; read are names, "),
        (HEAD + "exclude: [open(1)]", "line 3, exclude[0]: 'open(1)': 'open(1)' is not read in conditions; read are "),
        (HEAD + "parameters: {surface: rough, width: {values: [2, 64]}}",
         "line 3, parameters.width: a rough bowl holds at most 32 weights, not width 64"),
        (HEAD + "metric: [{name: loss, goal: minimize}, {name: loss, goal: maximize}]",
         "line 3, metric[1].name: 'loss' stands twice"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_once_with_its_place_the_rule_and_what_would_be_right(text: str, mistake: str) -> None:
    (told,) = mistakes(text)
    assert told.startswith(mistake)


def test_all_mistakes_come_at_once_in_the_order_of_the_file() -> None:
    assert mistakes(
        """\
name: a/b
task: bowl
metric: {name: accuracy, goal: maximum}
parameters:
  widht: 3
  x: {min: 4, max: 99, points: 0, when: rat > 1}
  rate: {values: [0.5, 2, null]}
  level: {values: [1], when: trouble == 1}
  trouble: {values: [1], when: level == 1}
exclude: [y > 1, surface + 1 == 2]
seeds: 0
budget: {wall: soon, cell: 3}
colour: red
"""
    ) == [
        "line 1, name: 'a/b' is not a name; use at most 100 letters, digits, - and _, with single dots inside",
        "line 3, metric.goal: 'maximum' is not one of minimize, maximize; did you mean maximize?",
        "line 3, metric.name: 'accuracy' is not measured by bowl; it measures height, loss, rest_step",
        "line 5, parameters.widht: not a parameter of bowl; did you mean width?",
        "line 6, parameters.x.points: 0 is not at least 1",
        "line 6, parameters.x.max: 99 is not at most 10",
        "line 6, parameters.x.when: 'rat' is not a parameter of bowl; did you mean rate?",
        "line 7, parameters.rate.values[2]: has no value",
        "line 7, parameters.rate.values[1]: 2 is not at most 1",
        "line 8, parameters.level.when: depends on level itself, directly or through other conditions",
        "line 9, parameters.trouble.when: depends on trouble itself, directly or through other conditions",
        "line 10, exclude[0]: 'y' is not a parameter of bowl",
        "line 10, exclude[1]: 'surface + 1 == 2' compares or combines values of different kinds",
        "line 11, seeds.count: 0 is not at least 1",
        "line 12, budget.wall: 'soon' is not a time; write 90s, 15m, 6h or 2d",
        "line 12, budget.cell: not a key of budget; did you mean cells?",
        "line 13, colour: not a key of a spec; it has name, task, method, metric, parameters, exclude, zip, "
        "try_first, start_from, seeds, early_terminate, budget, resources, keep, track",
    ]


def test_without_a_known_task_the_rest_is_still_checked() -> None:
    assert mistakes("name: a\ntask: bowls\nparameters: {anything: [1]}\nseeds: 0\n") == [
        "line 2, task: 'bowls' is not an installed task; did you mean bowl?",
        "line 3, parameters.anything: is a list; write {values: [1]} to try each of them",
        "line 4, seeds.count: 0 is not at least 1",
    ]


def test_an_integer_range_without_points_is_a_grid_of_all_its_values() -> None:
    assert checked(HEAD + "parameters: {level: {min: 3, max: 6}}").axes()["level"].points is None


def test_a_grid_without_end_is_refused_without_walking_through_it() -> None:
    axes = ", ".join(f"{name}: {{min: 1, max: 10, points: 10000}}" for name in ("x", "level"))
    began = time.perf_counter()
    (told,) = mistakes(HEAD + f"parameters: {{{axes}, rate: {{min: 0.1, max: 1, points: 10000}}}}")
    assert told == (
        "line 3, parameters: make a grid of 1,000,000,000 cells, more than 100,000,000; "
        "give fewer values, or draw some with method random"
    )
    assert time.perf_counter() - began < 10


def test_many_values_are_checked_in_no_time() -> None:
    values = [i / 10_000 for i in range(50_000)]
    began = time.perf_counter()
    spec, _ = checked_spec(Document("a.yaml", {"name": "a", "task": "bowl", "parameters": {"x": {"values": values}}}))
    assert spec.axes()["x"].values == values
    assert time.perf_counter() - began < 30


def test_assignments_are_checked_too_and_named_as_the_place(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD)
    spec, _ = read_spec(str(path), ("seeds=7", "parameters.x={values: [1, 2]}"))
    assert spec.seeds.count == 7
    with pytest.raises(SpecError) as caught:
        read_spec(str(path), ("parameters.x=11", "seeds=0"))
    assert [str(problem) for problem in caught.value.problems] == [
        "--set parameters.x=11, parameters.x: 11 is not at most 10",
        "--set seeds=0, seeds.count: 0 is not at least 1",
    ]


@pytest.mark.parametrize(
    ("content", "mistake"),
    [(None, "can't be read: No such file or directory"), (b"name: \xff", "is not UTF-8 text; a spec is a YAML file")],
)
def test_a_file_that_is_no_text_or_not_there_is_named(tmp_path: Path, content: bytes | None, mistake: str) -> None:
    path = tmp_path / "a.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        read_spec(str(path))
    assert str(caught.value) == f"{path}\n  {mistake}"


def test_a_folder_is_no_spec(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="can't be read: Is a directory"):
        read_spec(str(tmp_path))


# quick

FULL = HEAD + "parameters:\n  x: {values: [0, 1, 2]}\n  level: 3\nseeds: 20\nquick:\n  seeds: 2\n"


def read_quickly(tmp_path: Path, text: str, quick: bool = True) -> Spec:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    return read_spec(str(path), quick=quick)[0]


def test_a_small_version_changes_what_its_section_says_and_is_a_sweep_of_its_own(tmp_path: Path) -> None:
    text = FULL + "  parameters: {x: {values: [0]}, steps: 2}\n"
    full, quick = read_quickly(tmp_path, text, quick=False), read_quickly(tmp_path, text)
    assert (full.name, full.seeds.count, full.fixed()) == ("a", 20, {"level": 3})
    assert (quick.name, quick.seeds.count, quick.fixed()) == ("a-quick", 2, {"level": 3, "steps": 2})
    assert quick.axes()["x"].values == [0.0]


def test_mistakes_of_the_small_version_have_their_own_lines(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read_quickly(tmp_path, FULL + "  parameters: {level: -1}\n")
    assert [str(problem) for problem in caught.value.problems] == ["line 9, parameters.level: -1 is not at least 0"]


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("section", ["quick: 3", "quick: [1]", "quick: {parameters: [1]}"])
def test_a_small_version_that_is_no_mapping_is_refused(tmp_path: Path, section: str, quick: bool) -> None:
    with pytest.raises(SpecError, match="line 3, quick: says what a small version of the sweep changes"):
        read_quickly(tmp_path, HEAD + section, quick)


def test_without_a_section_there_is_no_small_version(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="quick: says what a small version of the sweep changes"):
        read_quickly(tmp_path, HEAD)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("task: bowl\nquick: {seeds: 1}", "name: is missing"),
        (HEAD + "parameters: [1]\nquick: {seeds: 1, parameters: {}}", "parameters: is a list"),
        (HEAD + "quick: {sedes: 1}", "line 3, sedes: not a key of a spec; did you mean seeds?"),
    ],
)
def test_other_mistakes_are_told_in_the_small_version_too(tmp_path: Path, text: str, mistake: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_quickly(tmp_path, text)
    assert mistake in str(caught.value)


def test_what_is_kept_is_one_of_two_and_asked_of_tasks_that_have_it() -> None:
    assert checked(HEAD + "keep: weights\n").keep == "weights"
    assert mistakes(HEAD + "keep: weight\n") == [
        "line 3, keep: 'weight' is not one of results, weights; did you mean weights?"
    ]
    assert mistakes("name: a\ntask: xor_clusters\nkeep: weights\n") == [
        "line 3, keep: xor_clusters gives no weights; remove keep"
    ]
