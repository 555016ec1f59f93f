PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.installed

.PHONY: quickstart test lint bench
.DELETE_ON_ERROR:

# Runs a first sweep on a local Ray: 40 networks on XOR clusters, with results in ./results.
quickstart: $(READY)
	$(BIN)/mislabel run sweeps/papers/specs/quickstart.yaml
	$(BIN)/mislabel figure quickstart -m train_accuracy -m noisy_accuracy -m clean_test_accuracy -o results/quickstart.png

test: $(READY)
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Runs the benchmarks and compares them with their bounds.
bench: $(READY)
	$(BIN)/python -m tests.benchmarks

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit("Mislabel needs Python 3.11 or newer; name one with: make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
