"""What a client may ask of a cluster, as the metadata of a job: a spec's text, or a command of a short list.

Nothing in it is run, imported or unpickled. The head checks it again, whoever has sent it, and the spec is read by the
strict reader that reads files.
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

COMMANDS = ("list", "status", "results", "stop", "cluster status")
"""Commands that a client may have run on the head."""
# All of it is one variable of an environment, of which Linux takes 128 KiB.
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
    """Run a command of ours on the head, and send back what it says."""

    kind: ClassVar[str] = "command"
    words: tuple[str, ...]

    def metadata(self) -> dict[str, str]:
        return _checked({"words": json.dumps(self.words)}, self.kind)


@dataclass(frozen=True)
class FactsRequest:
    """Say where Ray is, and which versions the head has."""

    kind: ClassVar[str] = "facts"

    def metadata(self) -> dict[str, str]:
        return _checked({}, self.kind)


Request = SweepRequest | CommandRequest | FactsRequest


def new_id(name: str) -> str:
    """Of a job: the sweep's name with something that no other job has."""
    return f"{name[:60]}-{secrets.token_hex(4)}"


def _checked(values: Mapping[str, str], kind: str) -> dict[str, str]:
    metadata = {"mislabel": _FORM, "kind": kind, **values}
    size = len(json.dumps(metadata))
    if size > LARGEST_BYTES:
        raise MislabelError(
            f"{size:,} bytes are too much to send, {LARGEST_BYTES:,} is the most; a range (min, max, points) is "
            "shorter than a list of values"
        )
    request_from_metadata(metadata)
    return metadata


def request_from_metadata(metadata: Mapping[str, str]) -> Request:
    """What was asked for; MislabelError where it is not in the form."""
    if not all(isinstance(value, str) for value in metadata.values()) or metadata.get("mislabel") != _FORM:
        raise MislabelError("this job was sent by another version of Mislabel; install the cluster's")
    match metadata.get("kind"):
        case "sweep":
            return _sweep(metadata)
        case "command":
            return CommandRequest(_words(metadata.get("words", "")))
        case "facts":
            return FactsRequest()
        case kind:
            raise MislabelError(f"{kind!r} is not something that can be asked of a cluster")


def _sweep(metadata: Mapping[str, str]) -> SweepRequest:
    name, owner, priority = (metadata.get(key, "") for key in ("sweep", "owner", "priority"))
    spec = metadata.get("spec", "")
    if not NAME.fullmatch(name) or len(name) > LONGEST_NAME:
        raise MislabelError(f"{name!r} is not a name of a sweep")
    if read_document(spec, "spec").values.get("name") != name:
        raise MislabelError(f"this is not the spec of {name}")
    if not _OWNER.fullmatch(owner):
        raise MislabelError(f"{owner!r} is not a name of an owner; use at most 64 letters, digits, and _.@-")
    if not re.fullmatch(r"-?\d{1,3}", priority) or int(priority) not in _PRIORITIES:
        raise MislabelError(f"{priority!r} is not a priority; it goes from -100 to 100")
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
    """MislabelError where these are not the words of a command that may be run for a client."""
    allowed = [command for command in COMMANDS if list(words[: len(command.split())]) == command.split()]
    if not allowed:
        raise MislabelError(f"{' '.join(words[:2])!r} can't be asked of a cluster; there are {', '.join(COMMANDS)}")
    for word in words:
        if word.split("=")[0] in ("--store", "--mlflow", "--cluster", "--token-file"):
            raise MislabelError(f"{word.split('=')[0]} can't be given with --cluster: a cluster has its own")


def is_id(text: str) -> bool:
    """Whether this can be a job's id, and so part of a path."""
    return bool(_ID.fullmatch(text)) and not text.startswith(".")
