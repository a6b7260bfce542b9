# Two commands do everything on a machine with Python and make: `make demo` and `make test`.
# Each stamp in .venv is remade only when what it depends on changes, so a second run starts at once.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-all lint types bench docs clean
demo: .venv/.core
	$(BIN)/cape demo

test: lint types
	$(BIN)/python -m pytest -n auto -m "not slow" --cov --cov-report=term

test-all: lint types
	$(BIN)/python -m pytest -n auto --cov --cov-report=term

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.test
	$(BIN)/mypy

bench: .venv/.test
	$(BIN)/python -m benchmarks

docs: .venv/.docs
	$(BIN)/python docs/figures.py
	$(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf .venv site .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage

.venv/.core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $@

.venv/.test .venv/.docs: .venv/.%: .venv/.core
	$(PIP) -e '.[$*]'
	touch $@
