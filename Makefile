# Everything starts from Python 3.11 or newer; the rest is made in .venv from the versions in constraints.txt.
# A stamp in .venv tells what is installed, so that a second call starts at once.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip install -qq --progress-bar off --prefer-binary
QUESTION := Our run on eight H100s died at night. Seven ranks report NCCL timeouts, so is it the network?

PLATFORM ?= manylinux_2_28_x86_64
PYTHON_VERSION ?= 3.11
EXTRAS ?=
TORCH_INDEX ?=
MIRROR ?=

.DEFAULT_GOAL := help
.PHONY: help demo test unit soak check lint types imports bench incidents healthy repairs checkouts messages weights reader inspection docs pictures wheel wheelhouse clean
.DELETE_ON_ERROR:

help:  ## Show what can be made
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 10

demo: $(VENV)/.installed  ## Set up, build the index and diagnose the bundled incident
	@$(BIN)/doctor index build
	@echo; echo '$$ doctor ask "$(QUESTION)" --run evals/demo/files'; echo
	@$(BIN)/doctor ask "$(QUESTION)" --run evals/demo/files

test: $(VENV)/.test  ## Run the tests
	@$(BIN)/python -m pytest -n 2 --dist worksteal </dev/null

unit: $(VENV)/.test  ## Run the tests that start no program and take no long time
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not real and not soak" </dev/null

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

incidents: build/recording/.installed  ## Record evals/recorded anew: tiny real trainings, each with one fault
	@build/recording/bin/python evals/recorders/record.py

healthy: build/recording/.installed  ## Record evals/healthy anew: tiny real trainings without a fault
	@build/recording/bin/python evals/recorders/record.py evals/healthy

repairs: build/recording/.installed $(VENV)/.installed  ## Break, diagnose, apply, run again: which repairs repair
	@build/recording/bin/python evals/recorders/repair.py

checkouts: build/checkout-env/.installed  ## Carry out the recipes of evals/checkouts into build/checkouts (MIRROR=, a folder of git directories)
	@build/checkout-env/bin/python evals/recorders/checkout.py $(if $(MIRROR),--mirror "$(MIRROR)")

build/checkout-env/.installed: evals/checkouts/requirements.txt | $(VENV)/bin/python
	@echo "installing what public projects import (many minutes the first time)" >&2
	@$(PYTHON) -m venv build/checkout-env
	@PIP_DISABLE_PIP_VERSION_CHECK=1 build/checkout-env/bin/python -m pip install -qq --progress-bar off -r evals/checkouts/requirements.txt
	@touch $@

build/recording/.installed: evals/recorders/requirements.txt evals/recorders/requirements-bare.txt | $(VENV)/bin/python
	@echo "installing the frameworks to record (many minutes the first time)" >&2
	@$(PYTHON) -m venv build/recording
	@for list in requirements.txt "requirements-bare.txt --no-deps"; do PIP_DISABLE_PIP_VERSION_CHECK=1 \
		build/recording/bin/python -m pip install -qq --progress-bar off -c constraints.txt -r evals/recorders/$$list; done
	@touch $@

messages: $(VENV)/.installed  ## Read knowledge/messages.tsv anew from the sources of the libraries (MIRROR=, a folder of git directories)
	@$(BIN)/python -m traindoctor.evals.recorders.messages --mirror "$(MIRROR)"

weights: $(VENV)/.test  ## Fit the ranking's weights (knowledge/weights.yaml), some six minutes; the figures are cross-validated
	@$(BIN)/python -m traindoctor.evals.weighing.fit

reader: $(VENV)/.test  ## Train the reader (knowledge/reader.bin) on the written cases of evals/cases, about a minute
	@$(BIN)/python -m traindoctor.evals.reader.train

inspection: build/inspection/.installed  ## Set up build/inspection: inspect-ai beside doctor, and test the two together
	@build/inspection/bin/python -m pytest -p no:xdist tests/evals/test_inspection.py </dev/null

build/inspection/.installed: evals/inspection/requirements.txt $(VENV)/.test
	@$(PYTHON) -m venv build/inspection
	@build/inspection/bin/python -c 'import pathlib, sys, sysconfig; \
		pathlib.Path(sysconfig.get_path("purelib"), "beside.pth").write_text("import site; site.addsitedir(%r)\n" % sys.argv[1])' \
		"$$($(abspath $(BIN))/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
	@PIP_DISABLE_PIP_VERSION_CHECK=1 build/inspection/bin/python -m pip install -qq --progress-bar off --no-deps \
		-r evals/inspection/requirements.txt -e .
	@touch $@

docs: $(VENV)/.test  ## Write the pages of docs/ that are made from the code
	@$(BIN)/python docs/make.py

pictures: $(VENV)/.test  ## Draw the pictures of docs/chat.md from the real program
	@$(BIN)/python docs/pictures.py

wheel: $(VENV)/.dev  ## Build the wheel into dist/
	@$(BIN)/python -m build --wheel .

wheelhouse:  ## All files for machines without network, into build/wheelhouse/ (PLATFORM=, PYTHON_VERSION=, EXTRAS=)
	@p=python$(PYTHON_VERSION); command -v $$p >/dev/null || p="$(PYTHON)"; test -n "$$p" || \
		{ echo "no Python $(PYTHON_VERSION) on PATH" >&2; exit 1; }; rm -rf build/wheelhouse.python; \
		$$p -m venv build/wheelhouse.python && build/wheelhouse.python/bin/python docs/wheelhouse.py \
		--platform "$(PLATFORM)" --python-version "$(PYTHON_VERSION)" --extras "$(EXTRAS)" --torch-index "$(TORCH_INDEX)"

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
