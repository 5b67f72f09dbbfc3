# Every target sets up what it needs on a machine that has Python 3.11 to 3.14 and nothing else.
# `make serve ARGS="--port 9000"` and `make test ARGS="-k search"` pass arguments on.

# Compiled modules halve the time of a start.
unexport PYTHONDONTWRITEBYTECODE

BIN = .venv/bin
UV = $(BIN)/uv
ARGS =
# Which tests `make test` runs; none said: all. Those in a browser have their own target.
MARKS = not slow and not browser
STEPS = format-check lint types imports prose yaml migrations

# Many tests wait for a process or a deadline, so two more than there are cores can run at once.
export PYTEST_XDIST_AUTO_NUM_WORKERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 2)

# No wheels of onnxruntime exist for other versions.
SUPPORTED = import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))
PYTHON = $(shell for name in python3.11 python3 python3.14 python3.13 python3.12; do \
	"$$name" -c '$(SUPPORTED)' >/dev/null 2>&1 && { command -v "$$name"; break; }; done)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: alone help serve test slow browser screenshots check docs audit bench eval lock format clean $(STEPS)

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

# The settings file of this checkout is named, so nobody is asked about it. Another that is named goes before it.
serve: .venv/.runtime ## start the service; ARGS are those of `openmemory serve`
	@OPENMEMORY_CONFIG="$${OPENMEMORY_CONFIG:-$(wildcard openmemory.toml)}" exec $(BIN)/openmemory serve $(ARGS)

test: .venv/.dev ## run the quick tests; ARGS are those of pytest
	@exec $(BIN)/python -m pytest -m "$(MARKS)" $(ARGS)

slow: MARKS = slow
slow: test ## run the tests that take long

browser: MARKS = browser
browser: .venv/.browser ## run the tests of the pages in Chromium, which must be installed
	@exec $(BIN)/python -m pytest -m "$(MARKS)" $(ARGS)

screenshots: .venv/.browser ## take pictures of every page in build/screenshots; needs Chromium
	@exec $(BIN)/python -m tools.screenshots $(ARGS)

bench: .venv/.dev ## measure latency and throughput; ARGS are those of `python -m benchmarks`
	@exec $(BIN)/python -m benchmarks $(ARGS)

eval: .venv/.dev ## how well searches find, on judged collections; ARGS are folders and the options of benchmarks.evaluation
	@exec $(BIN)/python -m benchmarks.evaluation $(ARGS)

check: .venv/.dev ## everything that must hold: format, lint, types, imports, prose, YAML, migrations, tests
	@$(MAKE) --no-print-directory --jobs=2 $(if $(filter output-sync,$(.FEATURES)),--output-sync) $(STEPS)
	@$(MAKE) --no-print-directory test

docs: .venv/.runtime .venv/docs/.done ## build the documentation into `site/`; ARGS are those of `mkdocs build`
	@$(BIN)/python tools/reference.py build/reference
	@.venv/docs/bin/mkdocs build $(ARGS)

audit: .venv/.build ## look for known vulnerabilities in the locked packages; needs api.osv.dev
	@$(UV) tool run pip-audit -r requirements.lock --disable-pip --no-deps -s osv

lock: .venv/.build ## renew the lock files after a change of pyproject.toml; ARGS=--upgrade takes newer versions
	@$(call compile,requirements-build.lock,--group build -c requirements.lock)
	@$(call compile,requirements.lock,pyproject.toml)
	@$(call compile,requirements-dev.lock,pyproject.toml --extra dev -c requirements.lock)
	@$(call compile,requirements-docs.lock,--group docs -c requirements-dev.lock)
	@$(call compile,requirements-browser.lock,--group browser -c requirements-dev.lock)
	@$(call compile,requirements-s3.lock,--group s3)

format: .venv/.dev ## format the code and mend what the linter can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the virtual environment and every cache; data folders stay
	rm -rf .venv tests/conformance/node_modules build dist site *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A lock that stays the same keeps its time, so that nothing is installed again.
