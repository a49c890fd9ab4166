# `make demo` and `make test` need Python >= 3.11, make and git; the rest is fetched into this folder.

PYTHON ?= python3
BIN := .venv/bin
CLI := .gemini-cli

# The CLI needs Node 20 and starts faster from 22 on. Where there is none, it comes from PyPI.
NODE_IS_FINE := $(shell node -p 'parseInt(process.versions.node) >= 22' 2>/dev/null)
EXTRAS := api$(if $(filter true,$(NODE_IS_FINE)),,+node)

# Stamps, so that a second call starts at once. The extras are part of the name: a machine that
# loses its Node installs again.
VENV := .venv/.made
PACKAGE := .venv/.installed-$(EXTRAS)
GEMINI := $(CLI)/node_modules/.installed

# Older ones, each in a folder of its own, for what is promised on them as well.
OLDER := $(foreach version,0.29.0 0.40.1 0.51.0,$(CLI)-$(version)/node_modules/.installed)

.PHONY: help demo test test-versions test-compat lint types docs bench chaos fuzz clean

help:  ## this list
	@awk -F ':.*## *' '/^[a-z-]+:.*##/ { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(PACKAGE) $(GEMINI)  ## a real prompt through the real CLI, against a simulated model: no account needed
	@$(BIN)/python examples/demo.py

test: lint types $(GEMINI)  ## lint, types and the whole test suite
	@# More workers than cores: many tests wait for a program or for a clock.
	$(BIN)/python -m pytest -n 4 --dist worksteal

test-versions: $(PACKAGE) $(GEMINI) $(OLDER)  ## the control suite on older CLIs too; writes docs/versions.md
	$(BIN)/python -m pytest -n 2 tests/versions/control.py

test-compat: $(PACKAGE)  ## the API door on several versions of Google's SDK
	@$(BIN)/python tests/compat.py

lint: $(PACKAGE)  ## ruff: rules and format; bandit: the code that is shipped
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml src

types: $(PACKAGE)  ## mypy, strict
	$(BIN)/mypy

docs: $(PACKAGE)  ## the pages, into site/; any warning fails
	@# The theme would tell of its successor in every build.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo 'Read them with: $(BIN)/python -m http.server --directory site'

bench: $(PACKAGE) $(GEMINI)  ## the measurements
	$(BIN)/python -m benchmarks

chaos: $(PACKAGE) $(GEMINI)  ## seeded faults on every transport, SEEDS=60; fails when anything is lost or left
	$(BIN)/python -m chaos --seeds $(or $(SEEDS),60)

fuzz: $(PACKAGE)  ## every decoder on changed recordings, MINUTES=1 each; fails while a finding is open
	$(BIN)/python -m fuzz --minutes $(or $(MINUTES),1)

clean:  ## forget everything that was fetched or built
	rm -rf .venv .venv-compat $(CLI) $(CLI)-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz build dist site

$(VENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'geminorum needs Python 3.11 or newer, and `$(PYTHON)` is not.'; \
	  echo 'Name another one: make $(or $(MAKECMDGOALS),demo) PYTHON=python3.12'; exit 1; } >&2
	@echo 'Creating .venv …'
	@$(PYTHON) -m venv .venv
	@# The pip that comes with Python 3.11 knows no dependency groups.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $@

$(PACKAGE): $(VENV) pyproject.toml
	@echo 'Installing geminorum[$(subst +,$(comma),$(EXTRAS))] and its tools into .venv …'
	@$(BIN)/python -m pip install --quiet --group dev --editable '.[$(subst +,$(comma),$(EXTRAS))]'
	@touch $@

$(GEMINI): src/geminorum/install.py | $(PACKAGE)
	@$(BIN)/python -m geminorum.install --into $(CLI)
	@touch $@

$(CLI)-%/node_modules/.installed: src/geminorum/install.py | $(PACKAGE)
	@$(BIN)/python -m geminorum.install --into $(CLI)-$* --version $*
	@touch $@

comma := ,
