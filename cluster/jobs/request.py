"""Requests of a client to a cluster, as the metadata of a job: a spec's text, or one of a few commands.

Nothing in a request is run, imported or unpickled. The head checks every request again, and reads the spec with the
same strict reader as files.
"""

import json
import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mislabel.sweeps.errors import MislabelError
from mislabel.sweeps.spec.document import read_document
from mislabel.sweeps.spec.model import LONGEST_NAME, NAME

COMMANDS = ("list", "status", "results", "compare", "stop", "cluster status")
"""Commands that clients may run on the head."""
# The metadata is one environment variable, which Linux limits to 128 KiB.
LARGEST_BYTES = 96 << 10
_FORM = "1"
_OWNER = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_ID = re.compile(r"[A-Za-z0-9_.-]{1,120}")
_PRIORITIES = range(-100, 101)


@dataclass(frozen=True)
class SweepRequest:
    """Run the sweep of this spec."""

    kind: ClassVar[str] = "sweep"
    name: str
    spec: str
    owner: str
    priority: int = 0
    retry_failed: bool = False

    def metadata(self) -> dict[str, str]:
        own = {"sweep": self.name, "spec": self.spec, "owner": self.owner, "priority": str(self.priority)}
        return _checked({**own, "retry": "yes" if self.retry_failed else "no"}, self.kind)


@dataclass(frozen=True)
class CommandRequest:
    """Run a Mislabel command on the head, and return its output."""

    kind: ClassVar[str] = "command"
    words: tuple[str, ...]

    def metadata(self) -> dict[str, str]:
        return _checked({"words": json.dumps(self.words)}, self.kind)


@dataclass(frozen=True)
class FactsRequest:
    """Return Ray's address and the head's versions."""

    kind: ClassVar[str] = "facts"

    def metadata(self) -> dict[str, str]:
        return _checked({}, self.kind)


Request = SweepRequest | CommandRequest | FactsRequest


def new_id(name: str) -> str:
    """A unique id for a job of this sweep."""
    return f"{name[:60]}-{secrets.token_hex(4)}"


def _checked(values: Mapping[str, str], kind: str) -> dict[str, str]:
    metadata = {"mislabel": _FORM, "kind": kind, **values}
    size = len(json.dumps(metadata))
    if size > LARGEST_BYTES:
        raise MislabelError(
            f"the spec has {size:,} bytes, the limit is {LARGEST_BYTES:,}; a range (min, max, points) is "
            "shorter than a list of values"
        )
    request_from_metadata(metadata)
    return metadata


def request_from_metadata(metadata: Mapping[str, str]) -> Request:
    """Read the request; MislabelError if it is not valid."""
    if not all(isinstance(value, str) for value in metadata.values()) or metadata.get("mislabel") != _FORM:
        raise MislabelError("this job was sent by another version of Mislabel; install the cluster's version")
    match metadata.get("kind"):
        case "sweep":
            return _sweep(metadata)
        case "command":
            return CommandRequest(_words(metadata.get("words", "")))
        case "facts":
            return FactsRequest()
        case kind:
            raise MislabelError(f"{kind!r} is not a kind of request")


def _sweep(metadata: Mapping[str, str]) -> SweepRequest:
    name, owner, priority = (metadata.get(key, "") for key in ("sweep", "owner", "priority"))
    spec = metadata.get("spec", "")
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise MislabelError(f"{name!r} is not a valid name of a sweep")
    if read_document(spec, "spec").values.get("name") != name:
        raise MislabelError(f"this is not the spec of {name}")
    if not _OWNER.fullmatch(owner):
        raise MislabelError(f"{owner!r} is not a valid name of an owner; use at most 64 letters, digits, and _.@-")
    if not re.fullmatch(r"-?\d{1,3}", priority) or int(priority) not in _PRIORITIES:
        raise MislabelError(f"{priority!r} is not a priority from -100 to 100")
    return SweepRequest(name, spec, owner, int(priority), metadata.get("retry") == "yes")


def _words(text: str) -> tuple[str, ...]:
    try:
        words = json.loads(text)
    except ValueError:
        words = None
    if not isinstance(words, list) or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise MislabelError("a command is a list of words")
    refuse_command(words)
    return tuple(words)


def refuse_command(words: Sequence[str]) -> None:
    """MislabelError if clients may not run this command."""
    allowed = [command for command in COMMANDS if list(words[: len(command.split())]) == command.split()]
    if not allowed:
        raise MislabelError(
            f"{' '.join(words[:2])!r} is not a command for clusters; the commands are {', '.join(COMMANDS)}"
        )
    for word in words:
        if word.split("=")[0] in ("--store", "--mlflow", "--cluster", "--token-file"):
            raise MislabelError(f"{word.split('=')[0]} can't be used with --cluster: the cluster has its own")


def is_id(text: str) -> bool:
    """Whether this is a valid job id, which is safe as a file name."""
    return bool(_ID.fullmatch(text)) and not text.startswith(".")
