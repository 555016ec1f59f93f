"""A damaged database never ends a sweep, and `mislabel sync --rebuild` writes a new one and keeps the old one."""

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from mislabel.analysis.mlflow_view.database import DamagedDatabaseError, file_of, set_aside
from mislabel.analysis.mlflow_view.view import View
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.store import Store, SweepFiles
from tests.analysis.mlflow_view.shown import MLFLOWS_OWN_WARNINGS, nested_runs, nobodys_address
from tests.bowls import bowl_values

pytestmark = [pytest.mark.server, MLFLOWS_OWN_WARNINGS]

MISLABEL = str(Path(sys.executable).parent / "mislabel")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("MLFLOW_", "MISLABEL_"))}
# A process that kills itself in the middle of MLflow's migrations, some fifty, and then runs what follows.
DIE_HALF_WAY = """
import os, signal, sys
from sqlalchemy import Engine, event

migrations = 0

@event.listens_for(Engine, "before_cursor_execute")
def count(connection, cursor, statement, *others):
    global migrations
    migrations += statement.startswith("UPDATE alembic_version")
    if migrations == 20:
        os.kill(os.getpid(), signal.SIGKILL)

"""
CREATE = "from mlflow import MlflowClient; MlflowClient(sys.argv[1]).search_experiments()"
SYNC = "from mislabel.sweeps.commands.main import main; main()"


def mislabel(*words: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [MISLABEL, *words]
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=False)


def die_half_way(code: str, *words: str) -> None:
    command = [sys.executable, "-c", DIE_HALF_WAY + code, *words]
    assert subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=False).returncode == -signal.SIGKILL


def sql(*statements: str) -> Callable[[Path], None]:
    def change(database: Path) -> None:
        with sqlite3.connect(database) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()

    return change


def cut(share: float) -> Callable[[Path], None]:
    return lambda database: os.truncate(database, int(share * database.stat().st_size))


def replace(database: Path) -> None:
    database.write_bytes(b"\xa5" * 5000)


def garble(database: Path) -> None:
    """Write over pages in the middle."""
    with database.open("r+b") as file:
        file.seek(3 * 4096)
        file.write(b"\xa5" * 20 * 4096)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "no database": replace,
    "cut in half": cut(0.5),
    "only its header": lambda database: os.truncate(database, 100),
    "garbled pages": garble,
    "half migrated": sql("UPDATE alembic_version SET version_num = '451aebb31d03'"),
    "version lost": sql("DELETE FROM alembic_version"),
    "a table lost": sql("DROP TABLE runs"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_database_is_recognized(damage: str, files: SweepFiles, uri: str) -> None:
    database = file_of(uri)
    assert database is not None
    DAMAGES[damage](database)
    with pytest.raises(DamagedDatabaseError) as caught:
        View(files, uri).sync()
    assert f"mislabel sync --rebuild --store {files.store}`" in str(caught.value)


@pytest.mark.parametrize("kind", ["locked", "folder"])
def test_another_error_is_no_damage(kind: str, files: SweepFiles, uri: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = file_of(uri)
    assert database is not None
    holder = sqlite3.connect(database)
    monkeypatch.setenv("MLFLOW_SQLALCHEMYSTORE_POOLCLASS", "NullPool")
    if kind == "locked":
        holder.execute("BEGIN EXCLUSIVE")
    else:
        database.unlink()
        database.mkdir()
    with pytest.raises(MislabelError) as caught:
        View(files, uri).sync()
    holder.close()
    assert not isinstance(caught.value, DamagedDatabaseError)


@pytest.mark.slow
def test_a_sweep_with_a_damaged_database_completes_and_a_rebuilt_view_shows_all_sweeps(
    store: Store, files: SweepFiles, uri: str, tmp_path: Path
) -> None:
    database = file_of(uri)
    assert database is not None
    DAMAGES["cut in half"](database)
    old = database.read_bytes()
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(bowl_values(name="other", parameters={"x": {"values": [5.0]}})))
    done = mislabel("run", "other.yaml", "--inline", "--store", "store", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("MLflow at") == 1
    assert "does not show" not in done.stderr
    assert "`mislabel sync --rebuild --store store`" in done.stderr
    assert len(store.sweep("other").read("runs")) == 2
    refused = mislabel("sync", "--store", "store", folder=tmp_path)
    assert refused.returncode == 2
    assert database.read_bytes() == old
    rebuilt = mislabel("sync", "--rebuild", "--store", "store", folder=tmp_path)
    assert rebuilt.returncode == 0, rebuilt.stderr
    (aside,) = database.parent.glob("mlflow.db.set-aside-*")
    assert aside.read_bytes() == old
    assert str(aside) in rebuilt.stderr
    assert set(nested_runs(uri)) == {"x=0", "x=1", "x=2"}
    assert len(nested_runs(uri, "other")) == 1


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_creates_the_tables_leaves_no_database(files: SweepFiles) -> None:
    folder = Path(files.store)
    die_half_way(SYNC, "sync", "--store", files.store)
    assert (folder / ".mlflow.db.new").exists()
    assert not (folder / "mlflow.db").exists()
    done = mislabel("sync", "--store", files.store, folder=folder)
    assert done.returncode == 0, done.stderr
    assert set(nested_runs(f"sqlite:///{folder}/mlflow.db")) == {"x=0", "x=1", "x=2"}
    assert [path.name for path in folder.glob(".mlflow.db.*") if not path.name.endswith(".lock")] == []


@pytest.mark.slow
def test_a_database_that_mlflow_itself_left_half_made_is_rebuilt(files: SweepFiles) -> None:
    """As by a server that is killed when it starts for the first time."""
    folder = Path(files.store)
    database = folder / "mlflow.db"
    die_half_way(CREATE, f"sqlite:///{database}")
    refused = mislabel("sync", "--store", files.store, folder=folder)
    assert refused.returncode == 2
    assert "mislabel sync --rebuild" in refused.stderr
    done = mislabel("sync", "--rebuild", "--store", files.store, folder=folder)
    assert done.returncode == 0, done.stderr
    assert set(nested_runs(f"sqlite:///{database}")) == {"x=0", "x=1", "x=2"}


def test_a_database_in_use_is_not_moved(uri: str) -> None:
    database = file_of(uri)
    assert database is not None
    code = "import sys\nfile = open(sys.argv[1])\nprint('open', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", code, str(database)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as user:
        assert user.stdout is not None
        user.stdout.readline()
        with pytest.raises(MislabelError, match=str(user.pid)):
            set_aside(uri)
        user.kill()
    assert database.exists()


def test_what_sqlite_keeps_beside_a_database_is_moved_with_it(uri: str) -> None:
    database = file_of(uri)
    assert database is not None
    Path(f"{database}-journal").write_bytes(b"hot")
    aside = set_aside(uri)
    assert aside is not None
    assert Path(f"{aside}-journal").read_bytes() == b"hot"
    assert not Path(f"{database}-journal").exists()
    assert set_aside(uri) is None


def test_a_server_is_not_moved() -> None:
    with pytest.raises(MislabelError, match="--rebuild --mlflow"):
        set_aside(nobodys_address())


def test_rebuilding_some_sweeps_is_refused(tmp_path: Path) -> None:
    assert mislabel("sync", "bowls", "--rebuild", folder=tmp_path).returncode == 2
