"""Small files in one folder of a store: bytes, text and JSON, by their names in it."""

import json
from typing import Any

from pyarrow import fs

from mislabel.sweeps.store.filesystem import FileSystem, as_store_errors


class Files:
    def __init__(self, filesystem: FileSystem, root: str, address: str) -> None:
        self._fs = filesystem
        self._root = root
        self.address = address
        """Where the folder is, as a user would write it."""

    def read_bytes(self, file: str) -> bytes | None:
        """What is in the file, or None where there is no such file."""
        return self._fs.get(f"{self._root}/{file}")

    def write(self, file: str, data: bytes) -> None:
        with as_store_errors(self.address):
            self._fs.put(f"{self._root}/{file}", data)

    def read_text(self, file: str) -> str | None:
        data = self.read_bytes(file)
        return None if data is None else data.decode()

    def write_text(self, file: str, text: str) -> None:
        self.write(file, text.encode())

    def read_json(self, file: str) -> Any:
        """The file's value, or None where there is no such file or it is damaged."""
        try:
            text = self.read_text(file)
            return None if text is None else json.loads(text)
        except ValueError:
            return None

    def write_json(self, file: str, value: Any) -> None:
        self.write_text(file, json.dumps(value, indent=1))

    def remove(self, file: str) -> None:
        self._fs.remove(f"{self._root}/{file}")

    def names(self, folder: str) -> list[str]:
        """Names of the files in a folder within this one, in order."""
        found = self._fs.listed(f"{self._root}/{folder}")
        return sorted(i.base_name for i in found if i.type == fs.FileType.File and not i.base_name.startswith("."))
