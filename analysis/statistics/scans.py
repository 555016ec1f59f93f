"""The Parquet files that have a table's rows, as pyarrow datasets.

The store decides which files and rows count. The classes here change only how these are scanned.
"""

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from mislabel.sweeps.store.store import SweepFiles

if TYPE_CHECKING:
    import pyarrow.dataset as ds


class Scans(SweepFiles):
    """The files of a sweep, to be read."""

    def __init__(self, files: SweepFiles) -> None:
        super().__init__(files._fs, files._root, files.name, files.store, files.generation)
        self._manifests = files._manifests

    def _dataset(
        self, table: str, parts: Sequence[str], schema: pa.Schema, encoded: Collection[str] = ()
    ) -> "ds.Dataset":
        """The dataset of these parts. Texts of `encoded` columns are read as numbers in a dictionary."""
        import pyarrow.dataset as ds

        for name in encoded:
            kind = pa.dictionary(pa.int32(), pa.string())
            schema = schema.set(schema.get_field_index(name), pa.field(name, kind))
        checked = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        parquet = ds.ParquetFileFormat(dictionary_columns=set(encoded), default_fragment_scan_options=checked)
        paths = [self._part(table, part) for part in parts]
        return ds.dataset(paths, schema=schema, filesystem=self._fs.arrow, format=parquet)


class EncodedTables(Scans):
    """Reads run ids as numbers in a dictionary.

    As texts, the run ids of ten million rows take longer to read than everything else, and most of the memory.
    """

    def __init__(self, files: SweepFiles, near: Any = None) -> None:
        """`near` is a pyarrow expression: row groups are not read if their statistics show that no row satisfies it.

        Rows of other row groups are returned whether they satisfy it or not: comparing texts takes longer than reading.
        """
        super().__init__(files)
        self._near = near

    def _scanned(
        self, table: str, parts: Sequence[str], schema: pa.Schema, columns: Sequence[str] | None, where: Any = None
    ) -> pa.Table:
        def scanned() -> pa.Table:
            dataset = self._nearby(self._dataset(table, parts, schema, encoded=["run_id"]))
            return dataset.to_table(columns=columns and list(columns), filter=where)

        def damaged() -> str:
            return next((self._part(table, part) for part in parts if self._unreadable(table, part, True)), self._root)

        with self._damage_as_store_errors(damaged):
            return self._fs.with_retries(scanned)

    def _nearby(self, dataset: "ds.Dataset") -> "ds.Dataset":
        import pyarrow.dataset as ds

        if self._near is None:
            return dataset
        fragments = [fragment.subset(self._near, schema=dataset.schema) for fragment in dataset.get_fragments()]
        kept = [fragment for fragment in fragments if fragment.row_groups]
        return ds.FileSystemDataset(kept, dataset.schema, dataset.format, filesystem=self._fs.arrow)


class ScanPlan(Scans):
    """Returns what the store would scan, instead of scanning it."""

    def datasets(self, table: str) -> "list[ds.Dataset]":
        """The datasets whose rows are those of the table, each run once."""
        self.read(table)
        return self._planned

    def _read(self, table: str, columns: Sequence[str] | None, where: Any, each_run_once: bool) -> pa.Table:
        self._planned: list[ds.Dataset] = []
        return super()._read(table, columns, where, each_run_once)

    def _scanned(
        self, table: str, parts: Sequence[str], schema: pa.Schema, columns: Sequence[str] | None, where: Any = None
    ) -> pa.Table:
        dataset = self._dataset(table, parts, schema)
        self._planned.append(dataset if where is None else dataset.filter(where))
        return schema.empty_table()
