"""`mislabel schema`: the JSON schema of a spec."""

import click

from mislabel.sweeps.commands import options


@click.command()
@click.option("--task", "name", metavar="TASK", help="Include the parameters and metrics of this task.")
def command(name: str | None) -> None:
    """Print the JSON schema of a spec, for editors that complete and check it.

    \b
      mislabel schema --task xor_clusters > xor.schema.json
      # then, as the first line of a spec:
      # yaml-language-server: $schema=xor.schema.json
    """
    from mislabel.sweeps.errors import MislabelError, nearest
    from mislabel.sweeps.spec.json_schema import spec_schema
    from mislabel.tasks.registry import find_task, task_names

    if name is not None and name not in task_names():
        raise MislabelError(f"{name!r} is not an installed task{nearest(name, task_names())}")
    options.put_json(spec_schema(find_task(name) if name else None))
