"""`mislabel doctor`: check that everything a sweep needs, and everything its users import, works on this machine."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, requires, version

import click
from packaging.requirements import Requirement

from mislabel.sweeps.commands import options
from mislabel.sweeps.errors import ExitCode
from mislabel.sweeps.redaction import redacted

# What users import in their own tasks and notebooks.
_IMPORTS = ("torch", "torchvision", "numpy", "pandas", "pyarrow", "matplotlib", "optuna", "plotly", "mlflow", "ray")


class Broken(Exception):
    """A check fails, and this is how to fix it."""

    def __init__(self, detail: str, fix: str) -> None:
        self.fix = fix
        super().__init__(detail)


@click.command()
@options.store
@options.as_json
def command(store: str, as_json: bool) -> int:
    """Check imports, versions, devices, the store, training and Ray by using each briefly.

    Every library is imported in a new Python, as a script of yours would import it. All tables of all sweeps in the
    store are read and compared with their checksums. A check that fails says how to fix it. Exit code 1 if a check
    fails.
    """
    checks: dict[str, Callable[[], str]] = {
        "python": lambda: sys.version.split()[0],
        "versions": declared_versions,
        **{f"import {name}": partial(imported, name) for name in _IMPORTS},
        "tasks": _tasks,
        "torch": _torch,
        "store": lambda: _store(store),
        **{f"sweep {name}": partial(_sweep, store, name) for name in _sweeps(store)},
        "training": _training,
        "ray": _ray,
    }
    rows = []
    for name, check in checks.items():
        row = _row(name, check)
        rows.append(row)
        if not as_json:
            click.echo(f"{name:<20}{row['state']:<7}{row['detail']}")
            if row["fix"]:
                click.echo(f"{'':<20}fix:   {row['fix']}")
    if as_json:
        options.put_json(rows)
    return ExitCode.FAILED if any(row["state"] == "fails" for row in rows) else ExitCode.DONE


def _row(name: str, check: Callable[[], str]) -> dict[str, str]:
    try:
        return {"check": name, "state": "ok", "detail": check(), "fix": ""}
    except Broken as broken:
        return {"check": name, "state": "fails", "detail": redacted(str(broken)), "fix": broken.fix}
    except Exception as error:
        detail = f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"
        return {"check": name, "state": "fails", "detail": redacted(detail), "fix": ""}


def requirements() -> dict[str, Requirement]:
    """By name, the libraries that Mislabel needs, with the versions it was tested with."""
    found = map(Requirement, requires("mislabel") or ())
    return {requirement.name: requirement for requirement in found if requirement.marker is None}


def declared_versions() -> str:
    """Check that the installed versions are among those that Mislabel declares."""
    wrong = {}
    needed = requirements()
    for name, requirement in needed.items():
        found = _version(name)
        if not requirement.specifier.contains(found or "0", prereleases=True):
            wrong[str(requirement)] = f"{name} {found or 'is not installed'}"
    if wrong:
        fix = " ".join(f'"{requirement}"' for requirement in wrong)
        raise Broken(f"{', '.join(wrong.values())}; Mislabel needs {', '.join(wrong)}", f"pip install {fix}")
    return f"{len(needed)} libraries have versions that Mislabel works with"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def imported(library: str) -> str:
    """Import the library in a new Python, in the working directory; returns its version."""
    code = f"import {library}; print({library}.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return done.stdout.strip()
    said = done.stderr.strip().splitlines()
    raise Broken(said[-1] if said else f"Python ended with code {done.returncode}", _fix(library, done.stderr))


def _fix(library: str, said: str) -> str:
    if library == "torchvision" and "torchvision::" in said:
        return (
            f"torchvision {_version('torchvision')} was built for another torch than {_version('torch')}. Install both "
            "from one package index: pip install --force-reinstall torch torchvision --index-url ADDRESS. "
            "Mislabel's own tasks work without this; your scripts can use "
            "mislabel.tasks.data.torchvision_import.vision('datasets')"
        )
    return f'pip install --force-reinstall "{requirements().get(library, library)}"'


def _tasks() -> str:
    from mislabel.tasks.registry import find_task, task_names

    return ", ".join(find_task(name).name for name in task_names())


def _torch() -> str:
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"{torch.__version__}, {os.cpu_count()} CPUs, {', '.join(gpus) or 'no GPU'}"


def _store(address: str) -> str:
    """Check that the store can be written, without creating it."""
    from mislabel.sweeps.store.parts import SCHEMA
    from mislabel.sweeps.store.store import Store

    store = Store(address)
    if store.folder and not os.path.isdir(store.folder):
        above = os.path.dirname(store.folder)
        while not os.path.isdir(above):
            above = os.path.dirname(above)
        if not os.access(above, os.W_OK):
            raise Broken(f"{address} can't be created: no permission to write to {above}", "choose another --store")
        return f"{address} (does not exist yet, layout {SCHEMA})"
    store.prepare()
    return f"{address}, {len(store.names())} sweeps, layout {SCHEMA}"


def _sweeps(address: str) -> list[str]:
    """The sweeps of the store; none if it can't be opened, which the check of the store reports."""
    from mislabel.sweeps.errors import StoreError
    from mislabel.sweeps.store.store import Store

    try:
        return Store(address).names()
    except StoreError:
        return []


def _sweep(address: str, name: str) -> str:
    """Compare all tables of the sweep with their checksums."""
    from mislabel.sweeps.commands.screen import counting
    from mislabel.sweeps.formatting import count
    from mislabel.sweeps.store.parts import generation_of
    from mislabel.sweeps.store.store import Store

    files = Store(address).sweep(name)
    with counting(f"checking {name}") as checked:
        damage = files.damage(whole=True, checked=checked)
    if damage:
        detail = "; ".join(f"{path} {problem}" for path, problem in damage.items())
        raise Broken(detail, "`mislabel run` with the sweep's spec sets damaged parts aside and runs their runs again")
    parts = files.parts("runs")
    unchecked = [part for part in parts if generation_of(part) < 0]
    note = f"; {len(unchecked):,} written by an earlier version, without checksums" if unchecked else ""
    return f"{count(len(parts), 'part')} of tables, no damage{note}"


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
