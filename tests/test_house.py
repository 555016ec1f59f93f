"""The rules of the house: which way imports point, where each large package may be named, how long a module may be."""

import ast
import json
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from mislabel.tasks.task import Task

ROOT = Path(__file__).parent.parent
FOLDERS = ("tasks", "sweeps", "cluster", "analysis")
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# A module imports from its own package and from packages above it in this list. Packages on one line are independent.
ORDER = [
    ["mislabel.tasks"],
    ["mislabel.sweeps.seed_means"],
    [
        "mislabel.sweeps.errors",
        "mislabel.sweeps.ids",
        "mislabel.sweeps.redaction",
        "mislabel.sweeps.statistics",
        "mislabel.sweeps.formatting",
        "mislabel.sweeps.process",
    ],
    ["mislabel.sweeps.spec"],
    ["mislabel.sweeps.cells"],
    ["mislabel.sweeps.store"],
    ["mislabel.sweeps.stopping"],
    ["mislabel.sweeps.papers"],
    ["mislabel.sweeps.checks"],
    ["mislabel.sweeps.search"],
    ["mislabel.sweeps.plan"],
    ["mislabel.sweeps.run"],
    ["mislabel.cluster", "mislabel.analysis"],
    ["mislabel.sweeps.commands"],
]
# The same within `analysis`.
ORDER_OF_ANALYSIS = [
    ["mislabel.analysis.theory"],
    ["mislabel.analysis.statistics"],
    ["mislabel.analysis.studies"],
    ["mislabel.analysis.report"],
    ["mislabel.analysis.mlflow_view"],
    ["mislabel.analysis.sweep"],
    ["mislabel.analysis.claims"],
]
MOST_MODULES = 12
MOST_LINES = 400


def name_of(path: Path) -> str:
    return ".".join(["mislabel", *path.relative_to(ROOT).with_suffix("").parts]).removesuffix(".__init__")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports_of(path: Path, at_import_only: bool = False) -> tuple[str, ...]:
    """Modules that the file names in imports, wherever they stand but under TYPE_CHECKING."""

    def visit(node: ast.AST) -> Iterator[str]:
        match node:
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                return
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda() if at_import_only:
                return
            case ast.Import(names=names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module=str(module), level=0, names=names):
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.ImportFrom():
                raise AssertionError(f"{path}: a relative import")
        for child in ast.iter_child_nodes(node):
            yield from visit(child)

    return tuple(visit(tree_of(path)))


