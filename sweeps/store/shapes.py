"""The shapes of the small JSON files of a sweep. A file of another shape is damaged: see `Files.read_value`."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, TypeAdapter


def _moment(text: str) -> str:
    if datetime.fromisoformat(text).timestamp() <= 0:  # without a time zone, or before 1970
        raise ValueError("is not a time")
    return text


def _dict_of(model: type[BaseModel]) -> TypeAdapter[dict[str, Any]]:
    """The shape of objects that the model accepts. They are read as dicts, with the keys that they have."""

    def checked(values: dict[str, Any]) -> dict[str, Any]:
        model.model_validate(values)
        return values

    return TypeAdapter(Annotated[dict[str, Any], AfterValidator(checked)])


class _Git(BaseModel):
    commit: str = ""
    dirty: bool = False


class _Launch(BaseModel):
    started_at: Annotated[str, AfterValidator(_moment)]
    command: str = ""
    user: str = ""
    host: str = ""
    platform: str = ""
    python: str = ""
    versions: dict[str, str] = {}
    git: _Git | None = None
    data: dict[str, str] | None = None
    rules: dict[str, str] = {}


class _Progress(BaseModel):
    state: str
    cells: int | None = None
    runs: int | None = None
    done: int | None = None
    running: int | None = None
    ended_now: dict[str, int] = {}
    seconds: float | None = None
    seconds_left: Annotated[float, Field(allow_inf_nan=False)] | None = None
    stopped_because: str | None = None
    updated_at: str | None = None
    generation: int = 0


class Checkpoint(BaseModel, frozen=True):
    """The description of a checkpoint, as it is stored."""

    runs: list[str]
    file: Annotated[str, Field(pattern=r"^[^/]+$")] | None = None
    """The file in the same folder; earlier versions did not write it."""


LAYOUT = TypeAdapter(dict[str, int])
LAUNCH = _dict_of(_Launch)
PROGRESS = _dict_of(_Progress)
CHECKPOINT = TypeAdapter(Checkpoint)