compile = cp -p $(1) $(1).old && $(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-annotate --no-emit-index-url --no-emit-find-links $(2) $(ARGS) -o $(1) && \
	if cmp -s $(1) $(1).old; then mv $(1).old $(1); else rm $(1).old; echo "$(1) has changed"; fi

# The steps of `check`, two at a time.

format-check: .venv/.dev
	@$(BIN)/ruff format --check .

lint: .venv/.dev
	@$(BIN)/ruff check .

types: .venv/.dev
	@$(BIN)/mypy

imports: .venv/.dev
	@$(BIN)/lint-imports --no-logo

prose: .venv/.dev
	@$(BIN)/python tools/prose.py

yaml: .venv/.dev
	@$(BIN)/yamllint --strict -d '{extends: default, rules: {line-length: {max: 120}, document-start: disable}}' \
		docker-compose.yml

# Apart from `test` too, because a schema that does not match its models makes a hundred other tests fail first.
migrations: .venv/.dev
	@$(BIN)/python -m pytest -n 0 tests/migrations

# The virtual environment, in three layers that each leave a stamp. `.build` is missing while a layer is being installed:
# an interrupted installation is started afresh. It names the folder, because an environment that was moved is broken.
# A second `make` waits until the first has set it up, and then looks again.

ifndef SETTING_UP

FORCE:

.venv/%: FORCE
	@$(MAKE) -q --no-print-directory SETTING_UP=1 $@ || $(MAKE) --no-print-directory alone TARGET=$@

# Apart, because make would look for Python before it knows whether anything is to do.
alone:
	@[ -n "$(PYTHON)" ] || { echo "No Python 3.11 to 3.14 found. Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -c '$(SUPPORTED)' || { echo "$(PYTHON) is not Python 3.11 to 3.14." >&2; exit 1; }
	@"$(PYTHON)" tools/one_at_a_time.py $(MAKE) --no-print-directory SETTING_UP=1 $(TARGET)

else

$(shell [ "$$(cat .venv/.build 2>/dev/null)" = "$$(pwd -P)" ] && [ -x $(BIN)/python ] || rm -f .venv/.build)

INSTALL_WITH = pip install --quiet --only-binary :all: --require-hashes

.venv/.build: requirements-build.lock
	@echo "Setting up .venv with $(PYTHON), once ..."
	@rm -rf .venv
	@"$(PYTHON)" -m venv .venv
	@$(BIN)/python -m $(INSTALL_WITH) --disable-pip-version-check -r requirements-build.lock
	@pwd -P > $@

.venv/.runtime: .venv/.build requirements.lock pyproject.toml setup.py tools/int8_graph.py
	@$(call install,requirements.lock)
	@$(UV_HERE) $(UV) pip install --quiet --offline --no-deps --no-build-isolation --editable . || \
		$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

.venv/.dev: .venv/.runtime requirements-dev.lock
	@$(call install,requirements-dev.lock)
	@touch $@

# What drives Chromium, for the tests of the pages.
.venv/.browser: .venv/.dev requirements-browser.lock
	@$(call install,requirements-browser.lock)
	@touch .venv/.dev $@

# MkDocs and the S3 of the tests stand apart: the service and the other tests run without them.
.venv/docs/.done .venv/s3/.done: .venv/%/.done: .venv/.build requirements-%.lock
	@echo "Installing requirements-$*.lock ..."
	@rm -rf .venv/$*
	@$(BIN)/python -m venv --without-pip .venv/$*
	@VIRTUAL_ENV="$$(pwd -P)/.venv/$*" $(UV) $(INSTALL_WITH) -r requirements-$*.lock || \
		$(BIN)/python -m pip --python .venv/$*/bin/python install --quiet --only-binary :all: --require-hashes \
			-r requirements-$*.lock
	@touch $@

# uv takes seconds where pip takes a minute, but only pip knows the indexes and certificates of pip's configuration.
UV_HERE = UV_COMPILE_BYTECODE=1 VIRTUAL_ENV="$$(pwd -P)/.venv" UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
install = rm -f .venv/.build; echo "Installing $(1) ..."; \
	$(UV_HERE) $(UV) $(INSTALL_WITH) -r $(1) || \
	{ echo "uv could not; trying pip, which takes longer ..."; $(BIN)/python -m $(INSTALL_WITH) -r $(1); } && \
	pwd -P > .venv/.build && if [ -e .venv/.runtime ]; then touch .venv/.runtime; fi

endif
