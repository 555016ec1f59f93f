"""Numbers and names as text, the same on the command line, in reports, in figures and in MLflow."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mislabel.sweeps.spec.model import Axis

_LISTED = 12


def duration(seconds: float) -> str:
    """Such as '40 s', '12 min' or '1.5 h'."""
    if seconds < 1:
        return "under 1 s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 172800 else f"{seconds / 86400:.1f} days"


def estimated(seconds: float, most_seconds: float | None = None) -> str:
    """Such as 'under 1 s', 'about 3 min' or 'about 3 min to about 2 h'."""
    ends = [duration(end) if end < 1 else f"about {duration(end)}" for end in (seconds, most_seconds or seconds)]
    return " to ".join(dict.fromkeys(ends))


def amount(size: float) -> str:
    """Bytes, such as '16 MB'."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def count(number: int, noun: str) -> str:
    """Such as '1 cell' or '2,000 cells'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def value_text(value: Any, digits: int | None = 4) -> str:
    """A parameter's value as a spec writes it; "–" if it has none. `digits=None` keeps all digits of a number."""
    if value is None or type(value).__name__ == "NAType" or value != value:  # pandas' NA can't be compared
        return "–"
    if type(value).__name__ in ("bool", "bool_"):  # Python's and NumPy's
        return str(bool(value)).lower()
    if isinstance(value, float):
        return repr(float(value)) if digits is None else f"{value:.{digits}g}"
    return str(value)


def with_interval(mean: float, high: float) -> str:
    """Such as '0.97 ± 0.014': the mean and half of the interval that ends at `high`. Both may be NaN."""
    if mean != mean:
        return "–"
    return f"{mean:.4g}" if high != high else f"{mean:.4g} ± {high - mean:.2g}"


def values_text(values: Sequence[Any]) -> str:
    """The first values of a list, and how many there are if some are left out."""
    rest = f", … ({len(values)} values)" if len(values) > _LISTED else ""
    return ", ".join(map(value_text, values[:_LISTED])) + rest


def axis_text(axis: "Axis") -> str:
    """The values of a varying parameter, such as '0.01 … 1 (log scale, 6 points)'."""
    if axis.values is not None:
        return values_text(axis.values)
    notes = [
        "log scale" if axis.scale == "log" else "",
        count(axis.points, "point") if axis.points else "",
        f"in steps of {axis.step:g}" if axis.step else "",
    ]
    text = ", ".join(filter(None, notes))
    return f"{axis.min:g} … {axis.max:g}" + (f" ({text})" if text else "")
