import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml

from mislabel.cluster.address import free_ports
from mislabel.sweeps.commands.main import COMMANDS, without_secrets
from mislabel.sweeps.errors import TICKET, ExitCode
from tests.bowls import bowl_values
from tests.sweeps.commands.conftest import Mislabel

MISLABEL = str(Path(sys.executable).parent / "mislabel")
HEAVY = ("torch", "ray", "mlflow", "pandas", "optuna", "matplotlib", "scipy")


def process(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """The command in a process of its own."""
    return subprocess.run([MISLABEL, *arguments], cwd=folder, capture_output=True, text=True, timeout=120, check=False)


def loaded_by(*arguments: str, folder: Path) -> list[str]:
    """Heavy packages that are loaded once the command has ended."""
    script = (
        "import sys\nfrom mislabel.sweeps.commands.main import main\n"
        f"sys.argv = ['mislabel', *{list(arguments)!r}]\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('loaded', *[name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()[1:]


def test_help_lists_every_command_with_a_line(mislabel: Mislabel) -> None:
    said = mislabel("--help")
    assert said.code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in said.out
    assert said.err == ""


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_of_its_own(mislabel: Mislabel, name: str) -> None:
    said = mislabel(name, "--help")
    assert said.code == 0
    assert said.out.startswith("Usage: ")
    assert f" {name} " in said.out.splitlines()[0]
    assert said.err == ""


def test_the_version_is_that_of_the_package(mislabel: Mislabel) -> None:
    assert mislabel("--version").out == f"mislabel {version('mislabel')}\n"


def test_a_wrong_command_is_refused_with_the_nearest(mislabel: Mislabel) -> None:
    said = mislabel("rnu")
    assert said.code == 2
    assert said.out == ""
    assert "no command 'rnu'; did you mean run?" in said.err


@pytest.mark.parametrize(
    "arguments", [("run",), ("list", "--wrong"), ("status",), ("results", "a", "--top", "0"), ("plan", "a", "b")]
)
def test_wrong_usage_is_refused(mislabel: Mislabel, arguments: tuple[str, ...]) -> None:
    said = mislabel(*arguments)
    assert said.code == 2
    assert said.out == ""
    assert said.err
    assert "Traceback" not in said.err


def test_an_error_is_a_sentence_and_with_debug_a_traceback(mislabel: Mislabel, monkeypatch: pytest.MonkeyPatch) -> None:
    said = mislabel("plan", "missing.yaml")
    assert said.code == 2
    assert said.out == ""
    assert said.err == "mislabel: missing.yaml\n  can't be read: No such file or directory\n"
    said = mislabel("--debug", "plan", "missing.yaml")
    assert said.code == 2
    assert "SpecError" in said.err
    assert "Traceback" in said.err


def test_options_that_contain_a_secret_become_variables() -> None:
    uri, backend = "postgresql://me:pw@db/x", "postgresql://me:other@db/y"
    arguments = ["run", "a.yaml", "--mlflow", uri, "--inline"]
    assert without_secrets(arguments) == (["run", "a.yaml", "--inline"], {"MLFLOW_TRACKING_URI": uri})
    arguments = ["cluster", "up", f"--mlflow-backend={backend}", "--mlflow"]
    assert without_secrets(arguments) == (["cluster", "up", "--mlflow"], {"MISLABEL_MLFLOW_BACKEND": backend})
    arguments = ["sync", "--mlflow", "http://127.0.0.1:5000", "--mlflow=sqlite:///a.db"]
    assert without_secrets(arguments) == (arguments, {})


def test_a_secret_in_a_wrong_argument_is_not_shown(mislabel: Mislabel) -> None:
    said = mislabel("sync", "--mlfow=postgresql://me:planted-secret@db/x")
    assert said.code == 2
    assert "planted-secret" not in said.err


@pytest.mark.parametrize("command", [("list",), ("status", "a"), ("results", "a")])
def test_a_store_that_is_no_folder_is_named(mislabel: Mislabel, folder: Path, command: tuple[str, ...]) -> None:
    (folder / "file").write_text("no store")
    said = mislabel(*command, "--store", "file")
    assert said.code == 2
    assert said.out == ""
    assert said.err.startswith("mislabel: file: ")


@pytest.mark.parametrize("command", [("list",), ("status", "a"), ("results", "a")])
def test_a_newer_store_is_refused(mislabel: Mislabel, folder: Path, command: tuple[str, ...]) -> None:
    (folder / "results").mkdir()
    (folder / "results" / "store.json").write_text('{"schema": 99}')
    said = mislabel(*command)
    assert said.code == 2
    assert "written by a newer Mislabel (layout 99" in said.err


@pytest.mark.parametrize("started_by", ["user", "head"])
def test_a_damaged_store_is_no_wrong_spec_and_the_head_does_not_try_again(
    mislabel: Mislabel, folder: Path, monkeypatch: pytest.MonkeyPatch, started_by: str
) -> None:
    if started_by == "head":
        monkeypatch.setenv(TICKET, str(folder / "ticket.json"))
    (folder / "bowls.yaml").write_text(yaml.safe_dump(bowl_values()))
    (folder / "results").mkdir()
    (folder / "results" / "store.json").write_text("damaged")
    assert mislabel("run", "bowls.yaml", "--inline", "--no-mlflow").code == ExitCode.FAILED


@pytest.mark.parametrize(("started_by", "code"), [("user", ExitCode.WRONG), ("head", ExitCode.CRASHED)])
def test_the_head_tries_again_after_an_error_that_may_pass(
    mislabel: Mislabel, folder: Path, monkeypatch: pytest.MonkeyPatch, started_by: str, code: ExitCode
) -> None:
    if started_by == "head":
        monkeypatch.setenv(TICKET, str(folder / "ticket.json"))
    (folder / "bowls.yaml").write_text(yaml.safe_dump(bowl_values()))
    (port,) = free_ports("127.0.0.1", 1)
    assert mislabel("run", "bowls.yaml", "--address", f"127.0.0.1:{port}", "--no-mlflow").code == code


@pytest.mark.long
def test_what_is_only_looked_at_loads_nothing_heavy(folder: Path) -> None:
    (folder / "results" / "a").mkdir(parents=True)
    (folder / "results" / "a" / "spec.yaml").write_text("name: a\ntask: bowl\n")
    assert loaded_by("--help", folder=folder) == []
    assert loaded_by("list", folder=folder) == []
    assert loaded_by("status", "a", folder=folder) == []
    assert loaded_by("wrong", folder=folder) == []


@pytest.mark.long
def test_the_whole_way_in_processes_of_their_own(folder: Path) -> None:
    """Stdout is data, stderr is talk; 0: done, 1: some runs failed, 2: wrong spec."""
    values = bowl_values(parameters={"trouble": {"values": [0, 1]}})
    (folder / "bowls.yaml").write_text(yaml.safe_dump(values))
    inline = ("--inline", "--no-mlflow")
    failed = process("run", "bowls.yaml", *inline, folder=folder)
    assert failed.returncode == 1, failed.stderr
    assert failed.stdout.splitlines()[0].split() == ["trouble", "seeds", "loss"]
    assert "2 runs failed" in failed.stderr
    assert "Traceback" not in failed.stderr
    listed = process("list", folder=folder)
    assert (listed.returncode, listed.stderr) == (0, "")
    wrong = process("run", "bowls.yaml", *inline, "--set", "seeds=0", folder=folder)
    assert wrong.returncode == 2
    assert wrong.stdout == ""
    assert wrong.stderr == "mislabel: bowls.yaml\n  --set seeds=0, seeds.count: 0 is not at least 1\n"


@pytest.mark.long
def test_output_that_nobody_reads_is_no_error(folder: Path) -> None:
    pipe = f"{MISLABEL} tasks --json | head -c 10"
    done = subprocess.run(["sh", "-c", pipe], cwd=folder, capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_the_store_may_be_named_by_the_environment(mislabel: Mislabel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MISLABEL_STORE", "elsewhere")
    assert "no sweeps in elsewhere" in mislabel("list").err
