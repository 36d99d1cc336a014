# `make demo` and `make test` are all that a new machine needs: with Python 3.11 or newer and pip, they create .venv,
# install into it what is missing, and run.

BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test lint types wheel check constraints clean

demo: $(INSTALLED)  ## the main job: every method of the quickstart scenario, simulated beside measured
	$(BIN)/paceline compare scenarios/quickstart.yaml

test: $(INSTALLED)  ## all tests, on two cores
	$(BIN)/python -m pytest -n 2 --dist loadgroup

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

types: $(INSTALLED)
	$(BIN)/mypy
	$(BIN)/pyright

wheel: $(INSTALLED)  ## by way of the source archive, so that nothing left over from an older build gets in
	rm -rf dist
	$(BIN)/python -m build --no-isolation

check:  ## what continuous integration runs
	.ci/run

constraints: $(INSTALLED)  ## writes down the versions that .venv holds
	@echo '# The exact versions that development and CI install; `make constraints` writes this file from .venv.' > constraints.txt
	$(BIN)/python -m pip list --format=freeze --exclude-editable --exclude pip | sed 's/+cpu$$//' >> constraints.txt
	touch $(INSTALLED)

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

# The stamp is older than neither file, so a second run installs nothing.
$(INSTALLED): pyproject.toml constraints.txt .ci/install
	.ci/install .venv --no-build-isolation --editable '.[dev]'
	touch $@
