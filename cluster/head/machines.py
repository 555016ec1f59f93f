"""Look at a cluster from its head: its machines, what they have, and whether their versions agree."""

import logging
import os
from dataclasses import asdict, dataclass
from typing import Any

from mislabel.cluster.head_state import Folder, State, differences, versions
from mislabel.cluster.ray_private import is_head
from mislabel.sweeps.errors import MislabelError

# How long a machine has to say which versions it has: a process is started there.
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
    """None where it has not said."""

    def differing(self, head: dict[str, str]) -> list[str]:
        """How its versions differ from the head's."""
        return [] if self.versions is None else differences(self.versions, head)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def nodes(state: State, folder: Folder) -> list[Node]:
    """The machines of the cluster, the head first; MislabelError where Ray does not answer."""
    os.environ.update(state.environment(folder))  # read by Ray when it is loaded
    import ray

    try:
        ray.init(address=state.ray, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError) as error:
        raise MislabelError(f"Ray does not answer at {state.ray}: {str(error).splitlines()[0]}") from None
    try:
        found = ray.nodes()
        told = _told({node["NodeID"] for node in found if node["Alive"]})
    finally:
        ray.shutdown()
    made = [_node(values, told.get(values["NodeID"])) for values in found]
    return sorted(made, key=lambda node: (not node.head, not node.alive, node.host))


def _told(ids: set[str]) -> dict[str, dict[str, str]]:
    """What versions each of these nodes says that it has."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    task = ray.remote(num_cpus=0, max_retries=0)(versions)
    there = {id: NodeAffinitySchedulingStrategy(id, soft=False) for id in ids}
    asked = {id: task.options(scheduling_strategy=strategy).remote() for id, strategy in there.items()}
    ready, _ = ray.wait(list(asked.values()), num_returns=len(asked), timeout=_ANSWER_SECONDS)
    told = {}
    for id, answer in asked.items():
        if answer in ready:
            try:
                told[id] = ray.get(answer)
            except ray.exceptions.RayError:  # it went away meanwhile, or has no Mislabel
                continue
    return told


def _node(values: dict[str, Any], told: dict[str, str] | None) -> Node:
    has = values.get("Resources", {})
    return Node(
        host=values.get("NodeManagerAddress", ""),
        alive=bool(values["Alive"]),
        head=is_head(has),
        cpus=has.get("CPU", 0.0),
        gpus=has.get("GPU", 0.0),
        memory_bytes=int(has.get("memory", 0)),
        versions=told,
    )
