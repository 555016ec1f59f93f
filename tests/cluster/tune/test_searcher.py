import ray

from mislabel.cluster.tune.searcher import WorkerDeaths

HERE = ray.util.get_node_ip_address()


def test_the_cause_of_a_workers_death_is_named() -> None:
    counts = iter([0, 0, 0, 0, 1, 2])
    deaths = WorkerDeaths(lambda: next(counts))
    text = "The actor died unexpectedly before finishing this task.\n\tip: {}\n{}"
    assert "memory" in deaths.cause(ray.exceptions.OutOfMemoryError("2 worker(s) were killed"))
    assert "machine" in deaths.cause(RuntimeError(text.format("10.0.0.7", "The actor died because its node has died.")))
    killed = RuntimeError(text.format(HERE, "The actor is dead because its worker process has died."))
    assert "memory" not in deaths.cause(killed)
    assert "memory" in deaths.cause(killed), "the system has killed a process of this machine since"
    elsewhere = RuntimeError(text.format("10.0.0.7", "The actor is dead because its worker process has died."))
    assert "memory" not in deaths.cause(elsewhere)
