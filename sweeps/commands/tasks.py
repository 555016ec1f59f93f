"""`mislabel tasks`: list the tasks that can be trained."""

from typing import Any

import click

from mislabel.sweeps.commands import options
from mislabel.sweeps.commands.screen import columns
from mislabel.sweeps.errors import MislabelError, nearest


@click.command()
@click.argument("name", required=False)
@options.as_json
def command(name: str | None, as_json: bool) -> None:
    """List the installed tasks, or the parameters and metrics of the task NAME.

    Packages add tasks through the entry point group `mislabel.tasks`.
    """
    from mislabel.tasks.registry import find_task, task_names

    names = task_names()
    if name is not None and name not in names:
        hint = nearest(name, names) or f"; there are {', '.join(names)}"
        raise MislabelError(f"{name!r} is not an installed task{hint}")
    tasks = [find_task(each) for each in ([name] if name else names)]
    if as_json:
        options.put_json([_described(task) for task in tasks])
    elif name:
        click.echo(_page(tasks[0]))
    else:
        click.echo(columns([(task.name, task.summary) for task in tasks], ("task", "what it shows")))


def _described(task: Any) -> dict[str, Any]:
    parameters = {
        p.name: {"kind": p.kind, "type": p.type.__name__, "default": p.default, "rule": p.rule, "help": p.help}
        for p in task.parameters.values()
    }
    metrics = {name: {"help": metric.help, "per": metric.per} for name, metric in task.metrics.items()}
    own = {"name": task.name, "version": task.version, "summary": task.summary}
    return {**own, "parameters": parameters, "metrics": metrics}


def _page(task: Any) -> str:
    parameters = [(p.name, p.kind, str(p.default), p.rule, p.help) for p in task.parameters.values()]
    metrics = [(name, f"per {metric.per}" if metric.per else "", metric.help) for name, metric in task.metrics.items()]
    return "\n\n".join(
        [
            f"{task.name} (version {task.version})\n{task.summary}",
            columns(parameters, ("parameter", "kind", "default", "rule", "meaning")),
            columns(metrics, ("metric", "", "meaning")),
            "All runs of a pack have the same shapes. Knobs may differ between runs.",
        ]
    )
