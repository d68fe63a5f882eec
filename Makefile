# Every target sets up what it needs: a fresh clone needs only python3 (3.11 or newer) and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help train test lint types results benchmark clean

help:            ## what can be made
	@grep -E '^[a-z]+: .*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 12

# torch goes first and pinned: its CPU build is all that is needed, and only pip finds it.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; run make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $(READY)

train: $(READY)  ## the main job, two minutes on two cores: SAC on the synthetic market, with a report to open
	$(BIN)/python recipes/offpolicy.py

test: $(READY)   ## all tests, under 15 minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

lint: $(READY)   ## style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## type checks
	$(BIN)/mypy
	$(BIN)/mypy benchmarks

results: $(READY) ## every figure of docs/results.md: hours, resumable
	$(BIN)/python results/run.py

benchmark: $(READY) ## speed and memory against other libraries: an hour
	$(BIN)/python benchmarks/environment.py
	$(BIN)/python benchmarks/loading.py
	$(BIN)/python benchmarks/gym_view.py
	$(BIN)/python benchmarks/learner.py
	$(BIN)/python benchmarks/time_to_optimum.py
	$(BIN)/python benchmarks/exploring.py
	$(BIN)/python benchmarks/option_steps.py
	$(BIN)/python benchmarks/onpolicy.py
	$(BIN)/python benchmarks/evolution.py
	$(BIN)/python benchmarks/distributed.py

clean:           ## removes the virtual environment and what was made
	rm -rf $(VENV) outputs results/.cache
