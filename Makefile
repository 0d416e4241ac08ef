# Each goal works on a fresh machine with Python 3.11 to 3.13 and nothing else: it first makes .venv, once.

VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
WORKERS ?= 2

# Nothing asks questions, and pip's advice about itself is noise in a log.
export PIP_NO_INPUT = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: help demo test lint types bench clean

help:
	@echo 'make demo    fuzz the operators in examples/, show what is wrong with them, replay it'
	@echo 'make test    the tests'
	@echo 'make lint    ruff, and the contract about who may import whom'
	@echo 'make types   mypy'
	@echo 'make bench   known and planted faults found, false alarms raised, what a check costs'
	@echo 'make clean   remove what these commands made'

demo: $(READY)
	@$(PY) examples/demo.py

test: $(READY)
	@$(PY) -m pytest -q -n $(WORKERS) tests

lint: $(READY)
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(VENV)/bin/lint-imports --no-logo

types: $(READY)
	@$(PY) -m mypy

bench: $(READY)
	@$(PY) -m benchmarks.zoo
	@$(PY) -m benchmarks.detection
	@$(PY) -m benchmarks.cost
	@$(PY) -m benchmarks.throughput

clean:
	rm -rf $(VENV) build dist *.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache

# Made again when what is to be installed changes. PYTHON=python3.12 chooses the interpreter.
$(READY): pyproject.toml constraints.txt
	@for python in $(or $(PYTHON),python3 python3.13 python3.12 python3.11); do \
	    if "$$python" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then \
	        found=$$python; break; \
	    fi; \
	done; \
	if [ -z "$$found" ]; then \
	    echo 'gradfuzz needs Python 3.11, 3.12 or 3.13; name one with PYTHON=/path/to/python' >&2; exit 1; \
	fi; \
	echo "preparing $(VENV) with $$($$found --version); the first time takes a minute or two"; \
	$$found -m venv $(VENV)
	@$(PY) -m pip install -qq --constraint constraints.txt --editable '.[dev]'
	@touch $@