def is_of(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


def in_package(*packages: str) -> list[Path]:
    return [path for path in MODULES if is_of(name_of(path), *packages)]


def breaches(paths: list[Path], *packages: str, at_import_only: bool = False) -> list[str]:
    return [
        f"{name_of(path)} imports {module}"
        for path in paths
        for module in imports_of(path, at_import_only)
        if is_of(module, *packages)
    ]


def package_of(module: str, order: list[list[str]]) -> tuple[int, str] | None:
    """The module's package in the order, with its line there."""
    found = ((line, package) for line, packages in enumerate(order) for package in packages if is_of(module, package))
    return next(found, None)


def against_the_order(path: Path, order: list[list[str]]) -> list[str]:
    here = package_of(name_of(path), order)
    assert here is not None, f"{name_of(path)} is in no package of the order"
    wrong = []
    for module in imports_of(path):
        there = package_of(module, order)
        if there is not None and there != here and there[0] >= here[0]:
            wrong.append(f"{name_of(path)} imports {module}")
    return wrong


def test_the_rules_see_the_house() -> None:
    assert len(MODULES) > 50
    assert breaches(in_package("mislabel.sweeps.search"), "optuna")
    assert breaches(in_package("mislabel.sweeps.commands"), "mislabel.cluster", "mislabel.analysis")
    assert not breaches(in_package("mislabel.sweeps.commands"), "mislabel.analysis", at_import_only=True)


def test_imports_follow_the_order_of_the_packages() -> None:
    for modules, order in ((MODULES, ORDER), (in_package("mislabel.analysis"), ORDER_OF_ANALYSIS)):
        paths = [path for path in modules if path.name != "__init__.py"]
        assert [breach for path in paths for breach in against_the_order(path, order)] == []


def test_every_import_of_ours_begins_with_mislabel() -> None:
    """A user's own folder may have a `tasks.py` or an `analysis/`."""
    everything = [*MODULES, *(ROOT / "tests").rglob("*.py")]
    wrong = [
        f"{path} imports {module}" for path in everything for module in imports_of(path) if is_of(module, *FOLDERS)
    ]
    assert wrong == []


def test_a_folder_has_at_most_twelve_modules() -> None:
    counts = Counter(path.parent for path in MODULES if path.name != "__init__.py")
    full = {str(folder.relative_to(ROOT)): count for folder, count in counts.items() if count > MOST_MODULES}
    # Its listing is the command line.
    assert full.pop("sweeps/commands", 0) > MOST_MODULES
    assert full == {}


def test_tasks_know_no_scheduler_no_search_and_no_files() -> None:
    assert breaches(in_package("mislabel.tasks"), "ray", "optuna", "mlflow", "pyarrow", "pandas") == []


@pytest.mark.parametrize(
    ("package", "allowed"),
    [
        ("optuna", ["mislabel.sweeps.search", "mislabel.analysis.studies"]),
        ("ray", ["mislabel.cluster", "mislabel.sweeps.commands.doctor"]),
        (
            "mlflow",
            ["mislabel.analysis.mlflow_view", "mislabel.cluster.head.mlflow_server", "mislabel.sweeps.commands.doctor"],
        ),
        (
            "matplotlib",
            [
                "mislabel.analysis.report.figures",
                "mislabel.analysis.report.drawings",
                "mislabel.analysis.report.heat_maps",
                "mislabel.analysis.report.ticks",
            ],
        ),
    ],
)
def test_a_large_package_is_named_in_few_modules(package: str, allowed: list[str]) -> None:
    inside = {*in_package(*allowed)}
    assert breaches([path for path in MODULES if path not in inside], package) == []


def private_uses(tree: ast.Module, libraries: tuple[str, ...] = ("ray", "optuna", "mlflow")) -> list[str]:
    """Private names of these libraries in a module that imports one of them.

    That is: an import of a private module or name, and an attribute with a leading underscore that the module itself
    does not define.
    """
    nodes = [*ast.walk(tree)]
    imported = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module:
            imported += [f"{node.module}.{alias.name}" for alias in node.names]
    foreign = [name for name in imported if is_of(name, *libraries)]
    if not foreign:
        return []
    found = [name for name in foreign if any(is_private(part) for part in name.split("."))]
    stored = [node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    stored += [node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    defined = {*stored, *(node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef))}
    used = [node.attr for node in nodes if isinstance(node, ast.Attribute) and is_private(node.attr)]
    return found + [name for name in used if name not in defined]


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


# Undocumented names that a library takes as text.
PRIVATE_TEXTS = {
    "ray": ("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_JOB_CONFIG_JSON_ENV_VAR", "node:__internal_head__"),
    "optuna": (),
    "mlflow": ("sharedViewState", "viewStateShareKey"),
}


@pytest.mark.parametrize(
    ("library", "adapter"),
    [
        ("ray", "mislabel.cluster.ray_private"),
        ("optuna", "mislabel.sweeps.search.optuna_private"),
        ("mlflow", "mislabel.analysis.mlflow_view.saved_view"),
    ],
)
def test_private_interfaces_of_a_library_are_used_in_its_adapter_alone(library: str, adapter: str) -> None:
    uses: dict[str, list[str]] = {}
    for path in MODULES:
        uses[name_of(path)] = private_uses(tree_of(path), (library,))
        uses[name_of(path)] += [text for text in PRIVATE_TEXTS[library] if text in path.read_text()]
    assert {name: used for name, used in uses.items() if used and name != adapter} == {}
    assert uses[adapter], "the adapter uses no private interface: remove it"


@pytest.mark.parametrize(
    "source",
    [
        "from optuna._imports import try_import",
        "import ray\nray._private.worker.global_worker",
        "from ray.experimental import internal_kv\ninternal_kv._internal_kv_get('key')",
        "def late():\n    import mlflow\n    return mlflow.tracking.fluent._active_run_stack",
        "from optuna.samplers import TPESampler\nclass Mine(TPESampler):\n    def f(self):\n        return self._rng",
    ],
)
def test_private_names_are_found(source: str) -> None:
    assert private_uses(ast.parse(source)) != []


def test_private_names_of_our_own_are_allowed() -> None:
    source = "import ray\nclass A:\n    def __init__(self):\n        self._x = 1\n    def f(self): self._x"
    assert private_uses(ast.parse(source)) == []


STATE = """
import importlib, json, logging, os, signal, sys, warnings
def state():
    found = {
        "environment": dict(os.environ),
        "signals": {str(number): str(signal.getsignal(number)) for number in signal.valid_signals()},
        "warnings": [str(entry) for entry in warnings.filters],
        "logging": [str(logging.root.handlers), logging.root.level],
    }
    if "matplotlib" in sys.modules:
        found["matplotlib"] = sys.modules["matplotlib"].rcParams._get("backend").__repr__()
    if "optuna" in sys.modules:
        found["optuna"] = sys.modules["optuna"].logging.get_verbosity()
    if "torch" in sys.modules:
        found["torch"] = [sys.modules["torch"].get_num_threads(), str(sys.modules["torch"].get_default_dtype())]
    return found
for name in sys.argv[1].split():
    try:
        importlib.import_module(name)
    except ImportError:  # a name in a module
        importlib.import_module(name.rpartition(".")[0])
before = state()
for name in sys.argv[2].split():
    importlib.import_module(name)
after = state()
print(json.dumps([key for key in after if after[key] != before.get(key)]))
"""


def effects_of_importing(names: list[str], libraries: list[str]) -> list[str]:
    """What importing these modules changes in the process, after the libraries have been imported."""
    command = [sys.executable, "-c", STATE, " ".join(libraries), " ".join(names)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    changed: list[str] = json.loads(done.stdout.splitlines()[-1])
    return changed


@pytest.mark.long
def test_importing_a_module_changes_nothing_in_the_process() -> None:
    ours = [name_of(path) for path in MODULES]
    foreign = {module for path in MODULES for module in imports_of(path, at_import_only=True)}
    libraries = sorted(name for name in foreign if not is_of(name, "mislabel"))
    assert effects_of_importing(ours, [*libraries, "matplotlib", "optuna", "torch", "mlflow"]) == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("line", "effect"),
    [
        ("import os; os.environ['X'] = '1'", "environment"),
        ("import matplotlib; matplotlib.use('svg')", "matplotlib"),
        ("import optuna; optuna.logging.set_verbosity(50)", "optuna"),
        ("import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN)", "signals"),
        ("import warnings; warnings.simplefilter('ignore')", "warnings"),
        ("import logging; logging.basicConfig(level=10)", "logging"),
    ],
)
def test_an_effect_of_an_import_is_found(
    line: str, effect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "planted.py").write_text(line)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert effects_of_importing(["planted"], ["matplotlib", "optuna"]) == [effect]


def test_commands_import_nothing_heavy_before_they_are_called() -> None:
    heavy = ["torch", "ray", "mlflow", "optuna", "pandas", "pyarrow", "matplotlib"]
    heavy += ["mislabel.cluster", "mislabel.analysis", "mislabel.tasks"]
    assert breaches(in_package("mislabel.sweeps.commands"), *heavy, at_import_only=True) == []


@pytest.mark.long
def test_analysis_loads_neither_torch_nor_ray_nor_mlflow() -> None:
    # What is about Optuna loads Optuna.
    names = [
        name_of(path)
        for path in in_package("mislabel.analysis")
        if "optuna" not in set(imports_of(path, at_import_only=True))
    ]
    assert len(names) > 10
    script = f"import importlib, sys\n[importlib.import_module(name) for name in {names!r}]\n"
    script += "print([name for name in ('torch', 'ray', 'mlflow', 'optuna', 'matplotlib') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_module_is_too_long() -> None:
    long = {name_of(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {name: lines for name, lines in long.items() if lines > MOST_LINES} == {}


def test_only_commands_speak() -> None:
    """But for two processes whose stdout is read: by the sweep that has its MLflow view written, and as a job's log."""
    speaking = []
    for path in MODULES:
        if is_of(
            name_of(path),
            "mislabel.sweeps.commands",
            "mislabel.analysis.mlflow_view.follower",
            "mislabel.cluster.jobs.head_job",
        ):
            continue
        for node in ast.walk(tree_of(path)):
            match node:
                case ast.Call(func=ast.Name(id="print")) | ast.Call(func=ast.Attribute(attr="echo" | "secho")):
                    speaking.append(f"{name_of(path)}:{node.lineno}")
                case ast.Attribute(value=ast.Name(id="sys"), attr="stdout" | "stderr"):
                    speaking.append(f"{name_of(path)}:{node.lineno}")
    assert speaking == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [name_of(path) for path in MODULES if path.read_text().strip() and not ast.get_docstring(tree_of(path))]
    assert silent == []


def test_init_files_are_empty() -> None:
    """But for the one of `mislabel`, which is what users import."""
    assert [name_of(path) for path in MODULES if path.name == "__init__.py" and path.read_text().strip()] == []


def test_every_bundled_spec_is_in_the_distribution() -> None:
    patterns = PYPROJECT["tool"]["setuptools"]["package-data"]["mislabel.sweeps.papers.specs"]
    folder = ROOT / "sweeps" / "papers" / "specs"
    packed = {path for pattern in patterns for path in folder.glob(pattern)}
    assert packed
    assert packed == set(folder.rglob("*.yaml"))


def test_every_entry_point_leads_to_a_task_of_that_name() -> None:
    declared = PYPROJECT["project"]["entry-points"]["mislabel.tasks"]
    assert declared
    for point in entry_points(group="mislabel.tasks"):
        task = point.load()
        assert isinstance(task, Task)
        assert task.name == point.name
        assert declared.pop(point.name, point.value) == point.value
    assert declared == {}, "declared in pyproject.toml, but not installed: run pip install -e . again"


def test_the_command_leads_to_its_main_function() -> None:
    (point,) = entry_points(group="console_scripts", name="mislabel")
    assert callable(point.load())
    assert PYPROJECT["project"]["scripts"] == {"mislabel": point.value}


def test_every_module_of_sweeps_has_a_test_of_its_name() -> None:
    untested = [
        name_of(path)
        for path in in_package("mislabel.sweeps")
        if path.read_text().strip()
        and not (ROOT / "tests" / path.relative_to(ROOT).with_name(f"test_{path.name}")).exists()
    ]
    # These need a browser, a Ray or a whole machine, and are tested where those are.
    elsewhere = {"mislabel.sweeps.commands.ui", "mislabel.sweeps.commands.sync", "mislabel.sweeps.commands.doctor"}
    assert set(untested) <= elsewhere
