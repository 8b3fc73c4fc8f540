# Each target sets up .venv if it is missing. `make` alone builds the book.
# Settings: PYTHON=python3.12  TORCH=cuda  TORCH_INDEX=  NAME=01_model_size  PY=python3
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := book
.PHONY: book test test-long lab record planner-check serve clean

PYTHON ?= python3
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
TORCH ?= $(if $(wildcard .venv/.ready-cuda),cuda,cpu)
BIN := .venv/bin
READY := .venv/.ready-$(TORCH)

# Two OpenMP threads collapse beside a busy process unless they wait passively.
export OMP_WAIT_POLICY ?= PASSIVE
export HF_HUB_OFFLINE ?= 1

book: $(READY)
	$(BIN)/jupyter-book build . -W -n --keep-going
	@echo 'Open file://$(CURDIR)/_build/html/index.html'

test: $(READY)
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/pytest
	CI=true $(BIN)/pytest --nbval labs
	CI=true GPULAB_DEVICE=standin GPULAB_TINY=1 $(BIN)/pytest --nbval labs

test-long: $(READY)
	$(BIN)/pytest -m long
	CI=true GPULAB_TINY=1 ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 $(BIN)/pytest --nbval labs

lab: $(READY)  # NAME=01_model_size: run it, store its outputs
	$(BIN)/python tests/make_lab.py $(NAME)

record: $(if $(PY),,$(READY))  # PY=python3: that Python as it is, nothing installed
	$(or $(PY),$(BIN)/python) -m gpulab_utils record $(NAME)

planner-check: $(READY)
	$(BIN)/python tests/planner_check.py 200 gpulab_utils/data/planner_check.json

serve: book
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory _build/html 8000

clean:  # .venv stays: rm -r .venv for a new set-up
	rm -rf _build build dist *.egg-info .pytest_cache .ruff_cache

# torch comes first and alone: the CPU build brings no CUDA packages, and the lock accepts
# it. Where the index does not answer, the registry's own build and its packages are taken.
$(READY): requirements.txt requirements-nodeps.txt pyproject.toml
	@$(MAKE) --no-print-directory .venv/bin/pip
	$(if $(wildcard .venv/.ready-*),$(if $(wildcard $(READY)),,$(BIN)/pip uninstall -qy torch; rm .venv/.ready-*))
	$(if $(filter cuda,$(TORCH)),,$(FROM_INDEX) ||) $(BIN)/pip install --no-deps $(PIN)
	$(BIN)/pip install -r requirements.txt
	$(BIN)/pip install --no-deps -r requirements-nodeps.txt
	$(BIN)/pip install --no-deps --no-build-isolation -e .
	touch $@

PIN = $$(grep '^torch==' requirements.txt)
FROM_INDEX = $(BIN)/pip --retries 1 --timeout 5 install --no-deps $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) $(PIN)
SUITS = import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))

.venv/bin/pip:
	@for python in $(PYTHON) python3.13 python3.12 python3.11; do \
	  if $$python -c '$(SUITS)' 2>/dev/null; then exec $$python -m venv .venv; fi; done; \
	echo "Python 3.11, 3.12 or 3.13 is needed, $(PYTHON) is $$($(PYTHON) --version 2>&1). \
	Install one and name it: make PYTHON=python3.12" >&2; exit 1
