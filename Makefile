# `make demo` and `make test` are all that a new machine needs: with Python 3.11 or newer and pip, they create .venv,
# install into it what is missing, and run.

BIN := .venv/bin
INSTALLED := .venv/.installed
RUNNABLE := .venv/.runnable

.PHONY: demo test test-all lint types mypy pyright reference docs packages wheel test-wheel validation machines check bench constraints clean

demo: $(RUNNABLE)  ## the main job: every method of the quickstart scenario, simulated beside measured
	$(BIN)/paceline compare scenarios/quickstart.yaml

# Tests start hundreds of Python processes: they share compiled bytecode, also where the environment turns that off.
export PYTHONDONTWRITEBYTECODE :=

# Each process begins with a third of the tests, in order, and takes what is left from the others when it is done: so
# tests of one file share what they set up, and real runs (tests/attacks, tests/backend) begin one at a time.
# Three processes for two cores: many tests wait for processes that they have started.
PYTEST := $(BIN)/python -m pytest -n 3 --dist worksteal

test: $(INSTALLED)  ## every behaviour, on two cores; of large cross-products a sample (tests/thorough.py)
	$(PYTEST)

test-all: $(INSTALLED)  ## everything, with more random cases
	PACELINE_THOROUGH=1 $(PYTEST)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

types: mypy pyright

mypy: $(INSTALLED)
	$(BIN)/mypy

pyright: $(INSTALLED)
	$(BIN)/pyright

reference: $(INSTALLED)  ## the page of all scenario keys, which a test compares with the schema
	$(BIN)/paceline schema --markdown > docs/scenario-reference.md

docs: $(INSTALLED)  ## the documentation site in site/, with its links checked; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet --strict

packages: $(INSTALLED)  ## the picture of the packages, which a test compares with the contracts of import-linter
	$(BIN)/python -m docs.site_build.packages_picture > docs/packages.svg

wheel: $(INSTALLED)  ## by way of the source archive, so that nothing left over from an older build gets in
	rm -rf dist
	$(BIN)/python -m build --no-isolation

test-wheel: wheel  ## installs the wheel in an environment of its own, and tests it there
	.ci/test-wheel

validation: $(INSTALLED)  ## published measurements: the page, and the errors that predictions state; a quarter hour
	$(BIN)/paceline validate
	cp runs/validation/validation.md docs/results/validation.md
	cp runs/validation/step_errors.csv records/data/step_errors.csv

machines: $(INSTALLED)  ## the table of machines, from what `paceline fidelity` has written on each
	$(BIN)/paceline fidelity --collect docs/results/machines/*.json --page docs/results/fidelity.md --quiet

bench: $(INSTALLED)  ## every benchmark in a short form; figures, machine and versions in bench.json
	$(BIN)/python benchmarks/run_all.py --out bench.json

check:  ## what continuous integration runs
	.ci/run

constraints: $(INSTALLED)  ## writes down the versions that .venv holds
	@echo '# The exact versions that development and CI install; `make constraints` writes this file from .venv.' > constraints.txt
	$(BIN)/python -m pip list --format=freeze --exclude-editable --exclude pip | sed 's/+cpu$$//' >> constraints.txt
	touch $(INSTALLED)

clean:
	rm -rf .venv build dist site *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The stamp is older than neither file, so a second run installs nothing.
$(INSTALLED): pyproject.toml constraints.txt .ci/install
	.ci/install .venv --no-build-isolation --editable '.[dev]'
	touch $@ $(RUNNABLE)

# Without the tools of development, which take most of the time.
$(RUNNABLE): pyproject.toml constraints.txt .ci/install
	.ci/install .venv --no-build-isolation --editable .
	touch $@
