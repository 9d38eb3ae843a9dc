# Every target sets up .venv by itself, and again when pyproject.toml or constraints.txt change: first
# what the demo needs, then, for all other targets, the developers' tools.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO   := $(VENV)/.demo
READY  := $(VENV)/.ready
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e

.PHONY: demo test check lint types pytest slow bench docs format clean

$(DEMO): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) ".[report]"
	touch $@

$(READY): $(DEMO)
	$(INSTALL) ".[dev]"
	touch $@

demo: $(DEMO)       ## the whole job on embedded data, ending with a report to open
	$(BIN)/relook demo --out runs/demo

test: check         ## what CI runs

check: lint types pytest

lint: $(READY)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports --no-logo

types: $(READY)
	$(BIN)/mypy

pytest: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

slow: $(READY)      ## the tests that take minutes
	$(BIN)/python -m pytest -m slow

bench: $(READY)     ## benchmarks; each prints ratios measured side by side
	@for name in selection views pool inference inference_onnx demo; do \
	    echo "== $$name"; $(BIN)/python benchmarks/$$name.py || exit 1; done

docs: $(READY)      ## the documentation site; strict, so not quiet, which would hide what fails it
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo site/index.html

format: $(READY)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis runs site
