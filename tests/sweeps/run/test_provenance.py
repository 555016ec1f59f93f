import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mislabel.sweeps.run.provenance import MODIFIED, commit_of, provenance
from mislabel.tasks.registry import find_task


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A task's module in a separate folder."""
    path = tmp_path / "repository" / "own_task.py"
    path.parent.mkdir()
    path.write_text("x = 1\n")
    monkeypatch.syspath_prepend(path.parent)
    __import__("own_task")
    yield path
    del sys.modules["own_task"]


def committed(module: Path) -> str:
    git(module.parent, "init")
    git(module.parent, "add", "own_task.py")
    git(module.parent, "commit", "-m", "one")
    return git(module.parent, "rev-parse", "HEAD")


@pytest.mark.long
def test_the_commit_of_the_tasks_code_is_recorded(module: Path) -> None:
    commit = committed(module)
    assert provenance("own_task")["git"] == {"commit": commit, "dirty": False}


def test_a_changed_file_makes_it_dirty(module: Path) -> None:
    commit = committed(module)
    module.write_text("x = 2\n")
    assert provenance("own_task")["git"] == {"commit": commit, "dirty": True}
    git(module.parent, "commit", "-am", "two")
    assert not provenance("own_task")["git"]["dirty"]


@pytest.mark.long
def test_a_launch_names_its_commit_and_marks_a_modified_checkout(module: Path) -> None:
    assert commit_of(provenance("own_task")) == ""
    commit = committed(module)
    assert commit_of(provenance("own_task")) == commit
    module.write_text("x = 2\n")
    assert commit_of(provenance("own_task")) == f"{commit}{MODIFIED}"


def test_untracked_files_do_not_make_it_dirty(module: Path) -> None:
    committed(module)
    (module.parent / "notes.txt").write_text("results")
    assert not provenance("own_task")["git"]["dirty"]


def test_without_a_repository_there_is_no_commit(module: Path) -> None:
    assert provenance("own_task")["git"] == {}


def test_an_untracked_task_is_dirty(module: Path) -> None:
    git(module.parent, "init")
    git(module.parent, "commit", "--allow-empty", "-m", "one")
    assert provenance("own_task")["git"]["dirty"]


@pytest.mark.parametrize("ignored", ["own_task.py", "repository/"])
def test_code_installed_inside_another_repository_has_no_commit(module: Path, ignored: str) -> None:
    """Such as a package in a virtual environment inside a project's folder."""
    project = module.parent.parent
    git(project, "init")
    (project / ".gitignore").write_text(ignored)
    git(project, "add", ".gitignore")
    git(project, "commit", "-m", "one")
    assert provenance("own_task")["git"] == {}


def test_versions_machine_and_time_are_recorded() -> None:
    found = provenance(find_task("bowl").init.__module__)
    assert {"mislabel", "torch", "pyarrow", "numpy"} <= found["versions"].keys()
    assert found["versions"]["bowl"] == "1.0"
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert all(found[key] for key in ("started_at", "command", "user", "host", "platform"))


def test_a_password_on_the_command_line_is_not_recorded(module: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/bin/mislabel", "run", "a.yaml", "--mlflow", "postgresql://me:pw@db/x"])
    assert provenance("own_task")["command"] == "mislabel run a.yaml --mlflow postgresql://…@db/x"
