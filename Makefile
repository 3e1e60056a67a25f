# Every command of the project; `make` alone lists them.

VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime-installed
COMPLETE := $(VENV)/.complete-installed

# Tried in this order; `make PYTHON=/path/to/python3.12 ...` insists on one.
CANDIDATES := $(or $(PYTHON),python3 python3.13 python3.12 python3.11)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test sanitize test-cluster test-real screenshots compile check fmt bench setup lock wheel clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-13s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

run: $(RUNTIME) compile ## local sandboxes behind a real router (ARGS=--once ends after the table, --sleep shows one that sleeps)
	@exec $(BIN)/sandbox-router demo $(ARGS)

# pytest by itself runs the pure form, which is what was just edited; everything that starts a router runs the compiled one here.
ifdef ARGS
test: $(COMPLETE) ## set everything up, then run every test (ARGS=... instead goes to one pytest, in pure Python)
	$(BIN)/python -m pytest -n 2 -m "not alone" $(ARGS)
else
test: $(COMPLETE) compile
	$(BIN)/python -m pytest tests/unit -n 2 -m "not alone"
	SANDBOX_ROUTER_FORM=auto $(BIN)/python -m pytest --ignore=tests/unit -n 2 -m "not alone"
	SANDBOX_ROUTER_FORM=auto $(BIN)/python -m pytest tests/unit/proxy/test_admission.py # what ends a right ends it in both forms
	$(BIN)/python -m pytest tests/unit -m alone || test $$? -eq 5
	SANDBOX_ROUTER_FORM=auto $(BIN)/python -m pytest --ignore=tests/unit -m alone || test $$? -eq 5
endif

sanitize: $(COMPLETE) ## fuzz a build of the scanner that finds reads and writes out of bounds (ARGS: seconds)
	.ci/sanitize $(BIN)/python $(or $(ARGS),60)

test-cluster: $(COMPLETE) ## discovery against a real API server: one built and started here, or the one that KUBECONFIG names
	$(BIN)/python -m pytest -m cluster tests/cluster $(ARGS)

screenshots: $(COMPLETE) compile ## take the pictures of pages in docs/images again, with Chromium
	$(BIN)/python -m tests.screenshots

test-real: $(COMPLETE) compile ## JupyterLab, Vite, Streamlit, Django and websockify in a real browser, behind a real router
	SANDBOX_ROUTER_FORM=auto $(BIN)/python -m pytest -m real tests/real $(ARGS)

compile: $(RUNTIME) ## build the compiled form in place, where there is a C compiler, and say which form will run
	@$(BIN)/python hatch_build.py

check: $(COMPLETE) ## format, lint, types, import rules: the one check command
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy hatch_build.py
	$(BIN)/lint-imports

fmt: $(COMPLETE) ## format the code and fix what can be fixed
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: $(COMPLETE) compile ## measure the router beside its peers (ARGS=--quick only shows that it works)
	$(BIN)/python -m bench $(ARGS)

setup: $(COMPLETE) ## only make the environment, in .venv

lock: $(COMPLETE) ## resolve the dependencies again (ARGS=--upgrade: to the newest versions)
	.ci/lock $(BIN) $(ARGS)

wheel: $(COMPLETE) ## build dist/*.whl
	$(BIN)/python -m build --wheel --no-isolation

clean: ## remove the environment and everything that was built
	rm -rf $(VENV) router/_compiled build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

$(RUNTIME): pyproject.toml requirements-runtime.lock
	@.ci/venv $(VENV) $(CANDIDATES)
	@.ci/install $(VENV) requirements-runtime.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(COMPLETE): requirements.lock $(RUNTIME)
	@.ci/install $(VENV) requirements.lock
	@touch $@
