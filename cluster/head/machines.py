"""The machines of a cluster, seen from its head: their resources and versions."""

import logging
import os
from dataclasses import dataclass
from typing import Any

from mislabel.cluster.head_state import Folder, State, differences, versions
from mislabel.cluster.ray_private import is_head
from mislabel.sweeps.errors import MislabelError

# The time limit for a machine to report its versions; it has to start a process for that.
_ANSWER_SECONDS = 60.0


@dataclass(frozen=True)
class Node:
    host: str
    alive: bool
    head: bool
    cpus: float
    gpus: float
    memory_bytes: int
    versions: dict[str, str] | None
    """None if it did not report them."""

    def differing(self, head: dict[str, str]) -> list[str]:
        """The versions that differ from the head's."""
        return [] if self.versions is None else differences(self.versions, head)


def nodes(state: State, folder: Folder) -> list[Node]:
    """The machines of the cluster, the head first; MislabelError if Ray does not answer."""
    os.environ.update(state.environment(folder))  # Ray reads it when it is imported
    import ray

    try:
        ray.init(address=state.ray, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError) as error:
        raise MislabelError(f"Ray does not answer at {state.ray}: {str(error).splitlines()[0]}") from None
    try:
        found = ray.nodes()
        reported = _reported_versions({node["NodeID"] for node in found if node["Alive"]})
    finally:
        ray.shutdown()
    made = [_node(values, reported.get(values["NodeID"])) for values in found]
    return sorted(made, key=lambda node: (not node.head, not node.alive, node.host))


def _reported_versions(ids: set[str]) -> dict[str, dict[str, str]]:
    """The versions that each of these nodes reports."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(versions)
    there = {id: NodeAffinitySchedulingStrategy(id, soft=False) for id in ids}
    asked = {id: task.options(scheduling_strategy=strategy).remote() for id, strategy in there.items()}
    ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=_ANSWER_SECONDS)
    reported = {}
    for id, answer in asked.items():
        if answer in ready:
            try:
                reported[id] = ray.get(answer)
            except ray.exceptions.RayError:  # it left the cluster, or Mislabel is not installed
                continue
    return reported


def _node(values: dict[str, Any], reported: dict[str, str] | None) -> Node:
    has = values.get("Resources", {})
    return Node(
        host=values.get("NodeManagerAddress", ""),
        alive=bool(values["Alive"]),
        head=is_head(has),
        cpus=has.get("CPU", 0.0),
        gpus=has.get("GPU", 0.0),
        memory_bytes=int(has.get("memory", 0)),
        versions=reported,
    )
