"""The JSON schema of a spec, for editors that complete and check YAML; with a task, its parameters too."""

from typing import Any

from sweeps.spec import NAME, Spec
from tasks.parameters import Parameter
from tasks.registry import task_names

_TYPES = {int: "integer", float: "number", bool: "boolean", str: "string"}
_EXPRESSIONS = {"type": "array", "items": {"type": "string"}}


def spec_schema(task: Any = None) -> dict[str, Any]:
    """What a spec may look like. Rules between keys are checked by `mislabel plan`."""
    schema = Spec.model_json_schema(ref_template="#/$defs/{model}")
    properties = schema["properties"]
    properties["name"] |= {"pattern": f"^{NAME.pattern}$", "description": "name of the sweep in its store"}
    properties["task"] |= {"enum": task_names(), "description": "what is trained; `mislabel tasks` lists them"}
    properties["exclude"] = {
        **_EXPRESSIONS,
        "description": "conditions on parameters; cells that meet one are left out",
    }
    properties["seeds"] = _or({"type": "integer", "minimum": 1}, "Seeds", "runs per cell")
    properties["method"] = _or({"enum": ["grid", "random", "tpe"]}, "Method", "who proposes cells")
    one = {"$ref": "#/$defs/Objective"}
    properties["metric"] = {
        "anyOf": [one, {"type": "array", "items": one, "maxItems": 3}],
        "description": "the objective",
    }
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Mislabel sweep spec"
    if task is not None:
        properties["task"] = {"const": task.name}
        metrics = {"enum": task.scalars}
        schema["$defs"]["Objective"]["properties"]["name"] |= metrics
        properties["parameters"] = {
            "type": "object",
            "additionalProperties": False,
            "properties": {name: _parameter(p, schema["$defs"]["Axis"]) for name, p in task.parameters.items()},
        }
    return schema


def _or(short: dict[str, Any], model: str, description: str) -> dict[str, Any]:
    return {"anyOf": [short, {"$ref": f"#/$defs/{model}"}], "description": description}


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
