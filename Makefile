# Every target builds what it needs first; see compose/setup.
SHELL := /bin/bash
# Tests start hundreds of processes, and each would compile all modules.
unexport PYTHONDONTWRITEBYTECODE
PYTHON := .venv/bin/python
# Options for the program behind demo and bench, for example: make demo ARGS=--keep
ARGS :=
# The test modules are distributed to this many processes, each with its own servers. Tests wait more than they compute.
TEST_WORKERS := 4
SHARED := -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: help setup setup-sysbench setup-tests artifacts classes archive compiled collected demo test checks unit servers one golden fmt bench lint types contracts docs lock

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: ## build .venv from requirements.lock
	@compose/setup

setup-sysbench:
	@compose/setup sysbench

setup-tests: setup
	@compose/setup sysbench chromium promtool

artifacts: setup ## fetch Kafka, MariaDB, MySQL and Spark's connector into .cache
	@$(PYTHON) -m compose

classes: archive compiled

archive: setup
	@$(PYTHON) -m tailrace.artifacts.spark

compiled: setup
	@$(PYTHON) -m tailrace.artifacts.compiled

demo: classes ## replicate a busy database, kill both processes on the way, compare
	@$(PYTHON) -m demo $(ARGS)

bench: setup-sysbench classes ## measure each part and the whole, beside two peers
	@$(PYTHON) -m bench $(ARGS)

test: checks unit servers ## lint, types, import contracts, all tests

# Most of these use one core each, or wait for what they fetch; the longest begin first.
checks: setup
	@$(MAKE) --no-print-directory -j3 --output-sync compiled types setup-tests lint contracts collected artifacts archive

# Otherwise each of the test workers compiles all test modules, at the same time as the others.
collected: setup
	@$(PYTHON) -m pytest -p no:xdist --collect-only -qq >/dev/null

fmt: setup ## let ruff repair and format
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

lint: setup ## ruff
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

types: setup ## mypy
	$(PYTHON) -m mypy

contracts: setup ## which package may import which
	.venv/bin/lint-imports

unit: setup-tests ## the tests that need no servers
	$(PYTHON) -m pytest $(SHARED) -m "not servers"

servers: setup-tests artifacts classes ## the tests on real servers
	$(PYTHON) -m pytest $(SHARED) -m servers

one: setup-tests artifacts classes ## one test, for example: make one TEST=tests/schemas/test_gtid.py
	$(PYTHON) -m pytest --durations=0 $(or $(TEST),$(error say which: make one TEST=tests/…))

golden: setup ## renew the golden files; git diff then shows what has changed
	$(PYTHON) -m tests.golden.renew

docs: setup ## write docs/COMMANDS.md from the commands
	$(PYTHON) -m docs.commands

lock: setup ## choose the newest versions that fit, and pin them with their hashes
	printf 'setuptools>=80\nuv\n' | .venv/bin/uv pip compile -q -U --generate-hashes --no-header --no-annotate \
		--python-version 3.11 - -o compose/bootstrap.lock
	.venv/bin/uv pip compile -q -U --generate-hashes --no-header --no-annotate \
		--python-version 3.11 --extra dev pyproject.toml -o requirements.lock
