# `make demo` and `make test` do all the set-up they need, in a virtual environment of their own that they reuse.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo demo-study test test-slow docs postgres browser lint types bench clean

demo: $(VENV)/.demo
	@$(BIN)/python demo/models.py

demo-study: $(VENV)/.demo
	@$(BIN)/python demo/digits.py

test: $(VENV)/.dev postgres browser
	$(BIN)/python -m pytest -m "not slow"

test-slow: $(VENV)/.dev postgres browser
	$(BIN)/python -m pytest -m slow -o faulthandler_timeout=7200
	$(BIN)/python tests/plant.py

# The site: open build/site/index.html. A warning, such as a link to a page that is not there, is an error.
docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -q -n -W --keep-going docs build/site

# The tests start a PostgreSQL server of their own, if one is installed; this installs it where that can be done.
postgres:
	@if command -v postgres >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq && apt-get install -y -qq postgresql >/dev/null && exit 0; \
	fi; \
	echo "PostgreSQL is not installed and could not be: its tests are skipped."

# The tests of the page drive a real browser, if there is one; this installs it where that can be done.
browser:
	@if command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; then exit 0; fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		export DEBIAN_FRONTEND=noninteractive; \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium >/dev/null && exit 0; \
	fi; \
	echo "Chromium is not installed and could not be: its tests are skipped."

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

bench: $(VENV)/.dev
	for file in benchmarks/bench_*.py; do $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) build

$(VENV)/.demo: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[paper,demo]"
	@touch $@

$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $@ $(VENV)/.demo
