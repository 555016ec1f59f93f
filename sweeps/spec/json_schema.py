"""The JSON schema of a spec, for editors that complete and check YAML; with a task, its parameters too."""

from typing import Any

from mislabel.sweeps.spec.model import MOST_OBJECTIVES, NAME, Spec
from mislabel.tasks.parameters import Parameter
from mislabel.tasks.registry import task_names

_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}


def spec_schema(task: Any = None) -> dict[str, Any]:
    """What a spec may look like. Rules between keys are checked by `mislabel plan`."""
    schema = Spec.model_json_schema(ref_template="#/$defs/{model}")
    models, properties = schema["$defs"], schema["properties"]
    one = {"$ref": "#/$defs/Objective"}
    word = {"type": "string"}
    forms: dict[str, list[dict[str, Any]]] = {
        "method": [{"enum": models["Method"]["properties"]["name"]["enum"]}, {"$ref": "#/$defs/Method"}],
        "metric": [one, {"type": "array", "items": one, "maxItems": MOST_OBJECTIVES}],
        "parameters": [{key: properties["parameters"][key] for key in ("type", "additionalProperties")}],
        "exclude": [word, {"type": "array", "items": word}],
        "zip": [{"type": "array", "items": {"type": "array", "items": word, "minItems": 2}}],
        "try_first": [{"type": "array", "items": {"type": "object", "minProperties": 1}}],
        "start_from": [word, {"type": "array", "items": word}],
        "seeds": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/Seeds"}],
        "early_terminate": [{"$ref": "#/$defs/EarlyTerminate"}],
        "budget": [{"$ref": "#/$defs/Budget"}],
        "resources": [{"$ref": "#/$defs/Resources"}],
        "track": [{"$ref": "#/$defs/Track"}],
    }
    properties["name"]["pattern"] = f"^{NAME.pattern}$"
    properties["task"]["enum"] = task_names() if task is None else [task.name]
    if task is not None:
        models["Objective"]["properties"]["name"]["enum"] = task.scalars
        declared = {name: _parameter(parameter, models["Axis"]) for name, parameter in task.parameters.items()}
        forms["parameters"] = [{"type": "object", "additionalProperties": False, "properties": declared}]
        values = {name: form["anyOf"][0] for name, form in declared.items()}
        cell = {"type": "object", "minProperties": 1, "additionalProperties": False, "properties": values}
        forms["try_first"] = [{"type": "array", "items": cell}]
        group = {"type": "array", "items": {"enum": list(declared)}, "minItems": 2}
        forms["zip"] = [{"type": "array", "items": group}]
    for name, ways in forms.items():
        # A key without a value means its default.
        properties[name] = {"anyOf": [*ways, {"type": "null"}], "description": properties[name]["description"]}
    properties["quick"] = {"type": "object", "description": "keys to replace when the sweep is run with --quick"}
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Mislabel sweep spec"
    return schema


def _parameter(parameter: Parameter, axis: dict[str, Any]) -> dict[str, Any]:
    value: dict[str, Any] = {"type": _TYPES[parameter.type]}
    bounds = {"minimum": "at_least", "maximum": "at_most", "exclusiveMinimum": "above", "exclusiveMaximum": "below"}
    for key, attribute in bounds.items():
        if getattr(parameter, attribute) is not None:
            value[key] = getattr(parameter, attribute)
    if parameter.choices is not None:
        value["enum"] = list(parameter.choices)
    values = {"type": "array", "minItems": 1, "items": value}
    varied = {**axis, "properties": {**axis["properties"], "values": values}}
    described = f"{parameter.help} ({parameter.kind}, default {parameter.default})"
    return {"anyOf": [value, varied], "description": described}
