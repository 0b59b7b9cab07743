# Every target is complete in itself: it needs python3 (3.11 or newer), git and this Makefile, builds its own virtual
# environment, and installs exactly what requirements/*.lock says. Repeated calls install nothing.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
STAMPS := $(VENV)/stamps
UV := $(BIN)/uv
INSTALL := $(UV) pip install --quiet --python $(BIN)/python

# An activated environment, or a PYTHONPATH left in the shell, must not decide what runs here.
unexport VIRTUAL_ENV CONDA_PREFIX PYTHONPATH PYTHONHOME UV_PROJECT_ENVIRONMENT
# Trust what the machine trusts (companies add certificates of their own), where it has a list.
export UV_SYSTEM_CERTS ?= $(if $(wildcard /etc/ssl/certs/ca-certificates.crt /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/cert.pem),true,false)


.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' Makefile | column -t -s '|' 2>/dev/null || grep '## ' Makefile

.PHONY: demo
demo: $(STAMPS)/run ## install what running needs and run the first experiment
	$(BIN)/python experiments/exp000_hello.py

.PHONY: test
test: $(STAMPS)/dev ## fast tests
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

.PHONY: test-slow
test-slow: $(STAMPS)/slow ## long suites: fault sweeps, real servers
	$(BIN)/python -m pytest -m slow --timeout 1800 $(ARGS)

# The tools are independent and the slow ones are single-threaded, so two run at a time; all of them report.
CHECKS := check-format check-lint check-types check-test-types check-imports check-security check-repository
.PHONY: check
check: $(STAMPS)/dev ## format, lint, types, import contracts, security, repository hygiene
	@$(MAKE) --no-print-directory --keep-going --jobs 2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target) $(CHECKS)
	@echo "all checks passed"

# $(call timed,COMMAND): run it and say how long it took, whatever its outcome.
timed = @TIMEFORMAT='$@: %1R s'; time $(1)

.PHONY: $(CHECKS)
check-types: ; $(call timed,$(BIN)/mypy)
check-test-types: ; $(call timed,$(BIN)/mypy --config-file tests/mypy.ini --cache-dir .mypy_cache/tests)
check-format: ; $(call timed,$(BIN)/ruff format --quiet --diff .)
check-lint: ; $(call timed,$(BIN)/ruff check --quiet .)
check-imports: ; $(call timed,$(BIN)/lint-imports --no-logo)
# ruff's S rules report every severity and are silenced line by line; bandit is the second opinion on what matters most.
check-security: ; $(call timed,$(BIN)/bandit --quiet --severity-level medium --configfile pyproject.toml --recursive marin_pipe lib experiments)
check-repository: ; $(call timed,$(BIN)/python -m pytest -q -p no:cacheprovider tests/test_repository.py)

.PHONY: format
format: $(STAMPS)/dev ## rewrite the code as `make check` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: docs
docs: $(STAMPS)/dev ## the documentation, into site/
	$(BIN)/python docs/commands.py
	$(BIN)/python docs/steps.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

.PHONY: bench
bench: $(STAMPS)/dev ## all benchmarks
	$(BIN)/python -m tests.benchmarks $(ARGS)

.PHONY: clean
clean: ## remove the environment and everything generated
	rm -rf $(VENV) site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# --- locks ---------------------------------------------------------------------------------------------------------
# Versions and hashes only: an address in a lock would tie everybody to one package index.
COMPILE = $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate --no-header \
	--no-emit-index-url --no-emit-find-links $(UPGRADE)

.PHONY: lock
lock: $(STAMPS)/uv ## pin again after a change to pyproject.toml (UPGRADE=--upgrade takes new versions)
	echo uv | $(COMPILE) - --output-file requirements/uv.txt
	$(COMPILE) pyproject.toml --group build --extra dev --output-file requirements/dev.lock
	$(COMPILE) pyproject.toml --group build --extra demo --constraint requirements/dev.lock --output-file requirements/run.lock
	$(COMPILE) pyproject.toml --group build --extra dev --extra slow --constraint requirements/dev.lock --output-file requirements/slow.lock

# --- environment: one stamp per lock, newer than what it was made from ----------------------------------------------
$(STAMPS)/uv: requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "make: $(PYTHON) is $$($(PYTHON) --version 2>&1); marin_pipe needs Python 3.11 or newer." \
		"Say which with: make $(MAKECMDGOALS) PYTHON=python3.12" >&2; exit 1; }
	@test -x $(BIN)/python && $(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV) || { \
		echo "make: $(PYTHON) cannot create a virtual environment. On Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/uv.txt
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/%: requirements/%.lock $(STAMPS)/uv pyproject.toml
	$(INSTALL) --compile-bytecode --require-hashes --requirement $<
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@touch $@
