from pathlib import Path

import pytest

from mislabel.sweeps.checks.reader import checked_spec, read_spec
from mislabel.sweeps.errors import Problem, SpecError
from mislabel.sweeps.spec.document import Document, read_document
from mislabel.sweeps.spec.model import Axis, Spec

HEAD = "name: a\ntask: bowl\n"
"""Mistakes in the text after it are on line 3."""


def checked(text: str) -> Spec:
    spec, task = checked_spec(read_document(text, "a.yaml"))
    assert task.name == spec.task
    return spec


def mistakes(text: str) -> list[Problem]:
    with pytest.raises(SpecError) as caught:
        checked(text)
    return caught.value.problems


def located(problem: Problem) -> str:
    return f"{problem.place}, {problem.path}" if problem.place else problem.path


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


def test_keys_without_a_value_have_their_default() -> None:
    empty = "parameters:\nmetric:\nexclude:\nseeds:\nbudget:\nresources:\nmethod:\ntrack:\n"
    assert checked(HEAD + empty) == checked(HEAD)


@pytest.mark.parametrize(
    ("text", "where", "shown"),
    [
        # Missing
        ("task: bowl", 'name', []),
        ("name: a", 'task', []),
        (HEAD + "method: random\nparameters: {x: {min: 0, max: 1}}",
         'budget.cells', []),
        (HEAD + "method: tpe\nmetric: {name: loss, goal: minimize}\nparameters: {x: {min: 0, max: 1}}\nbudget: {}",
         'line 6, budget.cells', []),
        (HEAD + "method: tpe\nparameters: {x: {min: 0, max: 1}}\nbudget: {cells: 3}",
         'metric', []),
        (HEAD + "method: random\nbudget: {cells: 3}", 'parameters', []),
        (HEAD + "metric: {name: loss}", 'line 3, metric.goal', []),
        (HEAD + "parameters: {x: {min: 0, max: 1}}",
         'line 3, parameters.x', []),
        (HEAD + "parameters: {x: {min: 1}}", 'line 3, parameters.x', []),
        (HEAD + "parameters: {x: {}}",
         'line 3, parameters.x', []),
        (HEAD + "parameters: {x: {values: null}}",
         'line 3, parameters.x', []),
        (HEAD + "parameters: {x: null}", 'line 3, parameters.x', []),
        (HEAD + "parameters: {x: {values: [1, null]}}", 'line 3, parameters.x.values[1]', []),
        (HEAD + "parameters: {x: {values: []}}", 'line 3, parameters.x.values', []),
        # Words that are not known
        ("name: a\ntask: bwl", 'line 2, task', ["'bwl'", 'bowl']),
        ("name: a\ntask: gardening", 'line 2, task', ["'gardening'"]),
        (HEAD + "parmeters: {}", 'line 3, parmeters', ['parameters']),
        (HEAD + "color: red", 'line 3, color', []),
        (HEAD + "parameters: {widht: 3}", 'line 3, parameters.widht', ['width']),
        (HEAD + "parameters: {noise: 3}", 'line 3, parameters.noise', []),
        (HEAD + "parameters: {x: {value: [1]}}",
         'line 3, parameters.x.value', ['values']),
        (HEAD + "seeds: {count: 3, frst: 2}", 'line 3, seeds.frst', ['first']),
        (HEAD + "metric: {name: los, goal: minimize}",
         'line 3, metric.name', ["'los'", 'loss']),
        (HEAD + "metric: {name: speed, goal: minimize}",
         'line 3, metric.name', ["'speed'"]),
        (HEAD + "metric: {name: loss, goal: minimise}",
         'line 3, metric.goal', ["'minimise'", 'minimize']),
        (HEAD + "method: rnd",
         'line 3, method.name', ["'rnd'"]),
        (HEAD + "exclude: [wdth > 1]", 'line 3, exclude[0]', ["'wdth'", 'width']),
        (HEAD + "parameters: {x: {values: [1], when: rat > 1}}",
         'line 3, parameters.x.when', ["'rat'", 'rate']),
        (HEAD + "parameters: {surface: smoth}", 'line 3, parameters.surface', ["'smoth'"]),
        # Names that would leave the store
        *[
            (f"name: {name}\ntask: bowl", 'line 1, name', [])
            for name in ("../a", "a/b", "/etc", "..", ".", ".hidden", "a..b", "a.", r"a\b", "a b", "-a", "''", "5", "ä")
        ],
        ("name: " + "a" * 101 + "\ntask: bowl", "line 1, name", ["a" * 101]),
        # The wrong type
        (HEAD + "parameters: {x: word}", 'line 3, parameters.x', ["'word'"]),
        (HEAD + "parameters: {x: true}", 'line 3, parameters.x', ['True']),
        (HEAD + "parameters: {level: true}", 'line 3, parameters.level', ['True']),
        (HEAD + "parameters: {level: 1.5}", 'line 3, parameters.level', ['1.5']),
        (HEAD + "parameters: {level: {values: [true]}}",
         'line 3, parameters.level.values[0]', ['True']),
        (HEAD + "parameters: {tilted: 1}", 'line 3, parameters.tilted', ['1']),
        (HEAD + "parameters: {tilted: no}", 'line 3, parameters.tilted', ["'no'"]),
        (HEAD + "parameters: {surface: 1}", 'line 3, parameters.surface', ['1']),
        (HEAD + "parameters: {x: [1, 2]}",
         'line 3, parameters.x', []),
        (HEAD + "parameters: {x: {values: 3}}", 'line 3, parameters.x.values', ['3']),
        (HEAD + "parameters: {x: {values: [[1]]}}",
         'line 3, parameters.x.values[0]', []),
        (HEAD + "parameters: {x: {min: a, max: 1, points: 2}}", 'line 3, parameters.x.min', ["'a'"]),
        (HEAD + "parameters: {x: {min: true, max: 1, points: 2}}", 'line 3, parameters.x.min', ['True']),
        (HEAD + "parameters: {x: {min: 0, max: 1, points: 2.5}}",
         'line 3, parameters.x.points', ['2.5']),
        (HEAD + "parameters: {surface: {min: 1, max: 2, points: 2}}",
         'line 3, parameters.surface', []),
        (HEAD + "parameters: {x: {values: [1], when: 3}}", 'line 3, parameters.x.when', ['3']),
        (HEAD + "parameters: [x, 1]",
         'line 3, parameters', []),
        (HEAD + "metric: loss", 'line 3, metric', []),
        (HEAD + "metric: [loss]", 'line 3, metric[0]', []),
        (HEAD + "seeds: true",
         'line 3, seeds', []),
        (HEAD + "seeds: [1, 2]", 'line 3, seeds', []),
        (HEAD + "seeds: {count: x}", 'line 3, seeds.count', ["'x'"]),
        (HEAD + "budget: 6h", 'line 3, budget', []),
        (HEAD + "budget: {wall: 6 hours}",
         'line 3, budget.wall', ["'6 hours'"]),
        (HEAD + "exclude: {x: 1}", 'line 3, exclude', []),
        (HEAD + "exclude: [5]", 'line 3, exclude[0]', ['5']),
        (HEAD + "resources: {pack: aut}",
         'line 3, resources.pack', ["'aut'", 'auto']),
        # Out of bounds
        (HEAD + "parameters: {x: 11}", 'line 3, parameters.x', ['11']),
        (HEAD + "parameters: {rate: {values: [0.5, 0]}}", 'line 3, parameters.rate.values[1]', ['0']),
        (HEAD + "parameters: {width: {min: 0, max: 3}}", 'line 3, parameters.width.min', ['0']),
        (HEAD + "parameters: {width: {min: 1, max: 65}}", 'line 3, parameters.width.max', ['65']),
        (HEAD + "parameters: {x: .nan}", 'line 3, parameters.x', ['nan']),
        (HEAD + "parameters: {rate: .inf}", 'line 3, parameters.rate', ['inf']),
        (HEAD + "parameters: {level: .nan}", 'line 3, parameters.level', ['nan']),
        (HEAD + "parameters: {x: {values: [-.inf]}}", 'line 3, parameters.x.values[0]', ['-inf']),
        (HEAD + "parameters: {x: {min: .nan, max: 1, points: 2}}", 'line 3, parameters.x.min', ['nan']),
        (HEAD + "parameters: {x: {min: 0, max: .inf, points: 2}}", 'line 3, parameters.x.max', ['inf']),
        (HEAD + "parameters: {steps: 100000000000000000000}",
         'line 3, parameters.steps', ['100000000000000000000']),
        (HEAD + "parameters: {x: {min: 2, max: 1, points: 3}}",
         'line 3, parameters.x', []),
        (HEAD + "parameters: {x: {min: 1, max: 1, points: 3}}",
         'line 3, parameters.x', []),
        (HEAD + "parameters: {x: {min: 0, max: 1, scale: log, points: 3}}",
         'line 3, parameters.x.min', ['0']),
        (HEAD + "parameters: {x: {min: -1, max: 1, scale: log, points: 3}}",
         'line 3, parameters.x.min', ['-1']),
        (HEAD + "parameters: {x: {min: 0, max: 1, points: 0}}", 'line 3, parameters.x.points', ['0']),
        (HEAD + "parameters: {x: {min: 0, max: 1, points: 1_000_000_000_000}}",
         'line 3, parameters.x.points', ['1000000000000']),
        (HEAD + "seeds: 0", 'line 3, seeds.count', ['0']),
        (HEAD + "seeds: {first: -1}", 'line 3, seeds.first', ['-1']),
        (HEAD + "seeds: 1e12", 'line 3, seeds', []),
        (HEAD + "seeds: 1_000_000_000_000", 'line 3, seeds.count', ['1000000000000']),
        (HEAD + "budget: {wall: 0s}", 'line 3, budget.wall', ["'0s'"]),
        (HEAD + "budget: {failures: -1}", 'line 3, budget.failures', ['-1']),
        (HEAD + "resources: {cpu: 0}", 'line 3, resources.cpu', ['0']),
        (HEAD + "resources: {pack: 0}", 'line 3, resources.pack', ['0']),
        # What does not go together
        (HEAD + "budget: {cells: 3}",
         'line 3, budget.cells', []),
        (HEAD + "parameters: {x: {values: [1], min: 2, max: 3}}",
         'line 3, parameters.x', []),
        (HEAD + "parameters: {x: {values: [1, 2], points: 3}}",
         'line 3, parameters.x', []),
        (HEAD + "parameters: {x: {values: [1, 2, 1.0]}}", 'line 3, parameters.x.values[2]', []),
        (HEAD + "parameters: {x: {values: [1], when: x > 1}}",
         'line 3, parameters.x.when', []),
        (HEAD + "exclude: [surface > 3]",
         'line 3, exclude[0]', []),
        (HEAD + "exclude: ['x >']", 'line 3, exclude[0]', ["'x >'"]),
        (HEAD + "exclude: [open(1)]", 'line 3, exclude[0]', []),
        (HEAD + "parameters: {surface: rough, width: {values: [2, 64]}}",
         'line 3, parameters.width', []),
        (HEAD + "metric: [{name: loss, goal: minimize}, {name: loss, goal: maximize}]",
         'line 3, metric[1].name', []),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_once_with_its_location_and_value(text: str, where: str, shown: list[str]) -> None:
    (problem,) = mistakes(text)
    assert located(problem) == where
    assert all(part in problem.text for part in shown)


def test_all_mistakes_come_at_once_in_the_order_of_the_file() -> None:
    found = mistakes(
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
    )
    assert [located(problem) for problem in found] == [
        "line 1, name",
        "line 3, metric.goal",
        "line 3, metric.name",
        "line 5, parameters.widht",
        "line 6, parameters.x.points",
        "line 6, parameters.x.max",
        "line 6, parameters.x.when",
        "line 7, parameters.rate.values[2]",
        "line 7, parameters.rate.values[1]",
        "line 8, parameters.level.when",
        "line 10, exclude[0]",
        "line 10, exclude[1]",
        "line 11, seeds.count",
        "line 12, budget.wall",
        "line 12, budget.cell",
        "line 13, colour",
    ]


def test_without_a_known_task_the_rest_is_still_checked() -> None:
    found = mistakes("name: a\ntask: bowls\nparameters: {anything: [1]}\nseeds: 0\n")
    assert [located(problem) for problem in found] == [
        "line 2, task",
        "line 3, parameters.anything",
        "line 4, seeds.count",
    ]


def test_an_integer_range_without_points_is_a_grid_of_all_its_values() -> None:
    assert checked(HEAD + "parameters: {level: {min: 3, max: 6}}").axes()["level"].points is None


def test_a_huge_grid_is_refused_quickly() -> None:
    axes = ", ".join(f"{name}: {{min: 1, max: 10, points: 10000}}" for name in ("x", "level"))
    (problem,) = mistakes(HEAD + f"parameters: {{{axes}, rate: {{min: 0.1, max: 1, points: 10000}}}}")
    assert located(problem) == "line 3, parameters"
    assert "1,000,000,000 cells" in problem.text


@pytest.mark.long
def test_many_values_are_checked_quickly() -> None:
    values = [i / 10_000 for i in range(50_000)]
    spec, _ = checked_spec(Document("a.yaml", {"name": "a", "task": "bowl", "parameters": {"x": {"values": values}}}))
    assert spec.axes()["x"].values == values


def test_mistakes_in_assignments_are_located_at_the_assignment(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(HEAD)
    spec, _ = read_spec(str(path), ("seeds=7", "parameters.x={values: [1, 2]}"))
    assert spec.seeds.count == 7
    with pytest.raises(SpecError) as caught:
        read_spec(str(path), ("parameters.x=11", "seeds=0"))
    assert [located(problem) for problem in caught.value.problems] == [
        "--set parameters.x=11, parameters.x",
        "--set seeds=0, seeds.count",
    ]


@pytest.mark.parametrize("content", [None, b"name: \xff"], ids=["missing", "not UTF-8"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "a.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        read_spec(str(path))
    assert caught.value.source == str(path)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read_spec(str(tmp_path))
    assert caught.value.source == str(tmp_path)


@pytest.mark.parametrize("word", ["sane-tpe", "sane-tep.yaml"])
def test_a_file_that_was_probably_meant_is_suggested(tmp_path: Path, word: str) -> None:
    (tmp_path / "sane-tpe.yaml").write_text(HEAD)
    (tmp_path / "sane-grid.yaml").write_text(HEAD)
    with pytest.raises(SpecError) as caught:
        read_spec(str(tmp_path / word))
    assert f"{tmp_path / 'sane-tpe.yaml'}?" in str(caught.value)


# quick

FULL = HEAD + "parameters:\n  x: {values: [0, 1, 2]}\n  level: 3\nseeds: 20\nquick:\n  seeds: 2\n"


def read_quickly(tmp_path: Path, text: str, quick: bool = True) -> Spec:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    return read_spec(str(path), quick=quick)[0]


def test_a_bundled_spec_is_read_by_name_unless_there_is_a_file_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quickstart").mkdir()
    assert read_spec("quickstart")[0].name == "quickstart"
    assert read_spec("theorem1")[0].name == "xor-clusters.theorem1"
    assert [message.split()[-1] for message in messages] == ["quickstart", "xor-clusters/theorem1"]
    (tmp_path / "theorem1").write_text("name: mine\ntask: xor_clusters\n")
    assert read_spec("theorem1")[0].name == "mine"
    assert len(messages) == 2


def test_a_word_that_is_neither_a_file_nor_a_bundled_spec_is_refused_with_a_suggestion() -> None:
    with pytest.raises(SpecError, match=r"did you mean quickstart\?") as caught:
        read_spec("quikstart")
    assert caught.value.source == "quikstart"


def test_a_small_version_applies_its_section_and_has_another_name(tmp_path: Path) -> None:
    text = FULL + "  parameters: {x: {values: [0]}, steps: 2}\n"
    full, quick = read_quickly(tmp_path, text, quick=False), read_quickly(tmp_path, text)
    assert (full.name, full.seeds.count, full.fixed()) == ("a", 20, {"level": 3})
    assert (quick.name, quick.seeds.count, quick.fixed()) == ("a-quick", 2, {"level": 3, "steps": 2})
    assert quick.axes()["x"].values == [0.0]


def test_mistakes_of_the_small_version_have_their_own_lines(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read_quickly(tmp_path, FULL + "  parameters: {level: -1}\n")
    assert [located(problem) for problem in caught.value.problems] == ["line 9, parameters.level"]


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("section", ["quick: 3", "quick: [1]", "quick: {parameters: [1]}"])
def test_a_small_version_that_is_no_mapping_is_refused(tmp_path: Path, section: str, quick: bool) -> None:
    with pytest.raises(SpecError) as caught:
        read_quickly(tmp_path, HEAD + section, quick)
    assert [located(problem) for problem in caught.value.problems] == ["line 3, quick"]


def test_without_a_section_there_is_no_small_version(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as caught:
        read_quickly(tmp_path, HEAD)
    assert [problem.path for problem in caught.value.problems] == ["quick"]


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("task: bowl\nquick: {seeds: 1}", "name"),
        (HEAD + "parameters: [1]\nquick: {seeds: 1, parameters: {}}", "line 4, parameters"),
        (HEAD + "quick: {sedes: 1}", "line 3, sedes"),
    ],
)
def test_other_mistakes_are_reported_in_the_small_version_too(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_quickly(tmp_path, text)
    assert [located(problem) for problem in caught.value.problems] == [where]


def test_weights_are_kept_only_of_tasks_that_have_them() -> None:
    assert checked(HEAD + "keep: weights\n").keep == "weights"
    (problem,) = mistakes("name: a\ntask: xor_clusters\nkeep: weights\n")
    assert located(problem) == "line 3, keep"
