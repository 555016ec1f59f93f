from tests.sweeps.commands.conftest import Mislabel


def test_every_installed_task_is_listed_with_what_it_shows(mislabel: Mislabel) -> None:
    said = mislabel("tasks")
    assert said.code == 0
    assert said.err == ""
    lines = said.out.splitlines()
    assert lines[0].split() == ["task", "what", "it", "shows"]
    assert any(line.startswith("bowl ") and "A bowl: weights roll" in line for line in lines)
    assert any(line.startswith("xor_clusters ") for line in lines)


def test_a_task_is_shown_with_its_parameters_and_metrics(mislabel: Mislabel) -> None:
    said = mislabel("tasks", "bowl")
    assert said.code == 0
    assert said.out.startswith("bowl (version 1)\nA bowl: weights roll")
    (rate,) = (line for line in said.out.splitlines() if line.startswith("rate"))
    assert rate.split(maxsplit=3)[:3] == ["rate", "knob", "0.5"]
    assert "> 0 and ≤ 1" in rate
    assert "how fast they roll" in rate
    assert "mean square distance from the bottom" in said.out


def test_a_script_gets_all_of_it_as_json(mislabel: Mislabel) -> None:
    (task,) = mislabel("tasks", "bowl", "--json").json
    assert (task["name"], task["version"]) == ("bowl", 1)
    assert task["parameters"]["width"] == {
        "kind": "shape", "type": "int", "default": 2, "rule": "≥ 1 and ≤ 64", "help": "weights"
    }  # fmt: skip
    assert task["metrics"]["weight"] == {"help": "each weight", "per": "weight"}
    assert {task["name"] for task in mislabel("tasks", "--json").json} >= {"bowl", "bowl.single", "xor_clusters"}


def test_a_task_that_is_not_installed_is_named_with_the_nearest(mislabel: Mislabel) -> None:
    said = mislabel("tasks", "bwl")
    assert said.code == 2
    assert said.out == ""
    assert said.err == "mislabel: 'bwl' is not an installed task; did you mean bowl?\n"
