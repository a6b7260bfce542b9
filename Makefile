# Two commands do everything on a machine with Python and make: `make demo` and `make test`.
# Each stamp in .venv is remade only when what it depends on changes, so a second run starts at once.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test check test-all test-slow test-torch test-deploy test-databases test-browser test-desk image test-image lint types bench mutants audit audit-slice paper docs clean
demo: .venv/.core
	$(BIN)/cape demo

PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist worksteal
# Types are checked beside the tests, which leave a core idle at their ends, and said after them.
test: lint
	@said=$$(mktemp); $(BIN)/mypy > $$said 2>&1 & types=$$!; \
	echo '$(PYTEST) -m "not slow"'; $(PYTEST) -m "not slow"; tests=$$?; \
	wait $$types; types=$$?; echo "$(BIN)/mypy"; cat $$said; rm $$said; \
	[ $$tests -eq 0 ] && [ $$types -eq 0 ]

# One package, in seconds: `make check PACKAGE=analyses/survival`, with the tests that CI would run first. mypy keeps
# what it knows of all others, checks what depends on an edit, and so sees what the edit breaks elsewhere.
check: .venv/.test
	@found=$$($(BIN)/python .ci/changes.py package "$(PACKAGE)") || exit; tests=$${found#* }; set -ex; \
	$(BIN)/ruff check $$found; $(BIN)/ruff format --check $$found; $(BIN)/mypy; $(PYTEST) -m "not slow" $$tests

test-all: lint types
	$(PYTEST) --hypothesis-profile=thorough --cov --cov-report=term

# A slice of what `make test` leaves out (tests/slices.py): `make test-slow SLICE=2/5`, or the next one every day.
SLICE ?= $(shell expr `date +%s` / 86400)/5
test-slow: .venv/.test
	$(PYTEST) --slice=$(SLICE)

test-torch: .venv-torch/.test
	.venv-torch/bin/python -m pytest tests/torch

test-deploy: .venv-flare/.test
	.venv-flare/bin/python -m pytest tests/deploy -n 2 --dist loadfile

# Starts PostgreSQL, MariaDB and Spark, which .ci/packages installs.
test-databases: .venv/.test .venv/.databases
	PATH="$$PATH:/usr/lib/jvm/default-java/bin" $(BIN)/python -m pytest tests/databases

# Debian's Chromium looks at the built pages with the network off; npm fetches axe-core once. Pictures: browser-out/.
test-browser: .venv/.test .venv/.docs .venv/.browser
	$(BIN)/python -m pytest tests/browser

# Chromium at the desks of real processes: an aggregator, three sites, a coordinator. Pictures: browser-out/, and for
# the pages of docs/ with `make test-desk DOCS=1`.
test-desk: .venv-flare/.test
	.venv-flare/bin/python -m pytest tests/desk $(if $(DOCS),--docs)

# The image of a deployment, from Debian's packages, as root: build/image/cape-dp.tar, and what is in it.
# It needs mmdebstrap and buildah, its test bubblewrap besides (.ci/packages); not part of CI: five minutes.
image: .venv/.core
	PYTHON=$(BIN)/python image/build

test-image: image .venv/.test
	$(BIN)/python -m pytest tests/image

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.test
	$(BIN)/mypy

bench: .venv/.test .venv-peers/.bench
	$(BIN)/python -m benchmarks

# All of them, or some: `make mutants SAMPLE=12` takes others every day.
mutants: .venv/.test
	$(BIN)/python -m assurance mutants $(if $(SAMPLE),--sample $(SAMPLE))

# A slice of `cape audit --fast`: `make audit-slice SLICE=2/5`, or the next one every day.
audit-slice: .venv/.test
	$(BIN)/cape audit --fast --slice $(SLICE)

# Takes three quarters of an hour. What could not be checked here (status 3) is said so on the page, and is no failure.
audit: .venv/.test .venv/.audit
	$(BIN)/cape audit --out assurance-out
	$(BIN)/python -m assurance; status=$$?; $(BIN)/python -m assurance page && { [ $$status -eq 0 ] || [ $$status -eq 3 ]; }

paper: .venv/.reproduction
	$(BIN)/python -m reproduction all --out paper

docs: .venv/.docs
	$(BIN)/python docs/figures.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

clean:
	rm -rf .venv .venv-torch .venv-flare .venv-peers .cache browser-out site .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage

.venv/.core: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) -e .
	touch $@

.venv/.docs .venv/.browser .venv/.audit .venv/.reproduction .venv/.databases: .venv/.%: .venv/.core
	$(PIP) -e '.[$*]'
	touch $@

# The last are the reference for survival: lifelines asks for pandas 2, and what the tests call works with 3.
.venv/.test: .venv/.core Makefile
	$(PIP) -e '.[test]'
	$(PIP) --no-deps lifelines autograd autograd-gamma
	touch $@

# An environment of its own, so that `make test` stays light; torch's sympy wants an older mpmath than ours.
.venv-torch/.test: pyproject.toml constraints.txt
	test -x .venv-torch/bin/python || $(PYTHON) -m venv .venv-torch
	grep -v '^mpmath==' constraints.txt > .venv-torch/constraints.txt
	.venv-torch/bin/python -m pip install --quiet --disable-pip-version-check -c .venv-torch/constraints.txt \
		-e '.[accounting]' pytest pytest-randomly torch==2.13.0
	touch $@

# NVFLARE wants older versions of packages that `make test` does not need it for.
.venv-flare/.test: pyproject.toml constraints.txt Makefile
	test -x .venv-flare/bin/python || $(PYTHON) -m venv .venv-flare
	.venv-flare/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt \
		-e '.[desk,flare]' pytest pytest-xdist playwright pillow
	touch $@

# What benchmarks compare with and what does not import beside our scikit-learn.
.venv-peers/.bench: Makefile
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check scikit-learn==1.7.2 diffprivlib==0.6.6 opendp==0.16.0
	touch $@
