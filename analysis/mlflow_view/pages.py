"""A sweep's pages in MLflow, updated with few requests.

A nested run takes three requests: create it with its tags, log its params and metrics, and end it. A nested run that
MLflow shows as ended is therefore complete. One that is open may be incomplete, unless this process wrote it.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from mislabel.analysis.mlflow_view.artifacts import Artifacts
from mislabel.analysis.mlflow_view.database import file_of
from mislabel.analysis.mlflow_view.nested_runs import NestedRun, nested_runs
from mislabel.analysis.mlflow_view.points import Point
from mislabel.analysis.mlflow_view.results import RANK, Results, Stage, digest_of
from mislabel.analysis.mlflow_view.saved_view import EXPERIMENT_TAGS, TAG
from mislabel.analysis.mlflow_view.sweep_page import SweepPage
from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.store.store import SweepFiles

Progress = Callable[[int, int], None]
"""Called with the number of nested runs written, and their total."""

# MLflow's limits per request are 1000 metrics, 100 params, 100 tags, and 1000 in total.
_METRICS_AT_ONCE = 800
_TEXTS_AT_ONCE = 100
_PAGE = 1000
# The number of brief nested runs that are completed.
_BEST = 5
# MLflow refuses longer digests of data sets.
_LONGEST_DIGEST = 36
STORE = "mislabel.store"
"""The tag with the address of the store, of experiments and parent runs that Mislabel made."""
_FRONT = "mislabel.front"
_REPORTED = "mislabel.report"
_IMPORTANT = "mislabel.important"
_CURVES = "mislabel.curves"


@dataclass
class _Shown:
    """A nested run in MLflow."""

    id: str
    digest: str
    written: NestedRun | None = None
    """What this process wrote, while the nested run is open."""
    points: dict[tuple[str, int], Point] | None = None
    """All points of an open nested run, by metric and step."""


class Pages:
    """The sweep's pages in MLflow: its experiment, the parent run and the nested runs."""

    def __init__(self, client: Any, files: SweepFiles, uri: str) -> None:
        self._client = client
        launches = files.launches()
        # Distinguishes this sweep from one of the same name in another store, even if a store is moved.
        self._record = digest_of([files.name, *launches[:1]])
        self._user = str(launches[-1].get("user", "unknown")) if launches else "unknown"
        self._store = store_address(files.store)
        self.experiment = _experiment(client, files, uri)
        self._parent = ""
        self._parent_digest = ""
        self._spec_text = ""
        self._nested: dict[str, _Shown] = {}
        """By key."""
        self._front: set[str] = set()
        """Keys of nested runs that are tagged as on the Pareto front."""
        self._complete: set[str] = set()
        """Keys of brief nested runs that were completed."""
        self._important: list[str] = []
        """Varying parameters, the most important first, as the last report found them."""
        self.reported = ""
        """The state of the sweep that the report of the parent run shows."""
        self._find()

    def _find(self) -> None:
        """Read the existing pages. Delete duplicates, and nested runs whose parent was deleted."""
        ours = [run for run in self._all_runs() if run.data.tags.get("mislabel.record") == self._record]
        ours.sort(key=lambda run: run.data.tags.get("mislabel.kind") != "sweep")  # the parent comes first
        for run in ours:
            run_id, tags, digest = run.info.run_id, run.data.tags, run.data.tags.get("mislabel.digest", "")
            key = tags.get("mislabel.run") or tags.get("mislabel.cell", "")
            is_sweep = tags.get("mislabel.kind") == "sweep"
            if is_sweep and not self._parent:
                self._parent, self._parent_digest = run_id, digest
                self._important = [name for name in tags.get(_IMPORTANT, "").split(", ") if name]
                self.reported = tags.get(_REPORTED, "")
            elif not is_sweep and tags.get("mlflow.parentRunId") == self._parent and key not in self._nested:
                self._nested[key] = _Shown(run_id, digest if run.info.status != "RUNNING" else "")
                if _FRONT in tags:
                    self._front.add(key)
                if _CURVES in tags:
                    self._complete.add(key)
            else:
                self._client.delete_run(run_id)

    def _all_runs(self) -> Iterator[Any]:
        token = None
        while True:
            page = self._client.search_runs([self.experiment], max_results=_PAGE, page_token=token)
            yield from page
            token = page.token
            if not token:
                return

    def update(self, results: Results, final: bool, progress: Progress | None, cancelled: Callable[[], bool]) -> int:
        """Write what is new or has changed; returns the number of nested runs written."""
        if not self._parent:
            self._parent = self._created("sweep", results.spec.name, results.started, {})
            # MLflow never lets a param change, so these are only what no later revision of the spec can change.
            self._log(self._parent, [], {"task": results.spec.task, "method": results.spec.method.name}, {})
        stages = {} if results.spec.track.per == "none" else results.stages(final)
        changed = [
            key for key, stage in stages.items() if key not in self._nested or self._nested[key].digest != stage.digest
        ]
        for key in self._nested.keys() - stages.keys():
            self._delete(key)
        for i, nested in enumerate(nested_runs(results, stages, changed, not results.has_few)):
            if cancelled():
                raise MislabelError("cancelled: the time limit is reached")
            self._write(nested, stages[nested.key].digest)
            if progress:
                progress(i + 1, len(changed))
        self._mark_front(results)
        if final and not results.has_few:
            self._complete_best(results, stages)
        self._write_parent(results, final)
        return len(changed)

    def _complete_best(self, results: Results, stages: Mapping[str, Stage]) -> None:
        """Write what the brief nested runs of the best cells lack."""
        best = [key for key in results.best(_BEST) if key in stages and key not in self._complete]
        briefs, wholes = (nested_runs(results, stages, best, brief) for brief in (True, False))
        for brief, whole in zip(briefs, wholes, strict=True):
            points = set(whole.points) - set(brief.points)
            added = {name: text for name, text in whole.tags.items() if name not in brief.tags}
            self._log(self._nested[whole.key].id, points, whole.params, {**added, _CURVES: "all"})
            self._complete.add(whole.key)

    def _delete(self, key: str) -> None:
        self._client.delete_run(self._nested.pop(key).id)
        self._front.discard(key)
        self._complete.discard(key)

    def _write(self, nested: NestedRun, digest: str) -> None:
        shown = self._nested.get(nested.key)
        if shown is not None and not self._can_extend(shown, nested):
            self._delete(nested.key)
            shown = None
        if shown is None:
            tags = {"mlflow.parentRunId": self._parent, **nested.tags, "mislabel.digest": digest}
            shown = _Shown(self._created(nested.kind, nested.name, nested.started, tags), digest)
            self._log(shown.id, nested.points, nested.params, {})
        else:
            assert shown.written is not None
            assert shown.points is not None
            points = [point for point in nested.points if (point.metric, point.step) not in shown.points]
            tags = {**nested.tags, "mislabel.digest": digest}
            before = shown.written.tags
            self._log(shown.id, points, {}, {name: text for name, text in tags.items() if before.get(name) != text})
        if nested.ended is not None:
            self._client.set_terminated(shown.id, nested.status, nested.ended)
            self._nested[nested.key] = _Shown(shown.id, digest)
            return
        known = {**(shown.points or {}), **{(point.metric, point.step): point for point in nested.points}}
        self._nested[nested.key] = _Shown(shown.id, digest, nested, {**known, **(shown.points or {})})

    @staticmethod
    def _can_extend(shown: _Shown, nested: NestedRun) -> bool:
        """Whether the nested run can be changed into this one. MLflow removes no points and changes no params."""
        if shown.written is None or shown.points is None:
            return False
        same = (shown.written.name, shown.written.params) == (nested.name, nested.params)
        # The curve of an open nested run may change, because other seeds start. That is corrected when it ends.
        return same and (nested.ended is None or nested.agrees_with(shown.points.values()))

    def _mark_front(self, results: Results) -> None:
        front = results.front & self._nested.keys()
        # Any new cell may change the front, and a tag is faster to write than a run.
        for key in (front - self._front) | (self._front - front):
            rank = Point(RANK, float(results.ranks[key]), results.now, results.last_step)
            self._log(self._nested[key].id, [rank], {}, {_FRONT: "yes"} if key in front else {})
            if key not in front:
                self._client.delete_tag(self._nested[key].id, _FRONT)
        self._front = front

    def _created(self, kind: str, name: str, started: int, tags: Mapping[str, str]) -> str:
        tags = {"mislabel.kind": kind, "mislabel.record": self._record, "mlflow.user": self._user, **tags}
        run = self._client.create_run(self.experiment, start_time=started, tags=tags, run_name=name)
        return str(run.info.run_id)

    def _log(self, run_id: str, points: Collection[Point], params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Write points, params and tags in as few requests as MLflow's limits allow. The tags are written last."""
        from mlflow.entities import Metric, Param, RunTag

        # The last step comes first. Otherwise MLflow updates its record of the latest value with every point.
        newest_first = sorted(points, key=lambda point: -point.step)
        metrics = [Metric(point.metric, point.value, point.time, point.step) for point in newest_first]
        entries = [Param(name, value) for name, value in params.items()]
        labels = [RunTag(name, value) for name, value in tags.items()]
        while len(metrics) > _METRICS_AT_ONCE or len(entries) > _TEXTS_AT_ONCE:
            self._client.log_batch(run_id, metrics[:_METRICS_AT_ONCE], entries[:_TEXTS_AT_ONCE])
            metrics, entries = metrics[_METRICS_AT_ONCE:], entries[_TEXTS_AT_ONCE:]
        self._client.log_batch(run_id, metrics, entries, labels)  # splits long lists of tags itself

    def _write_parent(self, results: Results, final: bool) -> None:
        pages = {key: shown.id for key, shown in self._nested.items()}
        page = SweepPage(results, self.experiment, pages, final, self._important)
        if page.digest == self._parent_digest:
            return
        if final:
            self._client.set_terminated(self._parent, page.status, results.ended)
        else:
            self._client.update_run(self._parent, status="RUNNING")
        self._client.set_experiment_tag(self.experiment, "mlflow.note.content", page.note)
        if results.spec.track.per != "none":
            self._client.set_experiment_tag(self.experiment, TAG, page.layout)
        if results.spec_text != self._spec_text:
            self._client.log_text(self._parent, results.spec_text, "spec.yaml")
            self._spec_text = results.spec_text
        if page.inputs:
            self._client.log_inputs(self._parent, _dataset_inputs(page.inputs))
        self._log(self._parent, page.points, {}, {**page.tags, STORE: self._store, "mislabel.digest": page.digest})
        self._parent_digest = page.digest

    def add_report(self, results: Results, artifacts: Artifacts, state: str) -> None:
        """Store the report and figures with the parent run, and show the most important parameters first."""
        self._important = artifacts.important()
        self._client.log_artifacts(self._parent, str(artifacts.folder))
        tags = {_REPORTED: state, _IMPORTANT: ", ".join(self._important)}
        self._log(self._parent, [], {}, tags)
        self.reported = state
        self._write_parent(results, final=True)


def _dataset_inputs(checksums: Mapping[str, str]) -> list[Any]:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    context = [InputTag("mlflow.data.context", "training")]
    return [
        DatasetInput(
            Dataset(
                name=name,
                digest=checksum.rpartition(":")[2][:_LONGEST_DIGEST],
                source_type="mislabel",
                source=json.dumps({"name": name, "checksum": checksum}),
            ),
            context,
        )
        for name, checksum in checksums.items()
    ]


def store_address(store: str) -> str:
    """The store's address, the same from every working directory."""
    return store if "://" in store else os.path.abspath(store)


def _experiment(client: Any, files: SweepFiles, uri: str) -> str:
    """The id of the sweep's experiment. It is created if needed, and restored if it was deleted."""
    found = client.get_experiment_by_name(files.name)
    if found is None:
        database = file_of(uri)
        # By default, MLflow would write a database's artifacts to the current directory.
        artifacts = None if database is None else str(database.absolute().parent / "mlartifacts" / files.name)
        tags = {**EXPERIMENT_TAGS, STORE: store_address(files.store)}
        return str(client.create_experiment(files.name, artifacts, tags))
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)
