"""SQL over a sweep's tables, by DuckDB: `runs`, `curves` and `arrays`, each run once.

As everywhere, `curves` and `arrays` also have the rows of runs that are still training.

DuckDB scans the Parquet files through pyarrow when a query needs them, and reads only the columns and row groups that
it uses. It can't read or write other files, use the network or load extensions, whatever the query says.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pandas as pd

from mislabel.analysis.statistics.scans import ScanPlan
from mislabel.analysis.statistics.tables import SweepTables
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.parts import TABLES

if TYPE_CHECKING:
    import duckdb

_SETTINGS: dict[str, Any] = {
    "enable_external_access": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "python_enable_replacements": False,
}


def query(sweeps: Mapping[str, SweepTables], text: str) -> pd.DataFrame:
    """The rows of a SELECT statement. With several sweeps, the views have a column `sweep`."""
    import duckdb

    with duckdb.connect(":memory:", config=_SETTINGS) as connection:
        for table in TABLES:
            _create_view(connection, table, sweeps)
        connection.execute("SET lock_configuration = true")
        try:
            statements = connection.extract_statements(text)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise MislabelError("sql takes one SELECT statement")
            return connection.execute(statements[0]).df()
        except duckdb.Error as error:
            raise MislabelError(f"sql: {error}") from None


def _create_view(connection: "duckdb.DuckDBPyConnection", table: str, sweeps: Mapping[str, SweepTables]) -> None:
    selections = []
    for i, (name, sweep) in enumerate(sweeps.items()):
        label = f"{_quoted(name)} AS sweep, " if len(sweeps) > 1 else ""
        found: list[Any] = ScanPlan(sweep.files).datasets(table)
        # Running runs are read last: one that has ended since is missing in this query, instead of being there twice.
        running = sweep.files.read_running(table) if table != "runs" else None
        for j, dataset in enumerate(found if running is None else [*found, running]):
            source = f"{table}_{i}_{j}"
            connection.register(source, dataset)
            selections.append(f"SELECT {label}* FROM {source}")
    if not selections:  # no run has ended, or none has arrays
        columns = [*(["sweep"] if len(sweeps) > 1 else []), "run_id"]
        selections = [f"SELECT {', '.join(f'NULL::VARCHAR AS {column}' for column in columns)} WHERE false"]
    connection.execute(f"CREATE VIEW {table} AS {' UNION ALL BY NAME '.join(selections)}")


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
