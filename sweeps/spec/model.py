"""The sweep spec: what a researcher writes, as typed values.

Each section is a small strict model; `sweeps.checks.reader` reads a document into a Spec and reports every mistake.
This module knows the form of a spec alone, nothing of tasks, so that a store can be read without torch.
"""

import re
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from mislabel.sweeps.spec.document import read_document, text_from_value
from mislabel.tasks.parameters import Value

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
LONGEST_NAME = 100
MOST_OBJECTIVES = 3
TIME = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_from_text(value: object) -> object:
    """90, '90s', '15m', '6h' or '2d' in seconds; anything else is left for the model to refuse."""
    if isinstance(value, str) and (match := TIME.fullmatch(value.strip())):
        return float(match[1]) * _SECONDS[match[2]]
    if isinstance(value, str):
        raise ValueError(f"{value!r} is not a time; write 90s, 15m, 6h or 2d")
    return value


Seconds = Annotated[
    float,
    BeforeValidator(seconds_from_text),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string", "pattern": f"^{TIME.pattern}$"}]}
    ),
]
_from_whole = BeforeValidator(lambda v: float(v) if type(v) is int else v)
WholeFloat = Annotated[float, _from_whole]


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Method(Section):
    """Who proposes cells."""

    name: Literal["grid", "random", "qmc", "tpe", "gp", "cmaes", "nsga2", "nsga3"] = Field(
        "grid", description="grid: all; random: draws; qmc: draws spread evenly (Sobol); the others learn from results"
    )
    seed: int = Field(0, ge=0, description="seed of the search itself: same seed, same proposals")
    startup: int = Field(20, ge=1, description="tpe, gp, cmaes: cells drawn at random before the model is used")
    population: int = Field(50, ge=2, description="nsga2, nsga3: cells to a generation")

    @property
    def learns(self) -> bool:
        """True where proposals depend on results."""
        return self.name not in ("grid", "random", "qmc")


class Objective(Section):
    """What the search improves, and what tables are ranked by."""

    name: str = Field(description="a metric of the task, its mean over seeds at the end of the run")
    goal: Literal["minimize", "maximize"]


class Axis(Section):
    """The values that one parameter takes: a list, or a range."""

    values: list[Value] | None = Field(None, min_length=1, description="the values to try")
    min: WholeFloat | None = Field(None, description="lower end of a range, included")
    max: WholeFloat | None = Field(None, description="upper end of a range, included")
    scale: Literal["linear", "log"] = Field("linear", description="of a range; bounds are values, never exponents")
    points: int | None = Field(None, ge=1, le=10_000, description="how many points of a range a grid takes")
    step: Annotated[float, Field(gt=0), _from_whole] | None = Field(
        None, description="of a linear range: only min, min + step, … are proposed"
    )
    grid: bool = Field(
        False,
        description="search the other axes separately for each value of this one; compare cells within it",
    )
    when: str | None = Field(
        None, description="condition under which the parameter varies; elsewhere its default holds"
    )


class Seeds(Section):
    """From how many seeds each cell is run."""

    count: int = Field(1, ge=1, le=1_000_000, description="runs per cell")
    first: int = Field(0, ge=0, le=10**15, description="the first seed; the others follow it")
    up_to: int | None = Field(
        None, ge=2, le=1_000_000, description="cells that may be the best are run from up to this many seeds"
    )


class EarlyTerminate(Section):
    """When a run is given up before its last step."""

    type: Literal["asha", "hyperband", "median", "patience"]
    min_steps: int = Field(1, ge=1, description="no run is stopped before this step")
    eta: int = Field(3, ge=2, description="asha, hyperband: one in eta goes on")
    per: Literal["cell", "run"] = Field("cell", description="compare means over a cell's seeds, or single runs")
    patience: int | None = Field(None, ge=1, description="patience: steps without a gain after which a run is stopped")
    min_gain: WholeFloat = Field(0.0, ge=0, description="patience: what is less than this is no gain")
    min_cells: int = Field(5, ge=2, description="median: cells that a median is taken of at least")


class Budget(Section):
    """Where a sweep ends; it can be continued with a larger one."""

    cells: int | None = Field(None, ge=1, description="how many cells are proposed; not of a grid, which runs all")
    runs: int | None = Field(None, ge=1, description="runs of the sweep after which no further ones are begun")
    wall: Seconds | None = Field(None, gt=0, description="running time, such as 6h; packs then checkpoint")
    failures: int = Field(
        10, ge=0, description="a launch stops when more runs fail; a run that has failed as often is not tried again"
    )

    @property
    def tries(self) -> int:
        """How often a run may fail by its own fault; being lost with its machine does not count."""
        return max(1, self.failures)


class Resources(Section):
    """What one pack takes."""

    cpu: WholeFloat = Field(1.0, gt=0, description="CPU cores")
    gpu: WholeFloat = Field(0.0, ge=0, description="GPUs; a fraction shares one")
    pack: Annotated[int, Field(ge=1)] | Literal["auto"] = Field(
        "auto", description="runs per pack, or auto: by memory and speed"
    )


class Track(Section):
    """What the MLflow view shows."""

    per: Literal["cell", "run", "none"] = Field(
        "cell", description="a nested run per cell (mean over seeds) or per run"
    )
    points: int = Field(50, ge=2, description="points of a curve at most")


Kept = Literal["results", "weights"]
KEPT: tuple[Kept, ...] = get_args(Kept)


class Spec(Section):
    """One sweep."""

    name: str = Field(description="name of the sweep in its store")
    task: str = Field(description="what is trained; `mislabel tasks` lists them")
    method: Method = Field(Method(), description="who proposes cells")
    metric: tuple[Objective, ...] = Field((), description="the objective, or a list of them")
    parameters: dict[str, Value | Axis] = Field({}, description="a value each, or the values to try")
    exclude: tuple[str, ...] = Field((), description="conditions on parameters; cells that meet one are left out")
    zip: tuple[tuple[str, ...], ...] = Field(
        (), description="groups of parameters whose lists of values go together, first with first"
    )
    try_first: tuple[dict[str, Value], ...] = Field((), description="cells to propose before all others")
    start_from: tuple[str, ...] = Field((), description="sweeps of the store from whose results a search learns first")
    seeds: Seeds = Field(Seeds(), description="from how many seeds each cell is run")
    early_terminate: EarlyTerminate | None = Field(None, description="when a run is given up before its last step")
    budget: Budget = Field(Budget(), description="where the sweep ends; it can be continued with a larger one")
    resources: Resources = Field(Resources(), description="what one pack takes")
    keep: Kept = Field(
        "results", description="weights: also what each run has trained, for use elsewhere; see `mislabel weights`"
    )
    track: Track = Field(Track(), description="what the MLflow view shows")

    def axes(self) -> dict[str, Axis]:
        """Parameters that vary."""
        return {name: axis for name, axis in self.parameters.items() if isinstance(axis, Axis)}

    def fixed(self) -> dict[str, Value]:
        """Parameters that the spec holds at one value."""
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
        """The resolved spec, complete with defaults, in the form that a researcher writes."""
        values = self.model_dump(mode="json", exclude_none=True)
        return text_from_value(values)

    @property
    def seed_range(self) -> range:
        return range(self.seeds.first, self.seeds.first + self.seeds.count)


def spec_from_stored(text: str) -> Spec:
    """A spec as `to_yaml` wrote it. It was checked when it was stored."""
    values: dict[str, Any] = read_document(text, "stored spec").values
    return Spec.model_validate(values, strict=False)
