# `make demo` and `make test` do all the set-up they need, in a virtual environment of their own that they reuse.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow lint types bench clean

demo: $(VENV)/.demo
	@$(BIN)/python demo/digits.py

test: $(VENV)/.dev
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(VENV)/.dev
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

bench: $(VENV)/.dev
	for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV)

$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[paper,demo]"
	@touch $@

$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@ $(VENV)/.demo
