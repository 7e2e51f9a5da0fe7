# Every target sets up what it needs; nothing is expected but Python 3.11+ and make.
PY := .venv/bin/python
READY := .venv/.ready
PEERS := .venv-peers/.ready
JOBS ?= 2
PYTEST := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(PY) -m pytest -n $(JOBS) --dist loadgroup

.DEFAULT_GOAL := help
.PHONY: help env demo check test test-slow bench bench-check docs lint format lock dist supply-chain clean

help:  ## show the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

env: $(READY)  ## create the environment in .venv

$(READY): requirements.lock pyproject.toml scripts/create-env.sh
	@bash scripts/create-env.sh
	@touch $(READY)

demo: $(READY)  ## one story in under a minute: three hospitals, one model, ε = 1 per person
	@$(PY) -m permea demo

check: lint  ## lint, types and the tests that your change touches (under a minute; BASE=main for a branch)
	@PERMEA_TEST_SECONDS=40 $(PYTEST) -rs $$($(PY) scripts/changed_tests.py $(BASE))

test: lint  ## lint, types and all fast tests (about five minutes on two cores)
	@$(PYTEST)

$(PEERS): $(READY) pyproject.toml
	@echo "creating .venv-peers with the libraries that we compare with (once; some gigabytes)"
	@rm -rf .venv-peers && $(PY) -m venv .venv-peers
	@.venv-peers/bin/pip --disable-pip-version-check -qq install -e '.[dev,peers]'
	@touch $(PEERS)

test-slow: $(PEERS)  ## the tests that need real data, long statistics or other libraries
	@.venv-peers/bin/python -m pytest -m slow

bench: $(PEERS)  ## the benchmarks, one after the other (hours for the full set)
	@.venv-peers/bin/python -m benchmarks run --all

bench-check: $(READY)  ## ratios of times beside the stored ones; fails where one is 30 % slower
	@$(PY) -m benchmarks check

docs: $(READY)  ## build the documentation, warnings are errors
	@$(PY) -m sphinx -W --keep-going -b html docs docs/_build/html

lint: $(READY)  ## lint, format check and types
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

format: $(READY)  ## format and fix what can be fixed
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

lock:  ## refresh requirements.lock from pyproject.toml
	@python3 -m venv .venv-lock && .venv-lock/bin/pip install -q uv
	@.venv-lock/bin/uv pip compile -q --universal --python-version 3.11 --extra dev \
	  --no-emit-index-url --no-header --no-annotate -o requirements.lock pyproject.toml
	@rm -rf .venv-lock

dist: $(READY)  ## build wheel and source distribution in dist/
	@.venv/bin/uv build --quiet --out-dir dist . && ls dist

supply-chain: $(READY)  ## licences and bill of materials of the dependencies in dist/, and known vulnerabilities
	@mkdir -p dist
	@$(PY) scripts/supply_chain.py licences -o dist/licences.md
	@$(PY) scripts/supply_chain.py sbom -o dist/sbom.cdx.json
	@.venv/bin/uv tool run --quiet pip-audit --requirement requirements.lock --no-deps --disable-pip --progress-spinner off

clean:  ## remove the environment and everything that was generated
	@rm -rf .venv .venv-peers docs/_build docs/auto_gallery build dist .pytest_cache .mypy_cache .ruff_cache
