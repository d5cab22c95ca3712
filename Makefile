# Everything starts here. `make help` lists what there is; each target does its own set-up.

SHELL := bash
.DEFAULT_GOAL := help

# The commands of the environment; `run` gives them the Java and the Python they must use.
bin := .venv/bin
run := scripts/run

typed := $(wildcard src tests benchmarks examples)

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "  ARGS passes options on: make test ARGS='-n0 -k window', make bench BENCH=engine ARGS=--quick"

.PHONY: demo
demo: classes ## failures and correct answers, live in the terminal
	@$(run) $(bin)/holdfast demo $(ARGS)

.PHONY: test
test: classes ## the tests, in three processes, as many of them wait; one is enough for a few: ARGS='-n0 -k window'
	@$(run) $(bin)/python -m pytest -q -n3 --dist loadfile --no-loadscope-reorder -m 'not thorough' $(ARGS)

# What decides and what keeps, without Spark jobs: under a minute on two cores.
fast := tests/core tests/simulation tests/log tests/connect tests/network

.PHONY: test-fast
test-fast: venv ## the protocols, the simulator, the logs, sources and outputs; within a minute
	@$(run) $(bin)/python -m pytest -q -n2 --dist loadfile --no-loadscope-reorder -m 'not jobs and not slow and not thorough' $(fast) $(ARGS)

.PHONY: test-all
test-all: classes browser ## every test, the thorough ones too, with more examples, then the planted mistakes (BENCH=mutations)
	@HOLDFAST_EXAMPLES=25 $(run) $(bin)/python -m pytest -q -n3 --dist loadfile --no-loadscope-reorder --timeout 900 $(ARGS)
	@scripts/bench mutations

# The page is tested in a real browser where there is one; `make test-all` sees to it.
.PHONY: browser
browser:
	@scripts/browser

.PHONY: check
check: venv ## style, formatting, who may import whom, and types
	@$(bin)/ruff check .
	@$(bin)/ruff format --check .
	@$(bin)/lint-imports --no-logo --no-cache --config pyproject.toml
	@$(bin)/mypy --strict $(typed)

.PHONY: format
format: venv ## rewrite the sources the way `make check` wants them
	@$(bin)/ruff check --fix-only .
	@$(bin)/ruff format .

.PHONY: reference
reference: venv ## write docs/reference/api.md anew from the code
	@$(bin)/python scripts/api-reference

.PHONY: bench
bench: classes ## one benchmark: BENCH=name, with ARGS=--quick in a short form
	@scripts/bench "$(BENCH)" $(ARGS)

.PHONY: venv
venv: ## the pinned environment in .venv; the targets above see to it themselves
	@scripts/venv

# Spark's JVM starts in half the time from an archive of its classes, made once.
.PHONY: classes
classes: venv
	@$(run) $(bin)/holdfast prepare || true

.PHONY: lock
lock: venv ## pin the dependencies anew; ARGS=--upgrade takes the newest of each
	@scripts/lock $(ARGS)

.PHONY: clean
clean: ## remove caches and what builds and runs leave behind; keeps .venv
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist src/*.egg-info
	@rm -rf artifacts spark-warehouse metastore_db derby.log
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
