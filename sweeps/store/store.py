"""All sweeps of a store, in a folder or an object store. Only this package knows their paths.

    <store>/store.json                       version of this layout
    <store>/<sweep>/spec.yaml                the resolved spec, as it is now
    <store>/<sweep>/revisions/0001.yaml …    the spec each time it changed
    <store>/<sweep>/launches/<time>.json     provenance of every launch
    <store>/<sweep>/runs|curves|arrays/<generation>-<digest>.parquet
    <store>/<sweep>/checkpoints/<pack>-<generation>.json       the runs in a checkpoint, and the name of its file
    <store>/<sweep>/checkpoints/<pack>-<generation>-<checksum>.pt
    <store>/<sweep>/lease/000007.json        who runs the sweep: see `run.lease`
    <store>/<sweep>/progress/000007.json     how far the driver with this lease is
    <store>/<sweep>/running/runs|curves|arrays/<pack>-<generation>.parquet      runs that train: see `running`
    <store>/<sweep>/weights/<run>.pt         trained weights, if the spec keeps them
    <store>/<sweep>/log.txt                  the messages of every launch
    <store>/<sweep>/set-aside/…              files that could not be read

Workers write the tables' parts: see `parts`. A file appears completely or not at all.
"""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from pyarrow import fs

from mislabel.sweeps.errors import DamagedFileError, MislabelError, SpecError, WrongStoreError, nearest
from mislabel.sweeps.spec.model import Spec, spec_from_stored
from mislabel.sweeps.store.filesystem import CLOCK, PATIENCE_SECONDS, Guard, as_store_errors, opened, short, within
from mislabel.sweeps.store.parts import SCHEMA
from mislabel.sweeps.store.running import Running
from mislabel.sweeps.store.shapes import CHECKPOINT, LAUNCH, LAYOUT, PROGRESS
from mislabel.tasks.files import UNFINISHED

_log = logging.getLogger(__name__)
RESERVED = ("store.json", "mlflow.db", "mlartifacts")
"""Names in a store's folder that a sweep can't have."""


