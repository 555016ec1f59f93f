"""The sweep's stopper as an actor, so that all workers are compared with each other."""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mislabel.sweeps.stopping.stopper import Entry, Stopper, StoredRun, Values

# A worker waits this long for an answer, then continues without one.
_ANSWER_SECONDS = 30.0


class RemoteStopper:
    """The stopper as workers reach it. If it can't be reached, training continues and no run is stopped."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._actor: Any = None

    def decide(self, step: int, runs: Sequence[Entry], values: Values) -> list[bool]:
        answer = self._asked("decide", step, list(runs), list(values))
        return [False] * len(runs) if answer is None else answer

    def record(self, step: int, runs: Sequence[Entry], values: Values) -> None:
        self._asked("record", step, list(runs), list(values))

    def learn(self, runs: Sequence[StoredRun]) -> None:
        self._asked("learn", list(runs))

    def _asked(self, method: str, *arguments: Any) -> Any:
        try:
            # The name is sent to workers, not the handle: it would not survive Tune's copies of a trial's config.
            self._actor = self._actor or ray.get_actor(self._name)
            return ray.get(self._actor.answer.remote(method, *arguments), timeout=_ANSWER_SECONDS)
        except (ray.exceptions.RayError, ValueError):
            self._actor = None
            return None


@contextmanager
def remote_stopper(stopper: Stopper | None) -> Iterator[RemoteStopper | None]:
    """The stopper in an actor with a unique name; None if no rule stops runs."""
    if stopper is None:
        yield None
        return
    name = f"mislabel-stopper-{uuid.uuid4().hex}"
    # It runs on the driver's node, so that it is not lost with another machine.
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
    # Workers are answered one at a time: decisions depend only on the order of the questions.
    options = {"name": name, "num_cpus": 0, "max_concurrency": 1, "scheduling_strategy": here}
    actor = ray.remote(_StopperActor).options(**options).remote(stopper)
    ray.get(actor.__ray_ready__.remote())
    try:
        yield RemoteStopper(name)
    finally:
        ray.kill(actor)


class _StopperActor:
    def __init__(self, stopper: Stopper) -> None:
        self._stopper = stopper

    def answer(self, method: str, *arguments: Any) -> Any:
        return getattr(self._stopper, method)(*arguments)
