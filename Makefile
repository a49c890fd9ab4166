# `make demo` and `make test` need Python >= 3.11, make and git; everything else is fetched into this folder.

PYTHON ?= python3

# Tests start hundreds of interpreters: each module is compiled once, whatever the environment says.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
CLI := .gemini-cli

# The CLI needs Node 20 and starts faster with Node 22. Without a suitable Node, it comes from PyPI.
NODE_IS_FINE := $(shell node -p 'parseInt(process.versions.node) >= 22' 2>/dev/null)
EXTRAS := api+stores+fleet+web$(if $(filter true,$(NODE_IS_FINE)),,+node)

# Stamp files, so that a second call starts at once. The extras are part of the name: if Node
# disappears from the machine, the package is installed again.
VENV := .venv/.made
PACKAGE := .venv/.installed-$(EXTRAS)
GEMINI := $(CLI)/node_modules/.installed
BROWSER := .browser/.installed

# Only what failed in the run before; without any such test, for example because pytest itself failed, this fails, too.
ALONE = $(BIN)/python -m pytest --last-failed --last-failed-no-failures none

# What holds on each version of the CLI, and what that depends on.
RECORDS := $(foreach version,$(or $(VERSIONS),$(shell cat tests/versions/minors.txt)),.versions/$(version).json)
CONTROLLED := $(shell find src -name '*.py') tests/conftest.py tests/versions/control.py tests/versions/two_machines.py \
  $(foreach name,attacks next_clis running stopping,tests/transports/test_$(name).py)

# The tests of the Cli transport.
HEADLESS := running stopping decide_cli python_tools structured_output budget resuming resuming_tools attacks bad_input secrets \
  network permission_events interrupts outside_files control_files user_policies settings prompts chats

.PHONY: help demo test test-versions minors test-spares test-compat lint types compiled-tests docs bench chaos load fuzz clean

help:  ## list the targets
	@awk -F ':.*## *' '/^[a-z-]+:.*##/ { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: $(PACKAGE) $(GEMINI)  ## send a prompt through the real CLI to a simulated model; needs no account
	@$(BIN)/python examples/demo.py

test: $(PACKAGE) $(GEMINI) $(BROWSER)  ## run lint, types and the whole test suite
	@# Each of them uses one core only.
	@$(MAKE) --no-print-directory -j 2 lint types compiled-tests
	@# More workers than cores: many tests wait for a program or a clock. A worker takes a whole file, since
	@# its tests share runs of the CLI. What fails among others runs once more, alone: there, a program that
	@# never got the processor is no excuse.
	$(BIN)/python -m pytest -n 5 --dist loadfile --no-loadscope-reorder --ignore=tests/web || $(ALONE)
	@# In processes of their own: a browser is a child that other tests would count.
	$(BIN)/python -m pytest -n 3 --dist loadfile tests/web || $(ALONE)

test-versions: $(RECORDS)  ## test each minor version of the CLI (or VERSIONS="0.45.2 0.61.0"); writes docs/versions.md
	@# What was tested since the last change is not tested again. `make -k` goes on after a failure.
	$(if $(VERSIONS),,@PYTHONPATH=tests $(BIN)/python -m versions.table)

minors: $(PACKAGE)  ## list the CLI's versions on npm that test-versions tests
	@PYTHONPATH=tests $(BIN)/python -m versions.minors

test-spares: $(PACKAGE) $(GEMINI)  ## run the tests of the Cli transport over CLIs that were started ahead
	PYTHONPATH=tests $(BIN)/python -m pytest -p over_spares -n 4 --dist worksteal $(foreach name,$(HEADLESS),tests/transports/test_$(name).py)

test-compat: $(PACKAGE)  ## test the Api transport on several versions of Google's SDK
	@$(BIN)/python tests/compat.py

lint: $(PACKAGE)  ## run ruff (rules and format), and bandit on the shipped code
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/bandit --quiet --recursive --configfile pyproject.toml src

types: $(PACKAGE)  ## run mypy --strict
	$(BIN)/mypy

# Otherwise each worker compiles all tests for itself. What cannot be collected fails the suite.
compiled-tests: $(PACKAGE)
	@$(BIN)/python -m pytest --collect-only --quiet > /dev/null || true

docs: $(PACKAGE)  ## build the documentation into site/; any warning fails
	@# Otherwise the theme advertises its successor in every build.
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo 'Read them with: $(BIN)/python -m http.server --directory site'

bench: $(PACKAGE) $(GEMINI)  ## run the benchmarks
	$(BIN)/python -m benchmarks

chaos: $(PACKAGE) $(GEMINI)  ## inject seeded faults on every transport (SEEDS=60); fails if anything is lost or left behind
	$(BIN)/python -m chaos --seeds $(or $(SEEDS),60)
	$(BIN)/python -m chaos.spares --runs $(or $(RUNS),40) --kills $(or $(KILLS),10)
	$(BIN)/python -m chaos.stores --seeds $(or $(SEEDS),60)
	$(BIN)/python -m chaos.fleet --seeds $(or $(STORIES),40)

load: $(PACKAGE) $(GEMINI) $(BROWSER)  ## start agents by the hundred; writes figures.md, scaling.md and web.md in docs/ (needs a C compiler, an idle machine)
	$(BIN)/python -m load --write
	$(BIN)/python -m load.fleet --write
	$(BIN)/python -m load.web --write
	$(BIN)/python -m load.limits

fuzz: $(PACKAGE)  ## run every decoder on mutated recordings (MINUTES=1 each); fails while a finding is open
	$(BIN)/python -m fuzz --minutes $(or $(MINUTES),1)

clean:  ## remove everything that was fetched or built
	rm -rf .venv .venv-compat .browser $(CLI) $(CLI)-* .mypy_cache .ruff_cache .pytest_cache .hypothesis .fuzz .versions build dist site

$(VENV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'geminorum needs Python 3.11 or newer, and `$(PYTHON)` is not.'; \
	  echo 'Name another one: make $(or $(MAKECMDGOALS),demo) PYTHON=python3.12'; exit 1; } >&2
	@echo 'Creating .venv …'
	@$(PYTHON) -m venv .venv
	@# The pip of Python 3.11 does not support dependency groups.
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	@touch $@

$(PACKAGE): $(VENV) pyproject.toml
	@echo 'Installing geminorum[$(subst +,$(comma),$(EXTRAS))] and its tools into .venv …'
	@$(BIN)/python -m pip install --quiet --group dev --editable '.[$(subst +,$(comma),$(EXTRAS))]'
	@touch $@

$(GEMINI): src/geminorum/install.py | $(PACKAGE)
	@$(BIN)/python -m geminorum.install --into $(CLI)
	@touch $@

$(BROWSER): tests/web/install_browser.py | $(PACKAGE)
	@echo 'Installing a browser for the tests of the web page into .browser …'
	@$(BIN)/python tests/web/install_browser.py .browser
	@touch $@

$(CLI)-%/node_modules/.installed: src/geminorum/install.py | $(PACKAGE)
	@$(BIN)/python -m geminorum.install --into $(CLI)-$* --version $*
	@touch $@

# The versions that were named are tested again in any case.
.versions/%.json: $(CLI)-%/node_modules/.installed $(CONTROLLED) $(if $(VERSIONS),FORCE)
	TESTED_CLI=$* $(BIN)/python -m pytest -n 2 tests/versions/control.py

# Made on the way to a record, but worth keeping.
.PRECIOUS: $(CLI)-%/node_modules/.installed

FORCE:

comma := ,