class Store:
    """A folder, or an address such as s3://bucket/path, that contains sweeps."""

    def __init__(self, address: str, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.address = address
        self._fs, self._root = opened(address, patience_seconds)
        self.folder = self._root if self._fs.is_local else None
        """The store's path if it is a folder of this machine, else None."""
        if (version := self._version() or 0) > SCHEMA:
            raise WrongStoreError(
                f"{self.address}: written by a newer Mislabel (layout {version}, this one reads up to {SCHEMA}); "
                "upgrade with pip install --upgrade mislabel"
            )

    def _version(self) -> int | None:
        """The version of the store's layout; None if there is no store."""
        try:
            text = self._fs.get(f"{self._root}/store.json")
            return None if text is None else LAYOUT.validate_json(text)["schema"]
        except (OSError, ValueError, KeyError) as error:
            found = f"{within(self.address, 'store.json')}: is damaged ({short(error)})"
            raise DamagedFileError(f'{found}; it should read {{"schema": {SCHEMA}}}') from None

    def prepare(self) -> None:
        """Create the store if it does not exist. Raises StoreError if it can't be written.

        A store of an older layout gets the present version, so that older versions of Mislabel refuse it.
        """
        with as_store_errors(self.address):
            try:
                if self._version() != SCHEMA:
                    self._fs.put(f"{self._root}/store.json", json.dumps({"schema": SCHEMA}).encode())
                else:
                    self._fs.put(f"{self._root}/.writable", b"")
            except FileNotFoundError:  # removed by another process that prepares the store
                if self._version() != SCHEMA:
                    raise
            self._fs.remove(f"{self._root}/.writable")
            for path in Path(self.folder).glob(UNFINISHED) if self.folder else ():  # left by killed processes
                path.unlink(missing_ok=True)

    def names(self) -> list[str]:
        with as_store_errors(self.address):
            folders = [info for info in self._fs.listed(self._root) if info.type == fs.FileType.Directory]
        return sorted(info.base_name for info in folders if self._fs.is_file(f"{info.path}/spec.yaml"))

    def sweep(self, name: str, generation: int = 0) -> "SweepFiles":
        """The files of a sweep, which need not exist yet. Workers give the generation of their driver's lease."""
        return SweepFiles(self._fs, f"{self._root}/{name}", name, self.address, generation)

    def existing(self, name: str) -> "SweepFiles":
        """The files of a sweep in the store. Raises MislabelError if there is no such sweep."""
        names = self.names()
        if name not in names:
            known = f"it contains {', '.join(names[:20])}{' …' if len(names) > 20 else ''}" if names else "it is empty"
            hint = nearest(name, names) or f"; {known}"
            raise MislabelError(f"{name!r} is not a sweep of the store {self.address}{hint}")
        return self.sweep(name)


class SweepFiles(Running):
    def with_patience(self, seconds: float) -> "SweepFiles":
        """The same files, with another time limit for retries while the store can't be reached."""
        return SweepFiles(self._fs.with_patience(seconds), self._root, self.name, self.store, self.generation)

    def held(self, generation: int, guard: Guard) -> "SweepFiles":
        """The same files, written under a lease. The guard is called before every write."""
        return SweepFiles(self._fs.guarded(guard), self._root, self.name, self.store, generation)

    def sibling(self, name: str) -> "SweepFiles":
        """The files of another sweep of the store, to be read."""
        return SweepFiles(self._fs.guarded(lambda: None), f"{self._root.rpartition('/')[0]}/{name}", name, self.store)

    def revise_spec(self, text: str) -> None:
        """Store this as the sweep's spec, and as a revision if it differs from the last one.

        A revision is named by the generation that wrote it, so that drivers never overwrite each other's.
        """
        if self.read_text("spec.yaml") == text:
            return
        number = self.generation or len(self.names("revisions")) + 1
        self.write_text(f"revisions/{number:04}.yaml", text)
        self.write_text("spec.yaml", text)

    def restore_spec(self) -> None:
        """Make spec.yaml equal to the last revision. A driver that was killed or replaced may have left another one."""
        file = self._last_revision()
        with suppress(DamagedFileError):
            if file is not None and self._spec(file) and self._raw(file) != self._raw("spec.yaml"):
                self.write("spec.yaml", self._raw(file) or b"")

    def spec(self) -> Spec | None:
        """The sweep's spec; None if the sweep does not exist. If spec.yaml is damaged, the last revision counts."""
        try:
            return self._spec("spec.yaml")
        except DamagedFileError as error:
            file = self._last_revision()
            with suppress(DamagedFileError):
                if file is not None and (spec := self._spec(file)):
                    _log.warning("%s is damaged: %s counts instead", self.shown("spec.yaml"), file)
                    return spec
            advice = "write the spec of the sweep there; its runs are not affected"
            raise DamagedFileError(f"{error}; {advice}") from None

    def _spec(self, file: str) -> Spec | None:
        text = self.read_text(file)
        try:
            return None if text is None else spec_from_stored(text)
        except (SpecError, ValueError) as error:
            raise DamagedFileError(f"{self.shown(file)}: is damaged ({short(error)})") from None

    def _last_revision(self) -> str | None:
        numbers = {int(stem): name for name in self.names("revisions") if (stem := PurePath(name).stem).isdecimal()}
        return f"revisions/{numbers[max(numbers)]}" if numbers else None

    def _raw(self, file: str) -> bytes | None:
        """The content of the file; None if it does not exist or is a folder."""
        try:
            return self.read_bytes(file)
        except DamagedFileError:
            return None

    def launches(self) -> list[dict[str, Any]]:
        """Provenance of every launch, oldest first."""
        return [launch for name in self.names("launches") if (launch := self.launch(name))]

    def launch(self, name: str) -> dict[str, Any] | None:
        return self.read_value(f"launches/{name}", LAUNCH)

    def write_progress(self, values: Mapping[str, Any]) -> None:
        """Store the driver's progress. Each generation has its own file, so that a replaced driver hides nothing."""
        self.write_json(f"progress/{self.generation:06}.json", {**values, "generation": self.generation})

    def progress(self) -> dict[str, Any]:
        """The progress that the last driver stored; empty if none did."""
        names = [f"progress/{name}" for name in reversed(self.names("progress"))]
        for name in (*names, "progress.json"):  # earlier versions wrote progress.json
            if found := self.read_value(name, PROGRESS):
                return found
        return {}

    def forget_earlier_progress(self) -> None:
        for name in self.names("progress"):
            if name < f"{self.generation:06}.json":
                self.remove(f"progress/{name}")
        self.remove("progress.json")

    def save_checkpoint(self, pack: str, data: bytes, run_ids: Sequence[str]) -> None:
        """Store the state of a pack's runs, and then a description that names the file and the runs in it.

        The file's name contains a checksum. So a crash in between leaves the description of the earlier file.
        """
        stem = f"{pack}-{self.generation:06}"
        file = f"{stem}-{_digest(data)}.pt"
        before = self._description(f"{stem}.json")
        self.write(f"checkpoints/{file}", data)
        self.write_json(f"checkpoints/{stem}.json", {"runs": list(run_ids), "file": file})
        if before is not None and before.file != file:
            self.remove(f"checkpoints/{before.file}")

    def load_checkpoint(self, pack: str) -> bytes | None:
        """The stored state of the pack's runs; None if there is none, or if it is damaged."""
        found = self._checkpoint(pack)
        data = self._raw(f"checkpoints/{found.file}") if found is not None else None
        if found is None or data is None:
            return None
        _, _, digest = PurePath(found.file).stem.rpartition("-")
        return data if "-" not in found.file or digest == _digest(data) else None

    def checkpoints(self) -> Iterator[tuple[str, list[str]]]:
        """Every pack with a checkpoint, and the runs in it."""
        names = self.names("checkpoints")
        for pack in sorted({name.partition("-")[0].removesuffix(".json") for name in names if name.endswith(".json")}):
            found = self._checkpoint(pack, names)
            if found is not None and found.file in names and found.runs:
                yield pack, found.runs

    def checkpointed(self, pack: str) -> list[str]:
        """The runs in the pack's checkpoint; empty if there is none."""
        found = self._checkpoint(pack)
        return [] if found is None else found.runs

    def drop_checkpoint(self, pack: str) -> None:
        """Remove the pack's checkpoints of this generation and of all earlier ones."""
        # Descriptions go before the files that they name.
        for name in sorted(self.names("checkpoints"), key=lambda name: name.endswith(".pt")):
            if name.partition("-")[0].partition(".")[0] == pack and _generation(name) <= self.generation:
                self.remove(f"checkpoints/{name}")

    def _checkpoint(self, pack: str, names: Sequence[str] | None = None) -> "_Checkpoint | None":
        """The description of the pack's checkpoint of the highest generation."""
        names = self.names("checkpoints") if names is None else names
        own = [name for name in names if name.endswith(".json") and name.partition("-")[0].partition(".")[0] == pack]
        for name in sorted(own, key=_generation, reverse=True):
            if (found := self._description(name)) is not None:
                return found
        return None

    def _description(self, name: str) -> "_Checkpoint | None":
        if not name.endswith(".json"):
            return None
        found = self.read_value(f"checkpoints/{name}", CHECKPOINT)
        return None if found is None else _Checkpoint(found.runs, found.file or f"{PurePath(name).stem}.pt")

    def remove_leftovers(self) -> None:
        """Remove files that nobody needs. Call this at the start of a generation, before its workers write.

        That is: replaced and unfinished parts, rows of running runs that have ended, incomplete checkpoints, and
        unfinished files of killed writers.
        """
        self.remove_replaced()
        self.drop_ended_running()
        names = self.names("checkpoints")
        described = {name: found.file for name in names if (found := self._description(name)) is not None}
        for name in names:
            is_described = described[name] in names if name in described else name in described.values()
            if not is_described and _generation(name) < max(1, self.generation):
                self.remove(f"checkpoints/{name}")
        for pattern in (UNFINISHED, f"{CLOCK}*") if self.is_local else ():
            for path in Path(self._root).rglob(pattern):
                path.unlink(missing_ok=True)

    def save_weights(self, run: str, data: bytes) -> None:
        self.write(f"weights/{run}.pt", data)

    def load_weights(self, run: str) -> bytes | None:
        return self.read_bytes(f"weights/{run}.pt")

    def runs_with_weights(self) -> list[str]:
        return [name.removesuffix(".pt") for name in self.names("weights")]


@dataclass(frozen=True)
class _Checkpoint:
    runs: list[str]
    file: str


def _generation(name: str) -> int:
    """The generation in the name of a checkpoint's file: <pack>-<generation>…; earlier versions had none."""
    number = PurePath(name).stem.split("-")[1:2]
    return int(number[0]) if number and number[0].isdecimal() else 0


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
