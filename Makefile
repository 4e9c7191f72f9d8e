# Everything stays inside this clone (.venv, .cache, results), but for Debian packages that are missing.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

BIN := .venv/bin

export PYTHONNOUSERSITE := 1

.PHONY: help demo test lint bench setup agents gitnexus oak jj lock clean

help: ## show this
	@sed -n 's/^\([a-z]*\):.*## /make \1\t/p' $(firstword $(MAKEFILE_LIST)) | expand --tabs=14

demo: ## set up, then compare two ways of working (scripted, offline), measure git at a task and under faults
	@requirements/setup run
	rm -rf .cache/demo
	$(BIN)/fairtrial init .cache/demo
	$(BIN)/fairtrial -q check .cache/demo/tasks.yaml --runs 1 --workers 2
	$(BIN)/fairtrial bench --tasks .cache/demo/tasks.yaml --arms baseline workflow --runs 2 --workers 2 \
	  --agent bash-agent --model claude-sonnet-4-5 --script .cache/demo/script.yaml \
	  --skill plan=.cache/demo/skills/tally-plan --skill work=.cache/demo/skills/tally-work
	$(BIN)/fairtrial loop --subjects git --scenarios task_loop,agent_task_baseline_v1 --transport file,http --runs 3
	$(BIN)/fairtrial loop --subjects git --scenarios publication_under_fault_v1 --transport http --runs 1 --faults \
	  reply_lost_reused,reply_lost_fresh,request_lost,client_killed,server_refuses

# More processes than cores: tests wait for half of their time.
test: setup ## set up, then run every test (ARGS="-k name" or a path for some)
	$(BIN)/python -m pytest -n 3 --dist loadgroup $(ARGS)

# pyright would look for a newer release of itself, and use the home directory and /tmp.
lint: export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
lint: export XDG_CACHE_HOME := $(CURDIR)/.cache
lint: export TMPDIR := $(CURDIR)/.cache/t
lint: setup ## format, lint, types, imports, dependencies, rules of the house
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/lint-imports --cache-dir .cache/import_linter
	$(BIN)/deptry src
	$(BIN)/python -m pytest -q -n 0 tests/architecture/test_house.py tests/architecture/test_attack_table.py

bench: setup ## run every benchmark; keep the machine idle
	over=; for benchmark in benchmarks/*.py; do echo "== $$benchmark"; $(BIN)/python "$$benchmark" || over+=" $$benchmark"; done; \
	  [[ -z $$over ]] || { echo "over its limit, or could not run:$$over" >&2; exit 1; }

setup: ## make .venv hold what requirements/dev.lock lists
	@requirements/setup dev

agents: ## install the agent command lines (2 GB) below .cache/agents; print what to put on PATH
	@requirements/agents/setup

gitnexus: ## install the context gitnexus (840 MB; noncommercial use alone) below .cache/gitnexus; print what to put on PATH
	@requirements/gitnexus/setup

oak: ## put oak below .cache/built, built where no copy is at hand (15 minutes); print what to put on PATH
	@requirements/built/setup oak

jj: ## the same for jj
	@requirements/built/setup jj

COMPILE := CUSTOM_COMPILE_COMMAND='make lock' $(BIN)/pip-compile --quiet --strip-extras --allow-unsafe --generate-hashes \
	--no-emit-index-url --no-emit-trusted-host --no-emit-find-links --cache-dir .cache/pip-tools $(UPGRADE)

lock: setup ## pin requirements again after a change (UPGRADE=--upgrade for the newest versions)
	$(COMPILE) --output-file requirements/run.lock pyproject.toml requirements/run.in
	$(COMPILE) --output-file requirements/dev.lock pyproject.toml requirements/run.in requirements/dev.in
	$(COMPILE) --output-file requirements/mini-swe-agent.lock requirements/mini-swe-agent.in
	$(COMPILE) --output-file requirements/node.lock requirements/node.in

clean: ## remove .venv and every cache; results stay
	[ ! -d .cache ] || chmod -R u+rwX .cache # a frozen candidate's directories are read-only
	rm -rf .venv .cache .hypothesis dist
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
