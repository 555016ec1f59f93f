import json
import math
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from hypothesis import given
from hypothesis import strategies as st

from mislabel.cluster.head_state import Folder, State
from mislabel.sweeps.commands.main import cli
from mislabel.sweeps.commands.options import _without_nan, given_words, put_json, say
from mislabel.sweeps.commands.results import command
from mislabel.sweeps.store.store import Store
from tests.sweeps.commands.conftest import Mislabel, Said

numbers = st.floats() | st.integers() | st.text(max_size=3) | st.none() | st.booleans()


@given(st.recursive(numbers, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner)))
def test_printed_values_are_json(value: object) -> None:
    text = json.dumps(_without_nan(value), allow_nan=False)
    assert "NaN" not in text.replace('"NaN"', "")


def test_missing_numbers_are_null(capfd: pytest.CaptureFixture[str]) -> None:
    put_json({"a": [1.5, math.nan], "b": (math.inf, "x")})
    assert json.loads(capfd.readouterr().out) == {"a": [1.5, None], "b": [None, "x"]}


def test_messages_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    say("hello")
    assert capfd.readouterr() == ("", "hello\n")


def test_the_head_gets_the_parameters_of_the_command_line_without_the_address_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MISLABEL_STORE", "mine")
    words = ["a b", "--cluster", "http://a:1", "-m", "loss", "-m", "x", "--top=3", "--token-file=b", "--json"]
    mislabel = click.Context(click.Group(), info_name="python -m mislabel")
    ctx = command.make_context("results", words, mislabel)
    del ctx.params["cluster"], ctx.params["token_file"]
    assert given_words(ctx) == ["results", "a b", "--metric", "loss", "--metric", "x", "--top", "3", "--json"]


def test_store_and_cluster_exclude_each_other(mislabel: Mislabel, monkeypatch: pytest.MonkeyPatch) -> None:
    said = mislabel("list", "--cluster", "http://127.0.0.1:9", "--store", "other")
    assert said.code == 2
    assert "--store" in said.err
    assert "other" not in said.err
    monkeypatch.setenv("MISLABEL_CLUSTER", "http://127.0.0.1:9")
    assert "other" in mislabel("list", "--store", "other").err


def test_without_a_local_store_the_store_of_this_machines_cluster_is_read(
    mislabel: Mislabel, ran: Callable[..., Said], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran()
    head = Folder(folder / "no-cluster")
    head.path.mkdir()
    store = str(folder / "results")
    State("127.0.0.1", "127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3", store, 1, "").write(head)
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir(folder / "elsewhere")
    assert [row["name"] for row in mislabel("list", "--json").json] == ["bowls"]
    Store("results").prepare()
    assert mislabel("list", "--json").json == []


@pytest.mark.parametrize("command", ["plan", "run"])
def test_nine_mistakes_are_printed_in_one_run(command: str, mislabel: Mislabel, tmp_path: Path) -> None:
    file = tmp_path / "nine.yaml"
    file.write_text(
        """\
name: nine
task: bowl
method: tpe
metric: {name: loss, goal: minimise}
parameters:
  lr: 0.1
  seed: 3
  x: {min: 0, max: 1, when: "surface == rough"}
  width: {values: [1, 2]}
  level: {values: [1, 2, 3]}
zip: [[width, level]]
exclude: ["wdth > 1"]
seeds: {count: 5, up_to: 3}
early_terminate: {type: asha, min_steps: 5000}
budget: {wall: 6h}
"""
    )
    said = mislabel(command, str(file))
    assert said.code == 2
    places = [line.split(": ")[0].strip() for line in said.err.splitlines()[1:]]
    assert places == [
        "line 4, metric.goal",
        "line 6, parameters.lr",
        "line 7, parameters.seed",
        "line 8, parameters.x.when",
        "line 11, zip[0]",
        "line 12, exclude[0]",
        "line 13, seeds.up_to",
        "line 14, early_terminate.min_steps",
        "line 15, budget.cells",
    ]


@pytest.mark.parametrize("command", ["plan", "run", "submit"])
def test_the_shell_completes_names_of_bundled_specs_and_files(command: str) -> None:
    completion = ShellComplete(cli, {}, "mislabel", "_MISLABEL_COMPLETE")
    found = completion.get_completions([command], "xor-clusters/f")
    names = [item.value for item in found if item.type == "plain"]
    assert names == ["xor-clusters/fig1", "xor-clusters/fig2"]
    assert [item.type for item in found][-1] == "file"
