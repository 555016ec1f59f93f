"""The grammar of a sweep spec: typed sections with their rules and short forms.

These models are its only definition: `sweeps.checks` reports every mistake that they find, and `json_schema` derives
the schema for editors from them. They know nothing about tasks, so that a store can be read without torch.
"""

import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationInfo, WithJsonSchema
from pydantic.functional_validators import BeforeValidator, PlainValidator, field_validator, model_validator

from mislabel.sweeps.spec.condition import parse_expression
from mislabel.sweeps.spec.document import LARGEST_BYTES, kind_of, read_document, text_from_value
from mislabel.tasks.parameters import Value

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
LONGEST_NAME = 100
MOST_OBJECTIVES = 3
# Planning walks through all cells; this many take a few minutes.
MOST_CELLS = 100_000_000
TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_from_text(value: object) -> object:
    """Convert '90s', '15m', '6h' or '2d' to seconds; the model then checks that the result is a number."""
    if isinstance(value, str) and (match := TIME.fullmatch(value.strip())):
        return float(match[1]) * _SECONDS[match[2]]
    if isinstance(value, str):
        raise ValueError(f"{value!r} is not a time; write 90s, 15m, 6h or 2d")
    return value


def _sweep_name(value: object) -> object:
    if not isinstance(value, str) or not NAME.fullmatch(value) or len(value) > LONGEST_NAME:
        rule = f"use at most {LONGEST_NAME} letters, digits, - and _, with single dots inside"
        raise ValueError(f"{value!r} is not a sweep name; {rule}")
    return value


def _scalar(value: object) -> object:
    if not isinstance(value, Value):
        raise ValueError("has no value" if value is None else f"is {kind_of(value)}; write a single value")
    return value


def _condition(value: object) -> object:
    parse_expression(value)
    return value


def _no_list(value: object) -> object:
    if isinstance(value, list):
        raise ValueError(f"is a list; write {{values: {text_from_value(value, flow=True)}}} to try each of them")
    return value


def _groups(value: object) -> object:
    if isinstance(value, list) and any(isinstance(item, str) for item in value):
        raise ValueError("is a list of names; write a list of groups, such as [[dim, width]]")
    return value


def _one_or_several(item: Any, most: int | None = None) -> BeforeValidator:
    """Accept a single item in place of a list of one."""
    form = item | Annotated[list[item], Field(max_length=most)]
    return BeforeValidator(lambda v: v if isinstance(v, list | tuple) else [v], json_schema_input_type=form)


def _or_section(kind: type, key: str, form: Any) -> BeforeValidator:
    """Accept the value of `key` in place of a section."""
    return BeforeValidator(lambda v: {key: v} if type(v) is kind else v, json_schema_input_type=form)


_name_schema = {"type": "string", "pattern": f"^{NAME.pattern}$", "maxLength": LONGEST_NAME}
_time_schema = Annotated[float, Field(gt=0)] | Annotated[str, Field(pattern=f"^{TIME.pattern}$")]
_from_int = BeforeValidator(lambda value: float(value) if type(value) is int else value)

Seconds = Annotated[float, BeforeValidator(seconds_from_text, json_schema_input_type=_time_schema)]
SweepName = Annotated[str, BeforeValidator(_sweep_name), WithJsonSchema(_name_schema)]
Scalar = Annotated[Value, PlainValidator(_scalar), WithJsonSchema({"type": ["boolean", "number", "string"]})]
Condition = Annotated[str, BeforeValidator(_condition)]
Number = Annotated[float, _from_int]
Group = Annotated[tuple[str, ...], Field(min_length=2, strict=False)]
Cell = Annotated[dict[str, Scalar], Field(min_length=1)]
Scale = Literal["linear", "log"]
PackSize = Annotated[int, Field(ge=1)] | Literal["auto"]
SeedCount = Annotated[int, Field(ge=1, le=1_000_000)]
MethodName = Literal["grid", "random", "qmc", "tpe", "gp", "cmaes", "nsga2", "nsga3"]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Method(Section):
    """How cells are chosen."""

    name: MethodName = Field("grid", description="grid: all cells; random, qmc: draws; the others learn from results")
    seed: int = Field(0, ge=0, description="seed of the search: the same seed gives the same proposals")
    startup: int = Field(20, ge=1, description="tpe, gp, cmaes: number of random cells before the model is used")
    population: int = Field(50, ge=2, description="nsga2, nsga3: cells per generation")

    @property
    def learns(self) -> bool:
        """Whether proposals depend on results."""
        return self.name not in ("grid", "random", "qmc")


