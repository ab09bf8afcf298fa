# Every target says what is missing on this machine before it starts, installs into .venv, and is quick the second time.
# PYTHON=... and CXX=... choose the interpreter and the compiler, TEST_WORKERS=... the number of test processes.
SHELL := bash
VENV := .venv
TEST_WORKERS ?= 2
ARGS ?=

.PHONY: help demo test check matrix bench clean
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 16

demo: ## Install, compile a real encoder, serve it, ask for embeddings, stop
	@.ci/setup demo
	@$(VENV)/bin/python .ci/demo.py

test: ## Install, then run all checks and all tests
	@.ci/setup dev
	@.ci/check
	@$(VENV)/bin/pytest -n $(TEST_WORKERS) --dist loadfile $(ARGS)

check: ## Format, lint, types, layers and the architecture tests
	@.ci/setup dev
	@.ci/check
	@$(VENV)/bin/pytest tests/architecture $(ARGS)

matrix: ## Every family under every task for every target of this host; writes docs/models.md
	@.ci/setup dev
	@$(VENV)/bin/python tests/bench/matrix_run.py $(ARGS)

bench: ## Compare the engine with other runtimes, side by side (ARGS="--json" and others)
	@.ci/setup bench
	@$(VENV)/bin/python tests/bench/engine.py $(ARGS)

clean: ## Remove everything that these targets made
	rm -rf $(VENV) .cache build dist infinity_v3.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
