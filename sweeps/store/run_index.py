"""The ended runs of a sweep, read from the store once per launch.

The plan, the cell means, the stopper, the seed race and the reuse of other sweeps' runs share this index, because
reading `runs` of a large sweep takes long. Rows that are copied from other sweeps are added to it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mislabel.sweeps.spec.model import Spec
from mislabel.sweeps.store.outcome import Status, settled
from mislabel.sweeps.store.store import SweepFiles

TRAINING = ("steps", "frames", "spacing")
"""The parameters that determine at which steps a run is measured."""


class RunIndex:
    def __init__(self, spec: Spec, files: SweepFiles, baselines: Collection[str] = ()) -> None:
        """`baselines` are the cells that the stopping rule never stops."""
        self._settled = settled(spec)
        self._tries = spec.budget.tries
        self._baselines = list(baselines)
        rule = spec.early_terminate
        self._stops_whole_cells = rule is not None and rule.per == "cell"
        self._columns = _columns(spec)
        self.rows = pa.table({})
        """Columns of `runs` that a launch needs, as far as the store has them; a row per run.

        If a rule stops whole cells, a stopped run of a cell that also has a finished run is not one of them: it has to
        be trained to the end. Earlier versions of Mislabel left such runs, and so does a worker that the stopper's
        answer did not reach. Stopped runs of cells that became baselines are left out too.
        """
        self.seeds: dict[str, set[int]] = defaultdict(set)
        """By cell, the seeds that need not be run again."""
        self.ended_early: dict[str, set[int]] = defaultdict(set)
        """The settled runs that were not trained to their last step, because they diverged or were stopped."""
        self.failed: dict[str, set[int]] = defaultdict(set)
        self.given_up: dict[str, set[int]] = defaultdict(set)
        """The failed runs that used up the attempts that the budget allows."""
        self.attempts: dict[str, dict[int, int]] = defaultdict(dict)
        """How often the runs that may be run again have failed. A lost run has not failed."""
        self.add(files.read_runs(self._columns))

    def add(self, runs: pa.Table) -> None:
        """Add rows of `runs`. They replace the rows that the index has of the same runs."""
        if not runs.num_rows:
            return
        runs = runs.select([name for name in self._columns if name in runs.column_names])
        if self.rows.num_rows:
            others = self.rows.filter(~pc.field("run_id").isin(runs["run_id"].combine_chunks()))
            self.rows = pa.concat_tables([others, runs], promote_options="permissive")
        else:
            self.rows = runs
        if unfinished := self._unfinished():
            self.rows = self.rows.filter(~pc.field("run_id").isin(unfinished))
            runs = runs.filter(~pc.field("run_id").isin(unfinished))
        names = ("cell_id", "seed", "status", "attempt")
        for cell, seed, status, attempt in zip(*(runs[name].to_pylist() for name in names), strict=True):
            if status in self._settled:
                self.seeds[cell].add(seed)
                if status != Status.DONE:
                    self.ended_early[cell].add(seed)
                self.attempts[cell].pop(seed, None)
                self.failed[cell].discard(seed)
                self.given_up[cell].discard(seed)
                continue
            self.attempts[cell][seed] = attempt if status == Status.FAILED else attempt - 1
            if status == Status.FAILED:
                self.failed[cell].add(seed)
                if attempt >= self._tries:
                    self.given_up[cell].add(seed)

    def _unfinished(self) -> list[str]:
        """The stopped runs that have to be trained to the end."""
        stopped = self.rows.filter(pc.field("status") == Status.STOPPED.value)
        if not stopped.num_rows:
            return []
        whole = pa.array(self._baselines, pa.string())
        if self._stops_whole_cells:
            finished = self.rows.filter(pc.field("status") == Status.DONE.value)["cell_id"]
            whole = pa.concat_arrays([whole, *finished.cast(pa.string()).chunks])
        found = stopped.filter(pc.field("cell_id").isin(whole)).select(["run_id", "cell_id", "seed"])
        for cell, seed in zip(found["cell_id"].to_pylist(), found["seed"].to_pylist(), strict=True):
            self.seeds[cell].discard(seed)
            self.ended_early[cell].discard(seed)
        return list(found["run_id"].to_pylist())

    def has(self, columns: Iterable[str]) -> bool:
        """Whether the rows have all these columns. The rows of a sweep without results have no metrics."""
        return set(columns) <= set(self.rows.column_names)

    def columns(self, *names: str) -> list[list[Any]]:
        """These columns of the rows as lists; empty lists if there are no rows."""
        return [self.rows[name].to_pylist() if self.rows.num_rows else [] for name in names]

    def unwanted(self, retry: bool) -> Mapping[str, set[int]]:
        """By cell, the failed runs that are not run again: with `retry`, only those that used up their attempts."""
        return self.given_up if retry else self.failed

    def missing_seeds(self, cell: str, seeds: Iterable[int], retry: bool) -> list[int]:
        """The cell's seeds that are still to be run. Lost runs are always run again, failed ones on request."""
        has = self.seeds.get(cell, set())
        failed = self.unwanted(retry).get(cell, set())
        return [seed for seed in seeds if seed not in has and seed not in failed]

    def finished_seeds(self, cell: str) -> set[int]:
        """The cell's runs that were trained to their last step."""
        return self.seeds.get(cell, set()) - self.ended_early.get(cell, set())

    def cells(self, axes: Sequence[str]) -> dict[str, dict[str, Any]]:
        ids, *values = self.columns("cell_id", *axes)
        return {cell: dict(zip(axes, row, strict=True)) for cell, *row in zip(ids, *values, strict=True)}

    @property
    def count(self) -> int:
        return sum(map(len, self.seeds.values()))


def _columns(spec: Spec) -> list[str]:
    names = ["run_id", "cell_id", "seed", "status", "attempt", "step", *(metric.name for metric in spec.metric)]
    if spec.early_terminate is not None:
        names += [*spec.branch_axes(), *TRAINING]
    if spec.seeds.up_to is not None:
        names += spec.axes()
    return list(dict.fromkeys(names))