class Objective(Section):
    """The metric that a search optimizes and tables are ranked by."""

    name: str = Field(description="a metric of the task; its mean over seeds at the end of a run counts")
    goal: Literal["minimize", "maximize"] = Field(description="minimize or maximize")


class Axis(Section):
    """The values of a parameter that varies: a list or a range."""

    values: list[Scalar] | None = Field(None, min_length=1, description="the values to try")
    min: Number | None = Field(None, description="lower end of a range, included")
    max: Number | None = Field(None, description="upper end of a range, included")
    scale: Scale = Field("linear", description="scale of a range; min and max are values, not exponents")
    points: int | None = Field(None, ge=1, le=10_000, description="number of points that a grid takes from a range")
    step: Annotated[float, Field(gt=0), _from_int] | None = Field(
        None, description="distance between the values of a linear range: min, min + step, …"
    )
    grid: bool = Field(
        False, description="search the other axes separately for each value of this one; compare cells within it"
    )
    when: Condition | None = Field(
        None, description="condition under which the parameter varies; otherwise it has its default"
    )

    @model_validator(mode="after")
    def _list_or_range(self) -> Self:
        ends = [self.min, self.max]
        if self.values is None and None in ends:
            if ends == [None, None]:
                raise ValueError("gives no values; write {values: [..]} or {min: .., max: ..}")
            raise ValueError(f"{'min' if self.min is None else 'max'} is missing; a range needs both ends")
        if self.values is not None and ends != [None, None]:
            raise ValueError("gives both values and a range; keep one of them")
        if self.values is not None and (self.points, self.step, self.scale) != (None, None, "linear"):
            raise ValueError("points, step and scale belong to a range; remove them")
        if self.points is not None and self.step is not None:
            raise ValueError("gives both points and step; keep one of them")
        return self

    @property
    def ends(self) -> tuple[float, float]:
        """The ends of a range."""
        assert self.min is not None
        assert self.max is not None
        return self.min, self.max


class Seeds(Section):
    """How many seeds each cell runs with."""

    count: SeedCount = Field(1, description="runs per cell")
    first: int = Field(0, ge=0, le=10**15, description="the first seed; the others follow it")
    up_to: int | None = Field(None, ge=2, le=10**6, description="cells that may be the best get up to this many seeds")

    @field_validator("up_to")
    @classmethod
    def _above_count(cls, up_to: int | None, info: ValidationInfo) -> int | None:
        count = info.data.get("count")
        if up_to is not None and count is not None and up_to <= count:
            raise ValueError(f"{up_to} is not above count, {count}; every cell gets count seeds anyway")
        return up_to


_TYPES_WITH = {
    "eta": ("asha", "hyperband"),
    "patience": ("patience",),
    "min_gain": ("patience",),
    "min_cells": ("median",),
}


class EarlyTerminate(Section):
    """When a run is stopped before its last step."""

    type: Literal["asha", "hyperband", "median", "patience"] = Field(description="asha, hyperband, median or patience")
    min_steps: int = Field(1, ge=1, description="no run is stopped before this step")
    eta: int = Field(3, ge=2, description="asha, hyperband: one in eta continues at each rung")
    per: Literal["cell", "run"] = Field("cell", description="compare means over a cell's seeds, or single runs")
    patience: int | None = Field(
        None, ge=1, description="patience: steps without a gain after which a run is stopped", validate_default=True
    )
    min_gain: Number = Field(0.0, ge=0, description="patience: smaller improvements do not count as a gain")
    min_cells: int = Field(5, ge=2, description="median: number of other cells that a median needs")

    @field_validator(*_TYPES_WITH)
    @classmethod
    def _belongs_to_type(cls, value: Any, info: ValidationInfo) -> Any:
        key, type_ = str(info.field_name), info.data.get("type")
        if type_ is None:
            return value
        if key == type_ == "patience" and value is None:
            raise ValueError("is missing; give the number of steps without a gain after which a run is stopped")
        if type_ not in _TYPES_WITH[key] and value != cls.model_fields[key].default:
            raise ValueError(f"belongs to type {' or '.join(_TYPES_WITH[key])}, not to {type_}; remove it")
        return value


class Budget(Section):
    """When a sweep ends; a larger budget continues it."""

    cells: int | None = Field(
        None, ge=1, le=MOST_CELLS, description="number of cells to propose; not for a grid, which runs all cells"
    )
    runs: int | None = Field(None, ge=1, description="start no further runs after this many")
    wall: Seconds | None = Field(None, gt=0, description="running time, such as 6h; running packs then checkpoint")
    failures: int = Field(
        10, ge=0, description="stop when more runs than this fail; a run that fails this often is not tried again"
    )

    @property
    def tries(self) -> int:
        """How often a run may fail; runs that are lost with their machine do not count."""
        return max(1, self.failures)


