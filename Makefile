# Everything a developer runs. `make` alone lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test check fmt cover bench soak openapi build clean

help: ## list the targets
	@sed -nE 's/^([a-z]+):.*## (.*)/  make \1        \2/; s/^(  make .{8}) *(.*)/\1\2/p' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all,dev]' -c constraints.txt
	@touch $@

demo: $(STAMP) ## kill workers in the middle of a workflow and of jobs, and count what is left
	@$(BIN)/holdfast demo

# One process more than cores, as many tests wait for others; files in their order, as those with few tests are slow.
test: $(STAMP) ## run the whole suite, side by side
	$(BIN)/python -m pytest -n $$($(BIN)/python -c "import os; print(1 + (os.cpu_count() or 1))") --dist loadfile --no-loadscope-reorder

check: $(STAMP) ## lint, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(STAMP) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

cover: $(STAMP) ## run the suite with branch coverage
	$(BIN)/python -m coverage run -m pytest
	$(BIN)/python -m coverage report --skip-covered

bench: $(STAMP) ## measure jobs and workflows beside peers, journal and stores beside the bare limit
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[peers]' -c constraints.txt
	$(BIN)/python -m benchmarks jobs
	$(BIN)/python -m benchmarks workflows
	$(BIN)/python -m benchmarks serve
	$(BIN)/python -m benchmarks journal
	$(BIN)/python -m benchmarks store --full

soak: $(STAMP) ## long fault runs
	HOLDFAST_SOAK=1 $(BIN)/python -m pytest --timeout=3600

openapi: $(STAMP) ## write the description of the HTTP API anew
	$(BIN)/python -m holdfast.web.api > docs/reference/openapi.json

build: $(STAMP) ## build wheel and sdist
	$(BIN)/python -m pip install --quiet build && $(BIN)/python -m build

clean: ## remove what the targets made
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
