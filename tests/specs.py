"""Hypothesis strategies for valid specs of the `bowl` task, as plain values."""

from typing import Any

from hypothesis import strategies as st

numbers = st.floats(-10, 10) | st.integers(-10, 10)
rates = st.floats(0, 1, exclude_min=True)
words = st.sampled_from(["smooth", "rough"])


def lists(elements: st.SearchStrategy[Any], most: int = 3) -> st.SearchStrategy[Any]:
    """An axis with listed values; 1 and 1.0 count as equal."""
    return st.lists(elements, min_size=1, max_size=most, unique=True).map(lambda values: {"values": values})


@st.composite
def ranges(draw: st.DrawFn, low: float, high: float, whole: bool = False, log: bool = False) -> dict[str, Any]:
    ends = st.integers(int(low), int(high)) if whole else st.floats(low, high)
    first, second = sorted(draw(st.lists(ends, min_size=2, max_size=2, unique=True)))
    axis: dict[str, Any] = {"min": first, "max": second, "points": draw(st.integers(1, 4))}
    return {**axis, "scale": draw(st.sampled_from(["linear", "log"]))} if log else axis


@st.composite
def parameters(draw: st.DrawFn) -> dict[str, Any]:
    """Some parameters, fixed or varied; conditions read only parameters that come before them."""
    given: dict[str, Any] = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "tilted": st.booleans() | lists(st.booleans(), 2),
                "surface": words | lists(words, 2),
                "width": st.integers(1, 32) | lists(st.integers(1, 32)) | ranges(1, 32, whole=True, log=True),
                "x": numbers | lists(numbers) | ranges(-10, 10),
                "rate": rates | lists(rates) | ranges(0.001, 1, log=True),
                "level": st.integers(0, 1000) | lists(st.integers(0, 1000)) | ranges(0, 1000, whole=True),
            },
        )
    )
    texts = {
        "x": ["tilted", "surface == 'rough'", "width > 8"],
        "rate": ["x > 0", "not tilted", "x in [0, 1] or width == 2"],
        "level": ["rate < 0.5 and x <= 0", "surface != 'rough'"],
    }
    for name, choices in texts.items():
        if isinstance(given.get(name), dict) and draw(st.booleans()):
            given[name]["when"] = draw(st.sampled_from(choices))
    return given


@st.composite
def spaces(draw: st.DrawFn, *methods: str) -> dict[str, Any]:
    """Parameters, groups, exclusions, steps and branches of a spec with one of these methods."""
    method = draw(st.sampled_from(methods))
    given = draw(parameters().filter(lambda found: any(isinstance(axis, dict) for axis in found.values())))
    values: dict[str, Any] = {"method": method, "parameters": given}
    if draw(st.booleans()):
        pairs = st.tuples(st.integers(1, 32), st.integers(0, 1000))
        widths, levels = zip(*draw(st.lists(pairs, min_size=2, max_size=3, unique=True)), strict=True)
        given |= {"width": {"values": list(widths)}, "level": {"values": list(levels)}}
        values["zip"] = [["level", "width"]]
    values["exclude"] = draw(st.lists(conditions, max_size=2, unique=True))
    if draw(st.booleans()):
        given["x"] = draw(st.sampled_from([{"min": -1, "max": 1, "step": 0.1}, {"min": 0, "max": 6, "step": 2}]))
    if method != "grid":
        axes = [name for name, axis in given.items() if isinstance(axis, dict)]
        fit = [name for name in axes if "when" not in given[name]]
        if fit and len(axes) > (2 if "zip" in values else 1) and draw(st.booleans()):
            given[draw(st.sampled_from(fit))]["grid"] = True
        values["method"] = {"name": method, "seed": draw(st.integers(0, 3))}
        values["budget"] = {"cells": draw(st.integers(30, 90))}
    return values


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,5}(\.[A-Za-z0-9_-]{1,5})?", fullmatch=True)
conditions = st.sampled_from(["x > 5", "rate * level > 3", "tilted and width < 4", "surface == 'rough'"])

grids = st.fixed_dictionaries(
    {"name": names, "task": st.just("bowl")},
    optional={
        "method": st.sampled_from(["grid", {"name": "grid", "seed": 3}]),
        "metric": st.sampled_from([{"name": "loss", "goal": "minimize"}, [{"name": "height", "goal": "maximize"}]]),
        "parameters": parameters(),
        "exclude": st.lists(conditions, max_size=2, unique=True),
        "seeds": st.integers(1, 5) | st.fixed_dictionaries({"count": st.integers(1, 5), "first": st.integers(0, 9)}),
        "budget": st.fixed_dictionaries(
            {}, optional={"wall": st.sampled_from(["90s", "1.5h", 60, 0.5]), "failures": st.integers(0, 3)}
        ),
        "resources": st.fixed_dictionaries(
            {}, optional={"cpu": st.sampled_from([1, 0.5]), "pack": st.integers(1, 9) | st.just("auto")}
        ),
        "track": st.fixed_dictionaries({"per": st.sampled_from(["cell", "run", "none"])}),
    },
)  # fmt: skip