class Resources(Section):
    """What one pack needs."""

    cpu: Number = Field(1.0, gt=0, le=1024, description="CPU cores")
    gpu: Number = Field(0.0, ge=0, description="GPUs; packs with a fraction share one")
    pack: PackSize = Field("auto", description="runs per pack; auto chooses by memory and speed")


class Track(Section):
    """What the MLflow view shows."""

    per: Literal["cell", "run", "none"] = Field(
        "cell", description="one nested run per cell (mean over seeds) or per run, or none"
    )
    points: int = Field(50, ge=2, description="maximum number of points of a curve")


Parameter = Annotated[
    Annotated[Scalar, Tag("value")] | Annotated[Axis, Tag("axis")],
    Discriminator(lambda value: "axis" if isinstance(value, dict | Axis) else "value"),
    BeforeValidator(_no_list),
]


class Spec(Section):
    """One sweep."""

    name: SweepName = Field(description="the name of the sweep in its store")
    task: str = Field(description="the task to train; `mislabel tasks` lists them")
    method: Annotated[Method, _or_section(str, "name", MethodName | Method)] = Field(
        Method(), description="how cells are chosen"
    )
    metric: Annotated[
        tuple[Objective, ...],
        Field(max_length=MOST_OBJECTIVES, strict=False),
        _one_or_several(Objective, MOST_OBJECTIVES),
    ] = Field((), description="the objective, or a list of up to three")
    parameters: dict[str, Parameter] = Field({}, description="for each parameter a value, or the values to try")
    exclude: Annotated[tuple[Condition, ...], _one_or_several(Condition)] = Field(
        (), strict=False, description="conditions on parameters; cells that satisfy one are left out"
    )
    zip: Annotated[tuple[Group, ...], Field(strict=False), BeforeValidator(_groups)] = Field(
        (), description="groups of parameters whose lists of values are paired: first with first, second with second"
    )
    try_first: tuple[Cell, ...] = Field((), strict=False, description="cells to propose before all others")
    baselines: tuple[Cell, ...] = Field(
        (),
        strict=False,
        description="cells to run before all others that early_terminate never stops; each gives all varied parameters",
    )
    start_from: Annotated[tuple[SweepName, ...], _one_or_several(SweepName)] = Field(
        (), strict=False, description="sweeps in the store whose results a search learns from first"
    )
    seeds: Annotated[Seeds, _or_section(int, "count", SeedCount | Seeds)] = Field(
        Seeds(), description="how many seeds each cell runs with"
    )
    early_terminate: EarlyTerminate | None = Field(None, description="when a run is stopped before its last step")
    budget: Budget = Field(Budget(), description="when the sweep ends; a larger budget continues it")
    resources: Resources = Field(Resources(), description="what one pack needs")
    keep: Literal["results", "weights"] = Field(
        "results", description="weights: also store each run's trained weights; see `mislabel weights`"
    )
    track: Track = Field(Track(), description="what the MLflow view shows")

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, values: Any) -> Any:
        """A key without a value has its default."""
        return {k: v for k, v in values.items() if v is not None} if isinstance(values, dict) else values

    def axes(self) -> dict[str, Axis]:
        """Parameters that vary."""
        return {name: axis for name, axis in self.parameters.items() if isinstance(axis, Axis)}

    def fixed(self) -> dict[str, Value]:
        """Parameters that have one value in all cells."""
        return {name: value for name, value in self.parameters.items() if not isinstance(value, Axis)}

    def branch_axes(self) -> list[str]:
        """Axes with `grid: true`, and the axes that are zipped with them.

        Each combination of their values is a branch of the sweep, whatever the method. The other axes are searched
        separately in each branch, and early stopping and `seeds.up_to` compare only cells of the same branch.
        """
        axes = self.axes()
        groups = [*self.zip, *((name,) for name in axes)]
        found = {name for group in groups if any(axes[name].grid for name in group) for name in group}
        return [name for name in axes if name in found]

    def to_yaml(self) -> str:
        """The spec as YAML, complete with defaults."""
        return text_from_value(self.model_dump(mode="json", exclude_none=True))

    @property
    def seed_range(self) -> range:
        return range(self.seeds.first, self.seeds.first + self.seeds.count)


def spec_from_stored(text: str) -> Spec:
    """Read what `to_yaml` wrote. The spec was checked against its task when it was stored."""
    # Complete with defaults and one value per line, a spec is longer than what its author wrote.
    document = read_document(text, "stored spec", most_characters=100 * LARGEST_BYTES)
    return Spec.model_validate(document.values, strict=False)
