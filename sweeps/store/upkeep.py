"""Keep the tables of a sweep small and intact: merge parts, remove replaced ones, and set damaged ones aside.

A merge writes a part that replaces others, and deletes nothing. A driver that was paused and replaced may still do so
while its successor reads. `remove_replaced` deletes replaced parts one generation later.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from mislabel.sweeps.store.filesystem import as_store_errors, short
from mislabel.sweeps.store.parts import TABLES, Part, generation_of
from mislabel.sweeps.store.tables import Listing, Tables, age, filled, superseded_runs, without
from mislabel.tasks.parameters import Value

Problems = Mapping[str, str]
"""What is wrong with the files of a part, by table."""
# Parts are merged until they have about this size.
_PART_BYTES = 128 << 20


class Upkeep(Tables):
    def write_earlier_values(self, earlier: Mapping[str, Value]) -> None:
        """Write the earlier values into all rows of `runs` that lack them, so that every reader sees them."""
        if not earlier:
            return
        listing = self._listing()
        rows = self._rows_by_part(listing["runs"], list(earlier))
        for name, part in self._counting(listing).items():
            has_all = set(earlier) <= set(rows[name].column_names)
            if not has_all or any(rows[name][column].null_count for column in earlier):
                self._merge([part], {}, earlier)

    def compact(self) -> None:
        """Merge small parts, and rewrite parts with rows that another part has too.

        The new parts replace the old ones, which stay until `remove_replaced`.
        """
        listing = self._listing()
        rows = self._rows_by_part(listing["runs"])
        parts = self._counting(listing)
        superseded = superseded_runs({name: rows[name] for name in parts})
        groups: list[list[Part]] = [[]]
        # In the order of their runs: names depend on the time of training, and rows should not.
        for part in sorted(parts.values(), key=lambda part: min(rows[part.name]["run_id"].to_pylist(), default="")):
            if part.bytes < _PART_BYTES or part.name in superseded:
                if sum(other.bytes for other in groups[-1]) + part.bytes > _PART_BYTES:
                    groups.append([])
                groups[-1].append(part)
        for group in groups:
            if len(group) > 1 or any(part.name in superseded for part in group):
                self._merge(group, superseded)

    def remove_replaced(self) -> None:
        """Delete parts that parts of earlier generations replace, and unfinished parts of earlier generations."""
        listing = self._listing()
        parts = self._all_parts(listing)
        complete = [part for part in parts.values() if not part.missing and self._is_earlier(part.name)]
        replaced = {name for part in complete for name in part.replaces} | self._incomplete_copies(parts)
        with as_store_errors(self.address):
            for table in reversed(TABLES):  # `runs` first: without it, the rest of the part counts as unfinished
                unfinished = {name for name in listing[table] if name not in parts and self._is_earlier(name)}
                gone = sorted((replaced | unfinished) & listing[table].keys(), key=age)
                self._fs.each(self._fs.remove, [self._part(table, name) for name in gone])

    def damage(self, whole: bool, checked: Callable[[int, int], None] = lambda done, of: None) -> dict[str, str]:
        """By address, what is wrong with files of parts that are missing, changed, or belong to another part.

        A listing shows files that are missing or have another size. `whole` means to read all files and compare their
        checksums. Damage of replaced parts is left out. `checked` is called with the number of checked parts.
        """
        return self._by_address(self._damage(whole, checked))

    def _by_address(self, found: Mapping[str, Problems]) -> dict[str, str]:
        return {
            self._shown(self._part(table, name)): problem
            for name, problems in found.items()
            for table, problem in problems.items()
        }

    def _damage(self, whole: bool, checked: Callable[[int, int], None] = lambda done, of: None) -> dict[str, Problems]:
        """Damage by part and table."""
        self._manifests.clear()
        listing = self._listing()
        names = sorted(listing["runs"], key=age)
        count = itertools.count(1)

        def problems(name: str) -> Problems:
            found = self._problems(name, listing, whole)
            checked(next(count), len(names))
            return found

        found = dict(zip(names, self._fs.each(problems, names), strict=True))
        parts = {name: self._part_of(name, listing) for name in names if "runs" not in found[name]}
        unneeded = {name for part in names if not found[part] for name in parts[part].replaces}
        unneeded |= self._incomplete_copies(parts)
        damaged = {name: problems for name, problems in found.items() if problems and name not in unneeded}
        # Another process may have merged and removed parts since they were listed.
        left = self._listing()["runs"] if damaged else {}
        return {name: problems for name, problems in damaged.items() if name in left}

    def set_damaged_aside(self) -> dict[str, str]:
        """Move damaged parts out of the tables, all files of a part together; returns what is wrong, by damaged file.

        The next plan counts their runs as missing and runs them again. In a folder we compare checksums. Object stores
        verify contents themselves, so there we only do so if sizes or footers show that something is wrong.
        """
        found = self._damage(whole=self.is_local)
        if found and not self.is_local:
            found = self._damage(whole=True)
        with as_store_errors(self.address):
            for name in found:
                for table in reversed(TABLES):
                    path = self._part(table, name)
                    if self._fs.is_file(path) or self._fs.is_folder(path):
                        self._fs.move(path, f"{self._root}/set-aside/{table}/{name}.parquet")
        return self._by_address(found)

    def _incomplete_copies(self, parts: Mapping[str, Part]) -> set[str]:
        """Parts of earlier generations that lack files and whose runs other parts have.

        A driver that was paused while it wrote them, and replaced, finished them after its successor had removed the
        first files.
        """
        lacking = [name for name, part in parts.items() if part.missing and self._is_earlier(name)]
        if not lacking:
            return set()
        runs = {name: set(rows["run_id"].to_pylist()) for name, rows in self._rows_by_part(parts).items()}
        complete = {run for name, part in parts.items() if not part.missing for run in runs[name]}
        return {name for name in lacking if runs[name] <= complete}

    def _is_earlier(self, part: str) -> bool:
        """Whether the part was written before the generation that these files belong to."""
        return generation_of(part) < max(1, self.generation)

    def _problems(self, name: str, listing: Listing, whole: bool) -> Problems:
        """What is wrong with the files of the part, by table."""
        if problem := self._unreadable("runs", name, whole=False):
            return {"runs": problem}
        part = self._part_of(name, listing)
        found = part.size_problems()
        for table in set(part.tables) - found.keys():
            if part.manifest is None:
                problem = self._unreadable(table, name, whole)
            elif whole:
                try:
                    problem = part.content_problem(table, self._fs.sha256(self._part(table, name)))
                except OSError as error:  # it can't be read, or was removed meanwhile
                    problem = f"can't be read ({short(error)})"
            found |= {table: problem} if problem else {}
        return found

    def _merge(
        self, group: Sequence[Part], superseded: Mapping[str, Sequence[str]], earlier: Mapping[str, Value] | None = None
    ) -> None:
        """Write the rows of these parts that count as one part, with earlier values where they are missing."""

        def merged(table: str) -> pa.Table:
            parts = {part.name: part for part in group if table in part.tables}

            def rows(name: str) -> pa.Table:
                schema = self._schema(table, [parts[name]])
                return self._scanned(table, [name], schema, None, without(superseded.get(name, ())))

            tables = self._fs.each(rows, list(parts))
            found = pa.concat_tables(tables, promote_options="permissive") if tables else pa.table({})
            # The rows of a cell are together, so that few row groups have to be read for it.
            keys = [name for name in ("cell_id", "seed", "step", "metric") if name in found.column_names]
            return found.sort_by([(name, "ascending") for name in keys]) if keys else found

        tables = {table: merged(table) for table in TABLES}
        runs = filled(tables["runs"], earlier or {})
        self.write_results({**tables, "runs": runs}, [part.name for part in group])
