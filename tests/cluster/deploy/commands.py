"""Check that the commands in files and pages exist."""

import click

from mislabel.sweeps.commands.main import cli


def check_mislabel(words: list[str]) -> None:
    """Check the words after `mislabel`: the command, its options and their values."""
    command = cli.get_command(click.Context(cli), words[0])
    assert command is not None, words
    command.make_context(words[0], words[1:])


def check_ray(words: list[str]) -> None:
    """Check the words after `ray`: the command and its options."""
    from ray.scripts.scripts import cli as ray

    at: click.Command = ray
    rest = list(words)
    while isinstance(at, click.Group):
        at = at.commands[rest.pop(0)]
    known = {name for parameter in at.params for name in (*parameter.opts, *parameter.secondary_opts)}
    if at.name == "symmetric_run":
        known |= {name for parameter in ray.commands["start"].params for name in parameter.opts}
    rest = rest[: rest.index("--")] if "--" in rest else rest
    unknown = {word.split("=")[0] for word in rest if word.startswith("--")} - known
    assert not unknown, f"ray {' '.join(words)}: no {unknown}"
