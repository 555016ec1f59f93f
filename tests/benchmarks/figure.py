"""A measured number and its bound."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Figure:
    name: str
    value: float
    unit: str
    bound: float | None = None
    sense: Literal["at least", "at most"] = "at most"

    @property
    def met(self) -> bool:
        if self.bound is None:
            return True
        return self.value >= self.bound if self.sense == "at least" else self.value <= self.bound

    def __str__(self) -> str:
        wanted = "" if self.bound is None else f"  ({self.sense} {self.bound:g}: {'met' if self.met else 'MISSED'})"
        return f"{self.name:<64}{self.value:>10.3g} {self.unit}{wanted}"
