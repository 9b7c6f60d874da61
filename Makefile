# `make help` lists what there is. Needs git, make and Python 3.11 or newer; everything else is installed into .venv.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CLUSTER ?= $(or $(ROBUSTRL_CLUSTER),robustrl)
NODES ?= 8
export ROBUSTRL_CLUSTER := $(CLUSTER)

VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python -m
# The first interpreter that runs and is new enough; 3.11 before others, because it is what the images have.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
# Named after what it was installed from, so that a change installs anew and nothing else does.
STAMP := $(VENV)/.installed-$(shell cat requirements/all.txt pyproject.toml | cksum | cut -d' ' -f1)

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/\1\t\2/p' $(MAKEFILE_LIST) | awk -F'\t' '{printf "%-14s %s\n", $$1, $$2}'

.PHONY: venv
venv: $(STAMP) ## create .venv with the pinned packages and the project

$(STAMP):
	@if [ -z "$(PYTHON)" ]; then \
		echo "no Python 3.11 or newer found: install python3.11 and python3.11-venv, or say make PYTHON=..." >&2; exit 1; fi
	@[ -x $(BIN)/python ] || if command -v uv >/dev/null; then uv venv --quiet --seed --python $(PYTHON) $(VENV); \
		else $(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "venv failed: install the package python3.11-venv (Debian, Ubuntu)" >&2; exit 1; }; fi
	@echo "installing the pinned packages into $(VENV), torch among them: some minutes, once"
	@if command -v uv >/dev/null; then \
		uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r requirements/all.txt; \
		uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .; \
	else \
		$(RUN) pip install --quiet --disable-pip-version-check --compile --require-hashes -r requirements/all.txt; \
		$(RUN) pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .; \
	fi || { echo "installing failed: see above; it needs a package index and 8 GB of disk" >&2; exit 1; }
	@rm -f $(VENV)/.installed-*
	@touch $@

# Tests. One pytest session, so that its closing line counts everything.

.PHONY: test
test: lint ## everything: lint, unit tests, whole jobs on this machine, and the cluster where this machine can
	@why="$$(.ci/why-no-cluster)"; \
	if [ -n "$$why" ]; then \
		echo "SKIPPED: the tests on a cluster (pytest -m cluster), because $$why"; \
		exec $(RUN) pytest tests e2e -m "not cluster"; \
	fi; \
	$(RUN) robustrl_e2e.cluster up --name $(CLUSTER) --nodes $(NODES); \
	exec $(RUN) pytest tests e2e

.PHONY: test-unit
test-unit: venv ## unit tests only: no cluster, no whole job
	@$(RUN) pytest tests -m "not local and not cluster"

.PHONY: test-local
test-local: venv ## whole jobs as processes on this machine
	@$(RUN) pytest tests -m local || [ $$? -eq 5 ]

.PHONY: test-cluster
test-cluster: venv ## the tests on the development cluster, which is started first
	@why="$$(.ci/why-no-cluster)"; [ -z "$$why" ] || { echo "no cluster on this machine: $$why" >&2; exit 1; }
	@$(RUN) robustrl_e2e.cluster up --name $(CLUSTER) --nodes $(NODES)
	@$(RUN) pytest e2e -m cluster

.PHONY: test-gpu
test-gpu: venv ## weights from GPU to GPU, on a machine that has one
	@$(RUN) pytest tests/gpu -m gpu

.PHONY: lint
lint: venv ## ruff, mypy --strict, import layers, generated files in step
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(MAKE) in-step

.PHONY: in-step
in-step: venv ## the CRD and the generated pages of docs/ are what the models give
	@$(RUN) robustrl_api.crd | cmp - crds/rljob.yaml || { echo "the CRD is not what the models give: make crd" >&2; exit 1; }
	@cmp crds/rljob.yaml charts/robustrl/crds/rljob.yaml || { echo "the chart's CRD is another one: make crd" >&2; exit 1; }
	@for page in api faults; do $(BIN)/python docs/generate_$$page.py | cmp - docs/$$page.md || \
		{ echo "docs/$$page.md is not what the models and the fault matrix give: make docs" >&2; exit 1; }; done

# Generated files.

.PHONY: crd
crd: venv ## write the CRD from the models, for kubectl and for the chart
	@$(RUN) robustrl_api.crd > crds/rljob.yaml.new
	@mv crds/rljob.yaml.new crds/rljob.yaml
	@cp crds/rljob.yaml charts/robustrl/crds/rljob.yaml

.PHONY: docs
docs: venv ## write docs/api.md from the models, docs/faults.md from the fault matrix
	@for page in api faults; do \
		$(BIN)/python docs/generate_$$page.py > docs/$$page.md.new && mv docs/$$page.md.new docs/$$page.md; done

COMPILE := uv pip compile pyproject.toml --quiet --python-version 3.11 --generate-hashes --no-emit-index-url \
	--no-header --no-annotate

.PHONY: requirements
requirements: ## choose the pinned versions anew (needs uv)
	@command -v uv >/dev/null || { echo "this needs uv: pip install uv" >&2; exit 1; }
	@$(COMPILE) --all-extras --output-file requirements/all.txt
	@$(COMPILE) --extra agent --extra operator --constraints requirements/all.txt --output-file requirements/image.txt

# The development cluster and what is shown on it.

.PHONY: cluster
cluster: venv ## start the development cluster (root), or mend it; CLUSTER=name NODES=8
	@$(RUN) robustrl_e2e.cluster up --name $(CLUSTER) --nodes $(NODES)

.PHONY: cluster-down
cluster-down: venv ## remove the development cluster and all it left
	@$(RUN) robustrl_e2e.cluster down --name $(CLUSTER)

.PHONY: demo
demo: venv ## a job on the development cluster, and faults
	@$(RUN) robustrl_e2e.demo

.PHONY: bench
bench: venv ## measure recoveries, role-based against whole-job
	@$(BIN)/python bench/recovery.py

.PHONY: faults
faults: venv ## play every row of the fault matrix on the development cluster and time it; ROWS="worker trainer-pod"
	@$(BIN)/python bench/recovery.py --name $(CLUSTER) --repeat 1 --rows $(or $(ROWS),all) --out out/faults.json

.PHONY: soak
soak: venv ## the example on this machine under random faults; MINUTES=30 (of 30 steps each) SEED=n
	@$(BIN)/robustrl soak examples/sort4/rljob.yaml --minutes $(or $(MINUTES),30) $(if $(SEED),--seed $(SEED)) --reach exact=0.9

.PHONY: bench-weights
bench-weights: venv ## measure the transfer of weights, each figure beside its limit (root: many machines); PARTS="..."
	@$(BIN)/python bench/weights $(PARTS)

.PHONY: image
image: venv ## the project's image, by docker; IMAGE=name:tag
	@command -v docker >/dev/null || { echo "this needs docker; the development cluster builds its own image without" >&2; exit 1; }
	@rm -rf out/image && mkdir -p out/image/wheels
	@$(RUN) pip wheel --quiet --no-deps --no-build-isolation --wheel-dir out/image/wheels .
	@$(RUN) pip download --quiet --require-hashes --no-deps --dest out/image/wheels -r requirements/image.txt
	@docker build --tag $(or $(IMAGE),localhost/robustrl:dev) --file Dockerfile out/image

.PHONY: clean
clean: ## remove what was built and cached here; .venv and clusters stay
	@rm -rf out dist build .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	@find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
