"""Read and write small files in one folder of a store: bytes, text and JSON."""

import json
from typing import Any

from pyarrow import fs

from mislabel.sweeps.store.filesystem import FileSystem, as_store_errors, within


class Files:
    """The folder of one sweep. File names are relative to it."""

    def __init__(self, filesystem: FileSystem, root: str, name: str, store: str) -> None:
        """`name` is the sweep's name; `store` is the address of the store."""
        self._fs = filesystem
        self._root = root
        self.name = name
        self.store = store
        self.address = within(store, name)
        """The folder's address, as a user would write it."""
        self.is_local = filesystem.is_local
        """Whether this is a folder of this machine."""

    def read_bytes(self, file: str) -> bytes | None:
        """The file's content, or None if it does not exist."""
        return self._fs.get(f"{self._root}/{file}")

    def write(self, file: str, data: bytes) -> None:
        with as_store_errors(self.address):
            self._fs.put(f"{self._root}/{file}", data)

    def read_text(self, file: str) -> str | None:
        data = self.read_bytes(file)
        return None if data is None else data.decode()

    def write_text(self, file: str, text: str) -> None:
        self.write(file, text.encode())

    def append_text(self, file: str, text: str) -> None:
        """Append to the file. An object store has to read and write all of it."""
        if self.is_local:
            with as_store_errors(self.address), open(f"{self._root}/{file}", "a") as stream:
                stream.write(text)
        else:
            self.write_text(file, (self.read_text(file) or "") + text)

    def read_json(self, file: str) -> Any:
        """The file's value, or None if it does not exist or is damaged."""
        try:
            return json.loads(self.read_bytes(file) or b"null")
        except ValueError:
            return None

    def write_json(self, file: str, value: Any) -> None:
        self.write_text(file, json.dumps(value, indent=1))

    def remove(self, file: str) -> None:
        self._fs.remove(f"{self._root}/{file}")

    def names(self, folder: str) -> list[str]:
        """Names of the files in a subfolder, sorted."""
        with as_store_errors(self.address):
            found = self._fs.listed(f"{self._root}/{folder}")
        return sorted(i.base_name for i in found if i.type == fs.FileType.File and not i.base_name.startswith("."))
