PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.installed
PYTEST := $(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadgroup --no-loadscope-reorder

# Tests start many processes. Without compiled modules each of them would compile ours again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart check test test-all mutants lint dependencies bench faults dist docs docs-serve docs-pages
.DELETE_ON_ERROR:

help:  ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-14s%s\n", $$1, $$2}' $(MAKEFILE_LIST)

quickstart: $(READY)  ## Run a first sweep on a local Ray: 40 networks on XOR clusters, with results in ./results.
	$(BIN)/mislabel run quickstart
	$(BIN)/mislabel figure quickstart -m train_accuracy -m noisy_accuracy -m clean_test_accuracy \
		--by noise_rate --by dim -o results/quickstart.png
	@echo
	@echo 'The figure is results/quickstart.png. The tables and the MLflow view are in results, which `mislabel ui` shows.'
	@echo 'Put `mislabel` on the PATH of this shell:  source $(BIN)/activate'
	@echo 'Then try:  mislabel results quickstart --by noise_rate    or    mislabel plan xor-clusters/fig2'

check: lint  ## Check the code, and run the tests that need no Ray, no server and no long training.
	$(PYTEST) --hypothesis-profile check -m "not (ray or server or claims or long or slow)"

test: $(READY)  ## Run the tests, except those of several hosts, killed clusters and packaging.
	$(PYTEST) -m "not slow"

test-all: test  ## Run all tests.
	$(PYTEST) -m slow

mutants: $(READY)  ## Change the code of the specs, plans and stores in small ways, and see which changes no test finds.
	$(BIN)/python -m mutmut run

lint: $(READY) dependencies  ## Check style, types and dependencies.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

dependencies: $(READY)  ## Check that every import is a declared dependency.
	$(BIN)/deptry src tasks sweeps cluster analysis
	$(BIN)/deptry tests --ignore DEP002,DEP004 --exclude '^$$'

bench: $(READY)  ## Run the benchmarks and compare them with their bounds.
	$(BIN)/python -m tests.benchmarks

faults: $(READY)  ## Break everything that the fault suite knows, for hours, and print what sweeps did about it.
	$(BIN)/python -m tests.faults

dist: $(READY)  ## Build the source distribution and the wheel into ./dist.
	$(BIN)/python -m build

docs: $(READY)  ## Build the documentation site in build/site.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs-serve: $(READY)  ## Serve the documentation site on this machine.
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs serve

docs-pages: $(READY)  ## Rewrite the pages of the papers and all displayed outputs.
	$(BIN)/python -m docs.tools

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Mislabel needs Python 3.11 or newer; name one with: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
