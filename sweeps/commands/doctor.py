"""`mislabel doctor`: check that everything a sweep needs works on this machine."""

import os
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.errors import ExitCode


@click.command()
@options.store
@options.as_json
def command(store: str, as_json: bool) -> int:
    """Check versions, devices, the store, Ray and MLflow by using each briefly. Exit code 1 if a check fails."""
    checks: dict[str, Callable[[], str]] = {
        "python": lambda: sys.version.split()[0],
        "tasks": _tasks,
        "torch": _torch,
        "store": lambda: _store(store),
        "training": _training,
        "ray": _ray,
        "mlflow": lambda: str(import_module("mlflow").__version__),
    }
    rows = []
    for name, check in checks.items():
        try:
            rows.append((name, "ok", check()))
        except Exception as error:
            rows.append((name, "fails", f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"))
        if not as_json:
            click.echo(f"{rows[-1][0]:<10}{rows[-1][1]:<7}{rows[-1][2]}")
    if as_json:
        options.put_json([dict(zip(("check", "state", "detail"), row, strict=True)) for row in rows])
    return ExitCode.FAILED if any(state == "fails" for _, state, _ in rows) else ExitCode.DONE


def _tasks() -> str:
    from mislabel.tasks.registry import find_task, task_names

    return ", ".join(find_task(name).name for name in task_names())


def _torch() -> str:
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"{torch.__version__}, {os.cpu_count()} CPUs, {', '.join(gpus) or 'no GPU'}"


def _store(address: str) -> str:
    """Check that the store can be written, without creating it."""
    from mislabel.sweeps.store.store import Store
    from mislabel.sweeps.store.tables import SCHEMA

    store = Store(address)
    if store.folder and not os.path.isdir(store.folder):
        above = os.path.dirname(store.folder)
        while not os.path.isdir(above):
            above = os.path.dirname(above)
        if not os.access(above, os.W_OK):
            raise PermissionError(f"{address} can't be created: no permission to write to {above}")
        return f"{address} (does not exist yet, layout {SCHEMA})"
    store.prepare()
    return f"{address}, {len(store.names())} sweeps, layout {SCHEMA}"


def _training() -> str:
    """Train one small run of a bundled task inline, into a temporary store."""
    from mislabel.sweeps.checks.reader import checked_spec
    from mislabel.sweeps.run.launch import inline_host, run_sweep
    from mislabel.sweeps.spec.document import Document
    from mislabel.sweeps.store.store import Store

    parameters = {"steps": 10, "dim": 10, "width": 20, "samples": 40}
    values = {"name": "doctor", "task": "xor_clusters", "parameters": parameters}
    spec, task = checked_spec(Document("doctor", values))
    with tempfile.TemporaryDirectory() as folder:
        run_sweep(spec, task, Store(folder), inline_host)
        runs = Store(folder).sweep(spec.name).read("runs", ["run_id"]).num_rows
    return f"{runs} run of {task.name} trained and stored"


def _ray() -> str:
    from mislabel.cluster.tune.capacity import worker_slots
    from mislabel.cluster.tune.runner import connected
    from mislabel.sweeps.spec.model import Resources

    with connected(None):
        import ray

        return f"{ray.__version__}, {worker_slots(Resources())} workers on this machine"
