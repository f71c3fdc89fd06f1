# Everything starts from Python 3.11 or newer; the rest is made in .venv from the versions in constraints.txt.
# A stamp in .venv tells what is installed, so that a second call starts at once.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -qq --progress-bar off --prefer-binary
QUESTION := Our run on eight H100s died at night. Seven ranks report NCCL timeouts, so is it the network?

.DEFAULT_GOAL := help
.PHONY: help demo test unit soak check lint types imports bench healthy docs wheel clean
.DELETE_ON_ERROR:

help:  ## Show what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

demo: $(VENV)/.installed  ## Set up, build the index and diagnose the bundled incident
	@$(BIN)/doctor index build
	@echo; echo '$$ doctor ask "$(QUESTION)" --run evals/demo/files'; echo
	@$(BIN)/doctor ask "$(QUESTION)" --run evals/demo/files

test: $(VENV)/.test  ## Run the tests
	@$(BIN)/python -m pytest -n 2 </dev/null

unit: $(VENV)/.test  ## Run the tests that start no program and take no long time
	@$(BIN)/python -m pytest -n 2 -m "not real and not soak" </dev/null

soak: $(VENV)/.test  ## Run the tests that take minutes: long fuzzing
	@$(BIN)/python -m pytest -m soak --timeout 3600 -s </dev/null

check: lint types imports test  ## The whole loop before a commit: style, types, import direction, tests

lint: $(VENV)/.dev
	@$(BIN)/ruff check .

types: $(VENV)/.dev
	@$(BIN)/pyright

imports: $(VENV)/.test
	@$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_architecture.py </dev/null

bench: $(VENV)/.test  ## Measure against the budgets; needs ripgrep
	@$(BIN)/python -m benchmarks.run

healthy: build/healthy/.installed  ## Record evals/healthy anew: tiny real trainings, in their own environment
	@build/healthy/bin/python evals/healthy/record.py

build/healthy/.installed: evals/healthy/requirements.txt evals/healthy/requirements-bare.txt | $(VENV)/bin/python
	@echo "installing the frameworks to record (many minutes the first time)" >&2
	@$(PYTHON) -m venv build/healthy
	@for list in requirements.txt "requirements-bare.txt --no-deps"; do PIP_DISABLE_PIP_VERSION_CHECK=1 \
		build/healthy/bin/python -m pip install -qq --progress-bar off -c constraints.txt -r evals/healthy/$$list; done
	@touch $@

docs: $(VENV)/.test  ## Write the pages of docs/ that are made from the code
	@$(BIN)/python docs/make.py

wheel: $(VENV)/.dev  ## Build the wheel into dist/
	@$(BIN)/python -m build --wheel .

clean:  ## Remove the environment and everything built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .bench

$(VENV)/bin/python:
	@test -n "$(PYTHON)" || { echo "doctor needs Python 3.11 or newer on PATH" >&2; exit 1; }
	@echo "making $(VENV) with $$($(PYTHON) --version)" >&2
	@$(PYTHON) -m venv $(VENV) || { echo "this Python cannot make environments: install its venv package" >&2; \
		rm -rf $(VENV); exit 1; }

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing doctor and what it needs (a few minutes the first time)" >&2
	@$(PIP) -c constraints.txt -e .
	@touch $@

$(VENV)/.test: $(VENV)/.installed
	@echo "installing what the tests need" >&2
	@$(PIP) -c constraints.txt -e '.[test]'
	@touch $@

$(VENV)/.dev: $(VENV)/.test
	@echo "installing what the checks need" >&2
	@$(PIP) -c constraints.txt -e '.[dev]'
	@touch $@
