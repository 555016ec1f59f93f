"""The JSON schema of a spec, for editors that complete and check YAML; with a task, its parameters too."""

from typing import Any

from mislabel.sweeps.spec.model import Spec
from mislabel.tasks.parameters import Parameter
from mislabel.tasks.registry import task_names

_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
_BOUNDS = {"minimum": "at_least", "maximum": "at_most", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}


def spec_schema(task: Any = None) -> dict[str, Any]:
    """The form of a spec, short forms included. `mislabel plan` also checks rules between keys."""
    schema = Spec.model_json_schema()
    sections, properties = schema["$defs"], schema["properties"]
    properties["task"]["enum"] = task_names() if task is None else [task.name]
    if task is not None:
        sections["Objective"]["properties"]["name"]["enum"] = task.scalars
        values = {name: _value(parameter) for name, parameter in task.parameters.items()}
        varied = {name: _parameter(task.parameters[name], values[name], sections["Axis"]) for name in values}
        properties["parameters"] |= {"additionalProperties": False, "properties": varied}
        for key in ("try_first", "baselines"):
            properties[key]["items"] |= {"additionalProperties": False, "properties": values}
        properties["zip"]["items"]["items"]["enum"] = list(values)
    for name in properties.keys() - schema["required"]:
        form = properties[name]  # a key without a value has its default
        properties[name] = {"anyOf": [form, {"type": "null"}], "description": form.pop("description")}
    properties["quick"] = {"type": "object", "description": "keys to replace when the sweep is run with --quick"}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Mislabel sweep spec"}


def _value(parameter: Parameter) -> dict[str, Any]:
    bounds = {key: getattr(parameter, attribute) for key, attribute in _BOUNDS.items()}
    value = {"type": _TYPES[parameter.type], **{key: bound for key, bound in bounds.items() if bound is not None}}
    return value if parameter.choices is None else {**value, "enum": list(parameter.choices)}


def _parameter(parameter: Parameter, value: dict[str, Any], axis: dict[str, Any]) -> dict[str, Any]:
    listed = {"values": {"type": "array", "minItems": 1, "items": value}}
    described = f"{parameter.help} ({parameter.kind}, default {parameter.default})"
    return {"anyOf": [value, {**axis, "properties": axis["properties"] | listed}], "description": described}
