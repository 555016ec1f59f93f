"""SQL over the tables of sweeps."""

from pathlib import Path

import pytest

import mislabel
from mislabel.analysis.sweep import Sweep
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.store import Store
from tests.bowls import run


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    store = Store(str(tmp_path_factory.mktemp("store")))
    run(store, parameters={"x": {"values": [0, 1, 2]}, "snapshots": 2}, seeds=3)
    run(store, name="others", parameters={"x": {"values": [2, 3]}, "level": 5}, seeds=2)
    return mislabel.load(store.address, "bowls")


def test_sql_sees_the_tables_of_the_sweep(sweep: Sweep) -> None:
    found = sweep.sql(
        "select x, avg(c.loss) as loss from curves c join runs using (run_id) where c.step = 8 group by x order by x"
    )
    assert found["x"].tolist() == [0, 1, 2]
    assert found["loss"].tolist() == pytest.approx(sweep.runs.groupby("x")["loss"].mean().tolist())
    assert sweep.sql("select count(*) as n from arrays")["n"].item() == len(sweep.arrays)


def test_sql_sees_several_sweeps_with_their_names(sweep: Sweep) -> None:
    both = mislabel.load(str(Path(sweep.files.address).parent), "bowls", "others")
    found = both.sql("select sweep, count(*) as n from runs group by sweep order by sweep")
    assert found.to_dict("list") == {"sweep": ["bowls", "others"], "n": [9, 4]}


def test_a_run_in_several_parts_is_there_once(store: Store) -> None:
    files = run(store, seeds=2).files
    tables = {name: files.read(name) for name in ("runs", "curves")}
    attempt = tables["runs"].column_names.index("attempt")
    again = tables["runs"].set_column(attempt, "attempt", [[2] * len(tables["runs"])]).slice(0, 2)
    ids = again["run_id"].to_pylist()
    rows = [run in ids for run in tables["curves"]["run_id"].to_pylist()]
    files.write_results({"runs": again, "curves": tables["curves"].filter(rows)})
    sweep = mislabel.load(store.address, "bowls")
    assert len(files.parts("runs")) > 1
    assert sweep.sql("select count(*) as n from runs")["n"].item() == 6
    assert sweep.sql("select count(*) as n from curves where run_id >= ''")["n"].item() == len(sweep.curves)
    assert sweep.sql("select count(*) as n from runs where attempt = 2")["n"].item() == 2


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_text('{file}')",
        "select * from read_csv('{file}')",
        "select * from '{file}'",
        "select * from glob('/etc/*')",
        "copy (select 1) to '{file}.copy'",
        "attach '{file}.db'",
        "install httpfs",
        "load httpfs",
        "set enable_external_access = true",
        "create table t as select 1",
        "select 1; copy (select 1) to '{file}.copy'",
        "select * from read_csv('http://127.0.0.1:1/a.csv')",
        "select * from frame",
    ],
)
def test_sql_reads_and_writes_no_other_file(sweep: Sweep, tmp_path: Path, query: str) -> None:
    frame = sweep.runs
    file = tmp_path / "secret.csv"
    file.write_text("a,b\n1,2\n")
    with pytest.raises(MislabelError, match="sql"):
        sweep.sql(query.format(file=file))
    assert [path.name for path in tmp_path.iterdir()] == ["secret.csv"]
    assert len(frame) == 9


def test_a_mistake_is_explained(sweep: Sweep) -> None:
    with pytest.raises(MislabelError, match="nonsense"):
        sweep.sql("select nonsense from runs")


def test_a_sweep_without_runs_has_empty_tables(store: Store) -> None:
    store.sweep("bowls").write_text("spec.yaml", "name: bowls\ntask: bowl\n")
    assert mislabel.load(store.address, "bowls").sql("select run_id from runs").empty
