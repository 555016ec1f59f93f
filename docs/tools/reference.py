"""Reference pages, made from the code: the spec, the commands, the tasks."""

import inspect
import re
import typing
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from typing import Any

import click
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from mislabel.sweeps.commands.main import COMMANDS, cli
from mislabel.sweeps.spec.model import Axis, Spec
from mislabel.tasks.parameters import Parameter
from mislabel.tasks.registry import GROUP, find_task
from mislabel.tasks.task import Task


def reference_pages() -> dict[str, str]:
    """The generated pages by their path in the site."""
    tasks = {f"reference/tasks/{task.name}.md": task_page(task) for task in our_tasks()}
    return {
        "reference/spec.md": spec_page(),
        "reference/commands.md": commands_page(),
        "reference/tasks/index.md": tasks_page(),
        **tasks,
    }


def our_tasks() -> list[Task[Any]]:
    """The tasks of this package, without those that other packages have installed."""
    names = {point.name for point in entry_points(group=GROUP) if point.value.startswith("mislabel.")}
    return [find_task(name) for name in sorted(names)]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in lines
    )


# The spec.


def spec_page() -> str:
    parts = [
        "# The spec",
        "A sweep spec is a YAML file. Unknown keys are refused. All mistakes are reported at once, each with its line. "
        "`mislabel schema` prints the same grammar as a JSON schema, for editors.",
        "## Top level",
        _fields(Spec),
    ]
    for title, model in _sections():
        parts += [f"## {title}", inspect.getdoc(model) or "", _fields(model)]
    return "\n\n".join(parts) + "\n"


def _sections() -> Iterator[tuple[str, type[BaseModel]]]:
    """The sections of a spec, by the key that has them."""
    for key, field in Spec.model_fields.items():
        for model in _models(field.annotation):
            yield f"`{key}`", model
        if key == "parameters":
            yield "A parameter that varies", Axis


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation is not Axis:
            yield annotation
        return
    for inner in typing.get_args(annotation):
        yield from _models(inner)


def _fields(model: type[BaseModel]) -> str:
    schema = model.model_json_schema(mode="validation")["properties"]
    rows = []
    for name, field in model.model_fields.items():
        default = field.get_default(call_default_factory=True)
        form = [_kind(schema[name]), _default(field.default if default is None else default)]
        rows.append((f"`{name}`", f"{field.description}<br>*{'; '.join(filter(None, form))}*"))
    return table(("key", "meaning"), rows)


def _default(value: Any) -> str:
    if value is PydanticUndefined:
        return "required"
    if isinstance(value, BaseModel) or value in (None, (), {}):
        return ""
    return f"default `{str(value).lower() if isinstance(value, bool) else value}`"


def _kind(schema: dict[str, Any]) -> str:
    """The form of a value in words, from its JSON schema."""
    if "enum" in schema:
        return ", ".join(f"`{choice}`" for choice in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            kinds = [_kind(each) for each in schema[key] if each.get("type") != "null"]
            return " or ".join(dict.fromkeys(kinds))
    kind = schema.get("type")
    if "$ref" in schema or kind == "object":
        return "section"
    if kind == "array":
        return "list"
    if isinstance(kind, list):
        return "value"
    words = {"integer": "whole number", "number": "number", "string": "text", "boolean": "`true` or `false`"}
    bounds = [("≥", "minimum"), (">", "exclusiveMinimum"), ("≤", "maximum")]
    rule = [f"{sign} {schema[bound]:,}" for sign, bound in bounds if bound in schema]
    return " ".join([words.get(str(kind), "value"), *rule])


# The commands.


def commands_page() -> str:
    parts = ["# Commands", _paragraphs(inspect.getdoc(cli.callback) or ""), _options(cli)]
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        parts.append(_command(f"mislabel {name}", command, "##"))
        if isinstance(command, click.Group):
            for word in command.list_commands(click.Context(command)):
                inner = command.get_command(click.Context(command), word)
                assert inner is not None
                parts.append(_command(f"mislabel {name} {word}", inner, "###"))
    return "\n\n".join(parts) + "\n"


def _command(path: str, command: click.Command, heading: str) -> str:
    context = click.Context(command, info_name=path)
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    return "\n\n".join(
        filter(
            None, [f"{heading} {path}", f"```text\n{usage}\n```", _paragraphs(command.help or ""), _options(command)]
        )
    )


def _options(command: click.Command) -> str:
    rows = []
    for option in command.params:
        if not isinstance(option, click.Option) or option.hidden:
            continue
        names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
        value = "" if option.is_flag else f" `{option.make_metavar(click.Context(command))}`"
        variable = f" Variable: `{option.envvar}`." if option.envvar else ""
        default = f" Default: `{option.default}`." if option.show_default else ""
        rows.append((names + value, f"{option.help or ''}{default}{variable}"))
    return table(("option", "meaning"), rows) if rows else ""


def _paragraphs(text: str) -> str:
    """A help text as Markdown. Click marks paragraphs that keep their line breaks with a backspace character."""
    parts = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if paragraph.startswith("\b"):
            parts.append("```text\n" + inspect.cleandoc(paragraph.removeprefix("\b").strip("\n")) + "\n```")
        else:
            parts.append(" ".join(paragraph.split()))
    return "\n\n".join(parts)


# The tasks.


def tasks_page() -> str:
    rows = [(f"[`{task.name}`]({task.name}.md)", _markdown(task.summary)) for task in our_tasks()]
    return (
        "\n\n".join(
            [
                "# Tasks",
                "`mislabel tasks` prints this list, and `mislabel tasks NAME` a task's parameters and metrics. "
                "[Your own task](../../guides/own-task.md) is one file.",
                table(("task", "what it shows"), rows),
            ]
        )
        + "\n"
    )


def task_page(task: Task[Any]) -> str:
    """What trains, and the task's parameters and metrics."""
    doc = inspect.getdoc(inspect.getmodule(task.init)) or ""
    _, _, explanation = doc.partition("\n")
    parts = [f"# {task.name}", f"**{_markdown(task.summary)}**", _markdown(explanation.strip())]
    parts += ["## Parameters", "All runs of a pack have the same shapes. Knobs may differ between runs."]
    parts.append(table(("parameter", "meaning"), [_row(p) for p in task.parameters.values()]))
    metrics = [
        (f"`{name}`", _markdown(metric.help) + (f" (per {metric.per})" if metric.per else ""))
        for name, metric in task.metrics.items()
    ]
    parts += ["## Metrics", table(("metric", "meaning"), metrics)]
    return "\n\n".join(filter(None, parts)) + "\n"


def _row(parameter: Parameter) -> tuple[str, ...]:
    default = f"default `{parameter.default}`" if parameter.default != "" else "default: empty"
    form = "; ".join(filter(None, [parameter.kind, default, parameter.rule]))
    return f"`{parameter.name}`", f"{_markdown(parameter.help)}<br>*{form}*"


def _markdown(text: str) -> str:
    """Text of a docstring, with the characters escaped that Markdown would read as markup."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([*_<\[])", r"\\\1", part) for part in parts)
