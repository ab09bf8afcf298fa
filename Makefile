# Every target says what is missing on this machine before it starts, installs into .venv, and is quick the second time.
# PYTHON=... and CXX=... choose the interpreter and the compiler, TEST_WORKERS=... the number of test processes.
SHELL := bash
VENV := .venv
TEST_WORKERS ?= 2
ARGS ?=

.PHONY: help demo test check matrix docs bench bench-quick clients crashes faults fuzz image story clean
.DEFAULT_GOAL := help

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: ## Install, compile a real encoder, serve it, ask for embeddings, stop
	@.ci/setup demo
	@$(VENV)/bin/python .ci/demo.py

test: ## Install, then run all checks and all tests
	@.ci/setup dev
	@.ci/check
	@$(VENV)/bin/pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

check: ## Format, lint, types, layers and the architecture tests
	@.ci/setup dev
	@.ci/check
	@$(VENV)/bin/pytest tests/architecture $(ARGS)

matrix: ## Every family under every task for every target of this host; writes docs/models.md
	@.ci/setup dev
	@$(VENV)/bin/python tests/bench/matrix_run.py $(ARGS)

docs: ## Write docs/configuration.md from the options of the server
	@.ci/setup dev
	@$(VENV)/bin/python tests/support/configuration_page.py

bench: ## Compare the engine with other runtimes, side by side (ARGS="--json" and others)
	@.ci/setup bench
	@$(VENV)/bin/python tests/bench/engine.py $(ARGS)

bench-quick: ## Fail where an engine fell behind the ratios recorded for this kind of machine
	@.ci/setup bench
	@$(VENV)/bin/python tests/bench/quick.py $(ARGS)

clients: ## Published clients, pinned, against real servers; writes docs/reports/clients.md (ARGS="--only NAME", "--json")
	@.ci/setup dev
	@$(VENV)/bin/python tests/clients/run.py $(ARGS)

crashes: ## Kill processes at work on one registry two hundred times; nothing may be lost; writes docs/reports/registry-crashes.md
	@.ci/setup dev
	@$(VENV)/bin/python tests/e2e/registry_crashes.py --report docs/reports/registry-crashes.md $(ARGS)

story: ## Two versions from compiling to production and back, under load, step by step
	@.ci/setup dev
	@$(VENV)/bin/python tests/e2e/promotion_story.py $(ARGS)

faults: ## Overload a real server for ten minutes, then everything clients do wrong; writes docs/reports/faults.md
	@.ci/setup dev
	@$(VENV)/bin/python tests/e2e/faults.py $(ARGS)

fuzz: ## 200,000 inputs to codecs, routes and real servers; writes docs/reports/fuzz.md
	@.ci/setup dev
	@$(VENV)/bin/python tests/fuzz/fuzz.py $(ARGS)

image: ## Prove the serving image's content without a container tool (ARGS="--artifact DIR")
	@.ci/setup demo
	@$(VENV)/bin/python docs/operations/container/prove.py $(ARGS)

clean: ## Remove everything that these targets made
	rm -rf $(VENV) .venv-clients .cache build dist infinity_v3.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
