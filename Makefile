# One command per need; each sets up what it needs. `make help` lists them.

VENV := .venv
BIN := $(VENV)/bin
# The version that an existing environment has, unless the caller names another.
PYTHON ?= $(or $(wildcard $(BIN)/python),python3)
PYTEST := $(BIN)/python -m pytest

SUPPORTED := 3.11 3.12 3.13 3.14
VERSION := $(shell $(PYTHON) -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)
PYTHON_STAMP := $(VENV)/.python-$(VERSION)
STAMP := $(VENV)/.installed

# Versions that were tested together, of Ottla's dependencies and of what builds them.
PINS := --constraint constraints.txt
PIP := $(BIN)/python -m pip install --quiet $(PINS)
INSTALL := $(PIP) --build-constraint constraints.txt

export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PATH := $(CURDIR)/$(BIN):$(PATH)

.PHONY: help demo setup lock check test test-quick codegen coverage docs docs-serve recording bench bench-peers compat chaos sim format clean kcat databases
.DEFAULT_GOAL := help

help: ## List the commands
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

# The environment is made again when PYTHON names another version. Its pip is pinned as well: older
# ones build PySpark with a deprecation warning and take no constraints for what they build.
$(PYTHON_STAMP):
	@$(if $(filter $(VERSION),$(SUPPORTED)),:,echo "Ottla supports Python $(firstword $(SUPPORTED)) to $(lastword $(SUPPORTED)), and $(PYTHON) is $(or $(VERSION),not there). Choose another: make PYTHON=/path/to/python3.13 …" >&2; exit 1)
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) pip
	@touch $@

# A stamp is newer than pyproject.toml and the pins exactly while the environment matches them.
$(STAMP): pyproject.toml constraints.txt $(PYTHON_STAMP)
	@echo "Installing Ottla and its development tools into $(VENV): about 700 MB to download, of which PySpark is 455 MB …"
	@$(INSTALL) --editable '.[dev]'
	@touch $@

# The demo needs no development tools. An environment that has them has all that the demo needs.
DEMO_STAMP := $(if $(wildcard $(STAMP)),$(STAMP),$(VENV)/.installed-for-the-demo)

$(VENV)/.installed-for-the-demo: pyproject.toml constraints.txt $(PYTHON_STAMP)
	@echo "Installing Ottla with Spark into $(VENV): about 650 MB to download, of which PySpark is 455 MB …"
	@$(INSTALL) --no-compile --editable '.[spark]'
	@touch $@

demo: $(DEMO_STAMP) ## A whole pipeline, live; KEEP=1 leaves it running, CLUSTER=3 kills a leader
	@$(BIN)/ottla demo $(if $(CLUSTER),--brokers $(CLUSTER)) $(if $(filter-out 0,$(KEEP)),--keep) $(ARGS)

setup: $(STAMP) ## Create .venv with Ottla and its development tools

lock: $(STAMP) ## Pin the newest versions of all dependencies, for every supported Python
	@$(PIP) --group lock
	@$(BIN)/uv pip compile --quiet --universal --upgrade --python-version $(firstword $(SUPPORTED)) \
	    --all-extras --group build --group lock --custom-compile-command "make lock" \
	    --output-file constraints.txt pyproject.toml

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

test-quick: check ## Check, then run the tests without clusters, Spark and databases
	@$(PYTEST) -q -n 2 --dist loadfile tests/unit tests/wire tests/integration/client $(ARGS)

codegen: $(STAMP) ## Generate the types of Kafka's messages and of the clients' properties
	@$(BIN)/python -m codegen.messages
	@$(BIN)/python -m codegen.rpc
	@$(BIN)/python -m codegen.client_properties
	@$(BIN)/ruff format --quiet src/ottla/client/properties.py src/ottla/spark/option_keywords.py

COVERED ?= tests/unit tests/wire tests/model tests/integration

coverage: $(STAMP) ## Measure how much of Ottla the tests without Spark run; a part: COVERED=tests/unit/core
	@$(PYTEST) -q -n 2 --dist loadfile --timeout 300 --cov --cov-report=term \
	    --cov-report=html:build/coverage/html $(COVERED) $(ARGS)
	@echo "Lines that no test runs: file://$(CURDIR)/build/coverage/html/index.html"

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
	@$(INSTALL) --editable '.[docs]'
	@touch $@

docs: $(VENV)/.installed-for-docs ## Build the documentation into site/; a warning is an error
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "The documentation is in site/. Open it in a browser: file://$(CURDIR)/site/index.html"

DOCS_ADDRESS ?= 127.0.0.1:8000

docs-serve: $(VENV)/.installed-for-docs ## Serve the documentation, and rebuild it when a page changes
	@echo "The documentation is served on http://$(DOCS_ADDRESS)/ (another: make docs-serve DOCS_ADDRESS=…). Stop it with Ctrl-C."
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --quiet --dev-addr $(DOCS_ADDRESS)

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
	rm -rf .venv .venv-* .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist site
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
