"""All sweeps of a store, in a folder or an object store. Only this package knows their paths.

    <store>/store.json                       version of this layout
    <store>/<sweep>/spec.yaml                the resolved spec, as it is now
    <store>/<sweep>/revisions/0001.yaml …    the spec each time it changed
    <store>/<sweep>/launches/<time>.json     provenance of every launch
    <store>/<sweep>/runs|curves|arrays/<part>.parquet
    <store>/<sweep>/checkpoints/<pack>.pt    and <pack>.json, the runs in it
    <store>/<sweep>/weights/<run>.pt         trained weights, if the spec keeps them
    <store>/<sweep>/log.txt                  the messages of every launch
    <store>/<sweep>/set-aside/…              files that could not be read

Workers write the tables' parts: see `tables`. A file appears completely or not at all.
"""

import json
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from pyarrow import fs

from mislabel.sweeps.errors import MislabelError, StoreError, WrongStoreError, nearest
from mislabel.sweeps.store.filesystem import PATIENCE_SECONDS, as_store_errors, opened
from mislabel.sweeps.store.tables import SCHEMA, Tables

RESERVED = ("store.json", "mlflow.db", "mlartifacts")
"""Names in a store's folder that a sweep can't have."""


class Store:
    """A folder, or an address such as s3://bucket/path, that contains sweeps."""

    def __init__(self, address: str, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.address = address
        self._fs, self._root = opened(address, patience_seconds)
        self.folder = self._root if self._fs.is_local else None
        """The store's path if it is a folder of this machine, else None."""
        text = self._fs.get(f"{self._root}/store.json")
        if text is None:
            return
        try:
            version = int(json.loads(text)["schema"])
        except (ValueError, KeyError, TypeError):
            raise StoreError(f'{self.address}/store.json: is damaged; it should read {{"schema": {SCHEMA}}}') from None
        if version > SCHEMA:
            raise WrongStoreError(
                f"{self.address}: written by a newer Mislabel (layout {version}, this one reads up to {SCHEMA}); "
                "upgrade with pip install --upgrade mislabel"
            )

    def prepare(self) -> None:
        """Create the store if it does not exist. Raises StoreError if it can't be written."""
        with as_store_errors(self.address):
            if self._fs.get(f"{self._root}/store.json") is None:
                self._fs.put(f"{self._root}/store.json", json.dumps({"schema": SCHEMA}).encode())
            else:
                probe = f"{self._root}/.writable-{uuid.uuid4().hex}"
                self._fs.put(probe, b"")
                self._fs.remove(probe)

    def names(self) -> list[str]:
        with as_store_errors(self.address):
            folders = [info for info in self._fs.listed(self._root) if info.type == fs.FileType.Directory]
        return sorted(info.base_name for info in folders if self._fs.is_file(f"{info.path}/spec.yaml"))

    def sweep(self, name: str) -> "SweepFiles":
        """The files of a sweep, which need not exist yet."""
        return SweepFiles(self._fs, f"{self._root}/{name}", name, self.address)

    def existing(self, name: str) -> "SweepFiles":
        """The files of a sweep in the store. Raises MislabelError if there is no such sweep."""
        names = self.names()
        if name not in names:
            known = f"it contains {', '.join(names[:20])}{' …' if len(names) > 20 else ''}" if names else "it is empty"
            hint = nearest(name, names) or f"; {known}"
            raise MislabelError(f"{name!r} is not a sweep of the store {self.address}{hint}")
        return self.sweep(name)


class SweepFiles(Tables):
    def with_patience(self, seconds: float) -> "SweepFiles":
        """The same files, with another time limit for retries while the store can't be reached."""
        return SweepFiles(self._fs.with_patience(seconds), self._root, self.name, self.store)

    def sibling(self, name: str) -> "SweepFiles":
        return SweepFiles(self._fs, f"{self._root.rpartition('/')[0]}/{name}", name, self.store)

    def revise_spec(self, text: str) -> None:
        """Store this as the sweep's spec, and as a revision if it differs from the last one."""
        if self.read_text("spec.yaml") == text:
            return
        number = len(self.names("revisions")) + 1
        self.write_text(f"revisions/{number:04}.yaml", text)
        self.write_text("spec.yaml", text)

    def launches(self) -> list[dict[str, Any]]:
        """Provenance of every launch, oldest first."""
        return [launch for name in self.names("launches") if (launch := self.read_json(f"launches/{name}"))]

    def save_checkpoint(self, pack: str, data: bytes, run_ids: Sequence[str]) -> None:
        self.write(f"checkpoints/{pack}.pt", data)
        self.write_json(f"checkpoints/{pack}.json", {"runs": list(run_ids)})

    def load_checkpoint(self, pack: str) -> bytes | None:
        return self.read_bytes(f"checkpoints/{pack}.pt")

    def checkpoints(self) -> Iterator[tuple[str, list[str]]]:
        names = self.names("checkpoints")
        for pack in (name.removesuffix(".json") for name in names if name.endswith(".json")):
            if f"{pack}.pt" in names and (runs := self.checkpointed(pack)):
                yield pack, runs

    def checkpointed(self, pack: str) -> list[str]:
        """The runs in the pack's checkpoint; empty if there is none."""
        return list((self.read_json(f"checkpoints/{pack}.json") or {"runs": ()})["runs"])

    def drop_checkpoint(self, pack: str) -> None:
        self.remove(f"checkpoints/{pack}.json")
        self.remove(f"checkpoints/{pack}.pt")

    def save_weights(self, run: str, data: bytes) -> None:
        self.write(f"weights/{run}.pt", data)

    def load_weights(self, run: str) -> bytes | None:
        return self.read_bytes(f"weights/{run}.pt")

    def runs_with_weights(self) -> list[str]:
        return [name.removesuffix(".pt") for name in self.names("weights")]
