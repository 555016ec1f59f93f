"""The files of one sweep: every file of a store is read and written here.

Errors name the file, whatever is wrong with it: a content that can't be used, a folder where a file should be, or a
file system that fails.
"""

import json
import logging
import os
import time
from contextlib import suppress
from typing import Any, TypeVar

from pyarrow import fs
from pydantic import TypeAdapter, ValidationError

from mislabel.sweeps.errors import DamagedFileError, StoreError
from mislabel.sweeps.store.filesystem import FileSystem, as_store_errors, short, within

T = TypeVar("T")
_log = logging.getLogger(__name__)
_ANY: TypeAdapter[Any] = TypeAdapter(Any)


class Files:
    """The folder of one sweep. File names are relative to it."""

    def __init__(self, filesystem: FileSystem, root: str, name: str, store: str, generation: int = 0) -> None:
        """`name` is the sweep's name; `store` is the address of the store."""
        self.generation = generation
        """The generation of the lease under which these files are written: see `run.lease`. Readers have 0."""
        self._fs = filesystem
        self._root = root
        self.name = name
        self.store = store
        self.address = within(store, name)
        """The folder's address, as a user would write it."""
        self.is_local = filesystem.is_local
        self._reported: set[str] = set()

    def shown(self, file: str) -> str:
        """The file's address, as a user would write it."""
        return within(self.address, file)

    def read_bytes(self, file: str) -> bytes | None:
        """The file's content, or None if it does not exist. Raises StoreError with its address if it can't be read."""
        path = f"{self._root}/{file}"
        try:
            return self._fs.get(path)
        except OSError as error:
            kind = DamagedFileError if self._fs.is_folder(path) else StoreError
            raise kind(f"{self.shown(file)}: can't be read ({short(error)})") from None

    def write(self, file: str, data: bytes) -> None:
        with as_store_errors(self.address, self.shown(file)):
            self._fs.put(f"{self._root}/{file}", data)

    def create(self, file: str, data: bytes) -> bool:
        """Write the file unless it exists; returns whether it was written."""
        with as_store_errors(self.address):
            return self._fs.create(f"{self._root}/{file}", data)

    def age_seconds(self, file: str) -> float | None:
        """The time since the file was written, by the storage's own clock; None if there is no such file."""
        with as_store_errors(self.address):
            return self._fs.age_seconds(f"{self._root}/{file}")

    def apparent_age_seconds(self, file: str) -> float | None:
        """The time since the file was written, by this machine's clock; None if there is no such file."""
        with as_store_errors(self.address):
            written = self._fs.modified(f"{self._root}/{file}")
        return None if written is None else time.time() - written

    def read_text(self, file: str) -> str | None:
        data = self.read_bytes(file)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError:
            raise DamagedFileError(f"{self.shown(file)}: is not UTF-8 text") from None

    def write_text(self, file: str, text: str) -> None:
        self.write(file, text.encode())

    def append_text(self, file: str, text: str) -> None:
        """Append to the file. An object store has to read and write all of it."""
        if self.is_local:
            self._fs.guard()
            with as_store_errors(self.address, self.shown(file)), open(f"{self._root}/{file}", "a") as stream:
                stream.write(text)
        else:
            self.write_text(file, (self.read_text(file) or "") + text)

    def read_json(self, file: str) -> Any:
        """The file's value, or None if it does not exist or is damaged."""
        return self.read_value(file, _ANY)

    def read_value(self, file: str, shape: TypeAdapter[T]) -> T | None:
        """The file's JSON value, which has this shape; None if the file does not exist.

        A damaged file is reported once, and then treated as if it did not exist: the runs do not depend on it.
        """
        try:
            data = self.read_bytes(file)
            return None if data is None else shape.validate_json(data)
        except (DamagedFileError, ValidationError) as error:
            if file not in self._reported:
                _log.warning("%s is damaged and ignored: %s", self.shown(file), short(error))
            self._reported.add(file)
            return None

    def write_json(self, file: str, value: Any) -> None:
        self.write_text(file, json.dumps(value, indent=1))

    def remove(self, file: str) -> None:
        with as_store_errors(self.address, self.shown(file)):
            self._fs.remove(f"{self._root}/{file}")

    def remove_empty_folders(self, folder: str) -> None:
        """Remove a subfolder and then the sweep's folder, if they are empty. Object stores have no folders."""
        for path in (f"{self._root}/{folder}", self._root) if self.is_local else ():
            with suppress(OSError):
                os.rmdir(path)

    def names(self, folder: str) -> list[str]:
        """Names of the files in a subfolder, sorted."""
        with as_store_errors(self.address, self.shown(folder)):
            found = self._fs.listed(f"{self._root}/{folder}")
        return sorted(i.base_name for i in found if i.type == fs.FileType.File and not i.base_name.startswith("."))
