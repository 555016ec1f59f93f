"""A sweep's pages in MLflow, updated with few requests."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from mislabel.analysis.mlflow_view.database import file_of
from mislabel.analysis.mlflow_view.nested_runs import NestedRun, Point, Results, digest_of
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
_FRONT = "mislabel.front"


class Pages:
    """The sweep's pages in MLflow: its experiment, the parent run and the nested runs."""

    def __init__(self, client: Any, files: SweepFiles, uri: str) -> None:
        self._client = client
        launches = files.launches()
        # Distinguishes this sweep from one of the same name in another store, even if a store is moved.
        self._record = digest_of([files.name, *launches[:1]])
        self._user = str(launches[-1].get("user", "unknown")) if launches else "unknown"
        self.experiment = _experiment(client, files.name, uri)
        self._parent = ""
        self._parent_digest = ""
        self._spec_text = ""
        self._nested: dict[str, tuple[str, str]] = {}
        """By key: the nested run's id in MLflow, and its digest."""
        self._front: set[str] = set()
        """Keys of nested runs that are tagged as on the Pareto front."""
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
            elif not is_sweep and tags.get("mlflow.parentRunId") == self._parent and key not in self._nested:
                self._nested[key] = (run_id, digest)
                if _FRONT in tags:
                    self._front.add(key)
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
        shown = {} if results.spec.track.per == "none" else results.digests
        ready = shown if final else results.complete()
        there = {key: digest for key, (_, digest) in self._nested.items()}
        changed = [key for key, digest in shown.items() if key in ready and there.get(key) != digest]
        for key in there:
            if key not in shown or key in changed:
                self._client.delete_run(self._nested.pop(key)[0])
                self._front.discard(key)
        for i, nested in enumerate(results.nested_runs(changed)):
            if cancelled():
                raise MislabelError("cancelled: the time limit is reached")
            self._nested[nested.key] = (self._write(nested, shown[nested.key]), shown[nested.key])
            if progress:
                progress(i + 1, len(changed))
        front = results.front & self._nested.keys()
        # Any new cell may change the front, and a tag is faster to write than a run.
        for key in front - self._front:
            self._client.set_tag(self._nested[key][0], _FRONT, "yes")
        for key in self._front - front:
            self._client.delete_tag(self._nested[key][0], _FRONT)
        self._front = front
        self._write_parent(results, final)
        return len(changed)

    def _write(self, nested: NestedRun, digest: str) -> str:
        tags = {"mlflow.parentRunId": self._parent, **nested.tags}
        run_id = self._created(nested.kind, nested.name, nested.started, tags)
        self._client.set_terminated(run_id, nested.status, nested.ended)
        self._log(run_id, nested.points, nested.params, {"mislabel.digest": digest})
        return run_id

    def _created(self, kind: str, name: str, started: int, tags: Mapping[str, str]) -> str:
        tags = {"mislabel.kind": kind, "mislabel.record": self._record, "mlflow.user": self._user, **tags}
        run = self._client.create_run(self.experiment, start_time=started, tags=tags, run_name=name)
        return str(run.info.run_id)

    def _log(self, run_id: str, points: Sequence[Point], params: Mapping[str, str], tags: Mapping[str, str]) -> None:
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
        page = SweepPage(results, self.experiment, {key: run_id for key, (run_id, _) in self._nested.items()}, final)
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
        self._log(self._parent, page.points, {}, {**page.tags, "mislabel.digest": page.digest})
        self._parent_digest = page.digest


def _experiment(client: Any, name: str, uri: str) -> str:
    """The id of the sweep's experiment. It is created if needed, and restored if it was deleted."""
    found = client.get_experiment_by_name(name)
    if found is None:
        database = file_of(uri)
        # By default, MLflow would write a database's artifacts to the current directory.
        artifacts = None if database is None else str(database.absolute().parent / "mlartifacts" / name)
        return str(client.create_experiment(name, artifacts, EXPERIMENT_TAGS))
    if found.lifecycle_stage == "deleted":
        client.restore_experiment(found.experiment_id)
    return str(found.experiment_id)
