# Everything sets itself up: `make demo` and `make test` need Python 3.11 or newer and nothing else.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv

# Docker images often set it; every process then compiles torch and the other libraries again, which takes 10 seconds.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-all test-cluster gpu docs docs-site check lock clean

setup: $(VENV)/.dev

# uv comes into the environment itself, so that nothing outside this folder is touched.
$(VENV)/.ready: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; try: make PYTHON=python3.11"; exit 2; }
	@test -x $(VENV)/bin/uv || { rm -rf $(VENV) && $(PYTHON) -m venv $(VENV) && $(VENV)/bin/pip install --quiet --disable-pip-version-check uv; }
	@VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/uv pip install --quiet --require-hashes -r requirements.lock
	@VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/uv pip install --quiet --no-deps --editable .
	@touch $@

# All extras, and the tools for tests, checks and the site.
$(VENV)/.dev: $(VENV)/.ready requirements-dev.lock
	@VIRTUAL_ENV=$(abspath $(VENV)) $(VENV)/bin/uv pip install --quiet --require-hashes -r requirements-dev.lock
	@touch $@

demo: $(VENV)/.ready
	$(VENV)/bin/sweep run quick

# Before each commit. One of these tests starts Ray, so that any worker may take any of them.
test: setup
	$(VENV)/bin/python -m pytest -q -n 2 --dist worksteal -m "not slow and not cluster"

# Also real sweeps with kills, long chaos, notebooks and studies over seeds; a file stays with one worker. Many tests
# wait for processes of their own, so that three workers keep two cores busy.
test-all: setup
	$(VENV)/bin/python -m pytest -q -n 3 --dist loadfile --no-loadscope-reorder --durations 30 -m "not cluster"

# Clusters of several nodes on this machine, jobs, drains, and losses of every kind: about seven minutes.
test-cluster: setup
	$(VENV)/bin/python -m pytest -q -m cluster

# For a machine with a GPU: about eight minutes by the times of its parts. It installs nothing: benchmarks/gpu.py lists
# what PYTHON must have.
gpu:
	PYTHONPATH=. $(PYTHON) -m pytest -q -n 8 -m gpu $$(grep -rl --include="*.py" "mark[.]gpu" tests/training)
	PYTHONPATH=. $(PYTHON) benchmarks/gpu.py

# The table of docs/techniques.md is generated from docstrings.
docs: setup
	$(VENV)/bin/python docs/technique_pages.py

# Also generates the pages of the commands, of the output for programs, and of the ledger.
docs-site: setup
	$(VENV)/bin/python -m sphinx -W --keep-going -q -b html docs build/site

check: setup
	$(VENV)/bin/ruff check .
	# What is written under one locale is read under another, so each file names its encoding.
	$(VENV)/bin/ruff check -q --preview --select PLW1514 training spaces ledger analysis search
	# What is said goes to the display.
	$(VENV)/bin/ruff check -q --select T20 search/core search/runner search/evaluation search/tracking search/copies search/presets
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

# Names, versions and hashes only; no download address may enter the locks. Both have the same versions.
LOCK = $(VENV)/bin/uv pip compile pyproject.toml --universal --python-version 3.11 --no-emit-index-url --generate-hashes \
  --no-annotate --no-header --quiet
lock: setup
	$(LOCK) --all-extras --group dev --output-file requirements-dev.lock
	$(LOCK) --constraints requirements-dev.lock --output-file requirements.lock

clean:
	rm -rf $(VENV)
