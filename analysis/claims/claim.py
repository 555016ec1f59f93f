"""A claim: a statement of a paper, the quantity that tests it, and the rule that decides it.

Claims are data: one YAML file per paper in `rules`. They are read without the code that measures them, which is in the
paper's module. So a rule can be read, compared and hashed on its own. `mislabel reproduce` stores the hashes of an
experiment's rules with each launch, and a verdict whose rule is newer than its runs says so.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

import pandas as pd
import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from mislabel.analysis.sweep import Sweep

RULES = Path(__file__).parent / "rules"
Values = Mapping[str, pd.Series]
"""What a measure finds: for each cell that the claim is about, a value per seed. Truth values count as shares.

A claim about one setting has one cell. A statement about every setting has a cell for each, and must hold in all.
"""
Measure = Callable[[Sweep], Values]
Prediction = Callable[[Sweep], float]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rule(_Model):
    """Where the quantity must lie: in a region, or near a number of the paper."""

    at_least: float | None = None
    at_most: float | None = None
    number: float | None = None
    """A number of the paper, which a new run of the experiment should give."""
    margin: float | None = None
    """The prediction interval of the number must be narrower than this, to both sides."""
    scale: Literal["linear", "log"] = "linear"
    """With `log`, means and intervals are geometric: for ratios."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if (self.number is None) == (self.at_least is None and self.at_most is None):
            raise ValueError("a rule has `number`, or `at_least` and `at_most`, or one of them")
        if (self.number is None) != (self.margin is None):
            raise ValueError("`number` and `margin` belong together")
        if self.low > self.high:
            raise ValueError(f"at_least {self.at_least} is above at_most {self.at_most}")
        return self

    @property
    def low(self) -> float:
        return -math.inf if self.at_least is None else self.at_least

    @property
    def high(self) -> float:
        return math.inf if self.at_most is None else self.at_most

    def __str__(self) -> str:
        if self.number is not None:
            return f"{self.number:g} within ± {self.margin:g}"
        if self.at_least is None:
            return f"≤ {self.at_most:g}"
        return f"≥ {self.at_least:g}" if self.at_most is None else f"{self.at_least:g} to {self.at_most:g}"


class Claim(_Model):
    """A statement of a paper and how it is tested."""

    item: str
    """The figure, table, theorem or section that makes the statement: one of the paper's items."""
    says: str
    quantity: str
    """What is measured to decide it."""
    rule: Rule
    seeds: Annotated[int, Field(ge=2)]
    """With fewer seeds the claim is never confirmed."""
    origin: Literal["paper", "theory", "chosen before the runs", "chosen after earlier runs"]
    """Where the bounds of the rule come from."""
    experiments: tuple[str, ...]
    """The experiments that test it, without the name of the paper."""
    theory: float | None = None
    """The theory's prediction for the quantity."""
    quick: bool = True
    """False if the statement depends on the paper's sizes, so that the small version can't decide it."""
    quick_seeds: Annotated[int, Field(ge=2)] = 3
    """As `seeds`, for the small version."""
    sabotage: tuple[str, ...] = ()
    """Changes of the task that contradict the claim: see `tests/analysis/claims/sabotage.py`."""

    @property
    def statement(self) -> str:
        return f"{self.item}: {self.says}"

    @property
    def hash(self) -> str:
        """Changes with the rule, the quantity and the number of seeds."""
        decided_by = self.model_dump(mode="json", include={"quantity", "rule", "seeds", "quick_seeds"})
        return hashlib.sha256(json.dumps(decided_by, sort_keys=True).encode()).hexdigest()[:16]


class Item(_Model):
    """A figure, table, theorem, lemma or statement of a paper."""

    item: str
    says: str
    not_tested: str = ""
    """Why no claim tests it; empty for an item with claims."""


class Paper(_Model):
    """The items of a paper and its claims, by the claims' names."""

    items: tuple[Item, ...]
    claims: dict[str, Claim]

    @model_validator(mode="after")
    def _every_item_is_tested_or_says_why_not(self) -> Self:
        items = {item.item for item in self.items}
        tested = {claim.item for claim in self.claims.values() if claim.item != BEYOND}
        problems = [f"{item}: claims name it, but it is not among the items" for item in sorted(tested - items)]
        for item in self.items:
            if (item.item in tested) == bool(item.not_tested):
                has = "has claims and" if item.not_tested else "has no claim and no"
                problems.append(f"{item.item}: {has} `not_tested`")
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @property
    def coverage(self) -> tuple[int, int]:
        """How many items have a claim, and how many there are."""
        return sum(not item.not_tested for item in self.items), len(self.items)

    def claims_of(self, experiment: str) -> dict[str, Claim]:
        """The claims that this experiment tests. It is named without the paper."""
        return {name: claim for name, claim in self.claims.items() if experiment in claim.experiments}


BEYOND = "Beyond the paper"
"""The item of statements that the paper does not make."""


@cache
def paper(name: str) -> Paper:
    """The claims of a paper, such as `xor-clusters`."""
    return Paper.model_validate(yaml.safe_load((RULES / f"{name}.yaml").read_text()))


def papers() -> list[str]:
    return sorted(path.stem for path in RULES.glob("*.yaml"))


def claims_of(experiment: str) -> dict[str, Claim]:
    """The claims of an experiment, such as `xor-clusters/fig1`, by name."""
    name, _, part = experiment.partition("/")
    return paper(name).claims_of(part)


def rule_hashes(name: str) -> dict[str, str]:
    """The hash of each claim of a paper. Runs of one experiment may be reused by another one of the same paper."""
    return {claim: found.hash for claim, found in paper(name).claims.items()}
