"""Remove sweeps from MLflow that the store no longer has."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from mislabel.analysis.mlflow_view.pages import STORE, store_address
from mislabel.sweeps.store.store import Store

_PAGE = 1000


def remove_absent(client: Any, store: Store) -> list[str]:
    """Delete the experiments that Mislabel made for sweeps that this store had; returns the names of the sweeps.

    An experiment that also has other runs, such as those of a sweep of the same name in another store, is kept. MLflow
    can restore what is deleted here.
    """
    address, names = store_address(store.address), store.names()
    removed = []
    for experiment in _pages(lambda token: client.search_experiments(max_results=_PAGE, page_token=token)):
        if experiment.tags.get(STORE) != address or experiment.name in names:
            continue
        experiment_id = experiment.experiment_id
        runs = list(
            _pages(lambda token, at=experiment_id: client.search_runs([at], max_results=_PAGE, page_token=token))
        )
        records = {run.data.tags.get("mislabel.record") for run in runs if run.data.tags.get(STORE) == address}
        ours = [run for run in runs if run.data.tags.get("mislabel.record") in records - {None}]
        if len(ours) == len(runs):
            # A later sweep of the same name gets a new experiment: restoring this one would restore its runs.
            client.rename_experiment(
                experiment_id, f"{experiment.name}, removed {datetime.now(UTC):%Y-%m-%d %H:%M:%S.%f}"
            )
            client.delete_experiment(experiment_id)
        for run in ours if len(ours) < len(runs) else ():
            client.delete_run(run.info.run_id)
        if ours or not runs:
            removed.append(str(experiment.name))
    return removed


def _pages(search: Any) -> Iterator[Any]:
    token = None
    while True:
        page = search(token)
        yield from page
        token = page.token
        if not token:
            return
