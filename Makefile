# One command per need; each sets up what it needs. `make help` lists them.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help demo setup check test docs recording bench bench-peers compat chaos sim format clean kcat databases
.DEFAULT_GOAL := help

help: ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# The stamp is newer than pyproject.toml exactly while the environment matches it.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Ottla needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 …" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Ottla and its development tools into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@

# The demo needs no development tools; who has them needs nothing more.
DEMO_STAMP := $(if $(wildcard $(STAMP)),$(STAMP),$(VENV)/.installed-for-the-demo)

$(VENV)/.installed-for-the-demo: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "Ottla needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 …" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing Ottla with Spark into $(VENV) …"
	@$(BIN)/python -m pip install --quiet --no-compile --editable '.[spark]'
	@touch $@

demo: $(DEMO_STAMP) ## A whole pipeline, live; KEEP=1 leaves it running, CLUSTER=3 kills a leader
	@$(BIN)/ottla demo $(if $(CLUSTER),--brokers $(CLUSTER)) $(if $(filter-out 0,$(KEEP)),--keep) $(ARGS)

setup: $(STAMP) ## Create .venv with Ottla and its development tools

check: $(STAMP) ## Lint, format check, types, layer contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

format: $(STAMP) ## Format and fix what can be fixed
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

kcat:
	@command -v kcat >/dev/null 2>&1 \
	    || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null 2>&1 \
	         && { apt-get update -qq && apt-get install -y -qq kcat; } >/dev/null 2>&1; } \
	    || echo "kcat is not installed and could not be: its tests will be skipped"

# Real databases for the tests of their connectors, which start servers of their own.
databases:
	@{ ls /usr/lib/postgresql/*/bin/initdb && command -v mariadb-install-db; } >/dev/null 2>&1 \
	    || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null 2>&1 \
	         && { apt-get update -qq \
	              && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
	                 --no-install-recommends postgresql mariadb-server; \
	            } >/dev/null 2>&1; } \
	    || echo "PostgreSQL or MariaDB is not installed and could not be: their tests will be skipped"

test: check kcat databases ## Check, then run the tests
	@$(BIN)/python -m tests.everything $(ARGS)

bench: $(STAMP) ## Measure the broker against its budgets
	@$(BIN)/python -m bench $(ARGS)

bench-peers: $(STAMP) ## Beside Apache Kafka, other clients and Spark's connector; writes docs/benchmarks.md
	@$(BIN)/python -m bench.peers $(ARGS)

compat: $(STAMP) ## Run Apache Kafka's own tools against the broker and its files
	@compat/run $(ARGS)
ifndef ARGS
	@$(BIN)/python -m compat.spark.run
	@$(BIN)/python -m compat.spark.run --on-kafka
	@$(BIN)/python -m compat.streams.run
	@$(BIN)/python -m compat.streams.run --bench
endif

$(VENV)/.installed-for-docs: $(STAMP)
	@$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

docs: $(VENV)/.installed-for-docs ## Build the documentation into site/; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "see site/index.html"

recording: $(VENV)/.installed-for-docs ## Record the demo anew, for the README
	@$(BIN)/python docs/generator/record_demo.py $(ARGS)

chaos: $(STAMP) databases ## The long runs: crashes, faults, random input
	@$(PYTEST) -m chaos --timeout 3600 $(ARGS)

sim: $(STAMP) ## Simulated clusters until one breaks: make sim SEEDS=10000; one again: SEED=123
ifdef SEEDS
	@$(BIN)/python -m tests.sim.cluster.sweep --seeds $(SEEDS) $(if $(FAULTS),--faults $(FAULTS)) $(ARGS)
else ifdef SEED
	@SEED=$(SEED) $(PYTEST) tests/sim/cluster -k replay --timeout 3600 $(ARGS)
else
	@echo "say how many worlds, or which one: make sim SEEDS=10000, make sim SEED=123" >&2; exit 2
endif

clean: ## Remove everything that is generated
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
