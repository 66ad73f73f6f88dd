# Two commands do all the set-up on a fresh machine: `make run` (the main job) and `make test` (the tests of every commit).
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SHARED_MODELS ?= $(HOME)/.cache/stockade-dev

# Tests wait more than they compute: two processes a core. One after the other, as a debugger wants it: WORKERS=0.
WORKERS ?= $(shell expr 2 \* $$(nproc))
PYTEST = STOCKADE_TEST_SCALE=$(SCALE) $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal
# How often kills and hypothesis' examples are tried: tests/support/scale.py.
SCALE = 1
ORDINARY = not slow and not long and not model and not toolchain

.PHONY: run test test-fast test-sandbox test-host test-all test-slow test-bench test-long test-model test-wasm test-mcp test-clients test-managers test-newer-python check attack attack-page bench docs agent size picture pictures lock site release clean

$(BIN)/stockade: packages/sandbox/pyproject.toml packages/stockade/pyproject.toml requirements.lock
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --requirement requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --editable packages/sandbox --editable packages/stockade
	@touch $@

$(VENV)/.dev: $(BIN)/stockade requirements-dev.lock
	$(BIN)/python -m pip install --quiet --requirement requirements-dev.lock
	@touch $@

demo/data.csv:
	mkdir -p demo && cp examples/demo/data.csv demo/

run: $(BIN)/stockade demo/data.csv  ## the main job: embedded model, sealed sandbox, a folder of yours
	$(BIN)/stockade run "Write the number of lines of data.csv into count.txt" --folder ./demo

test test-fast: SCALE = 0.1
test: check  ## before each commit, under five minutes on two cores: all but what tests/tiers.py lists
	$(PYTEST) -m "$(ORDINARY)"

test-fast: $(VENV)/.dev  ## while you write: what needs no sandbox and no program of the host
	$(PYTEST) -m fast

test-sandbox: $(VENV)/.dev  ## what needs a real sandbox and nothing else of this machine, slow ones too
	$(PYTEST) -m sandbox

test-host: $(VENV)/.dev  ## what needs docker, podman, runsc, chromium, postgresql or qemu-user
	$(PYTEST) -m host

test-slow: $(VENV)/.dev  ## what tests/tiers.py lists: engines, a browser, weights, kills
	$(PYTEST) -m slow

test-all: check  ## what CI runs
	$(PYTEST) -m "$(ORDINARY)"
	$(PYTEST) -m slow
	$(PYTEST) bench/tests

test-bench: $(VENV)/.dev  ## that the benchmarks judge and count as they should, their tasks among them
	$(PYTEST) bench/tests

test-long: $(VENV)/.dev  ## by hand, hours: full counts of kills (processes, runs, applies, power), models, what is built from packages
	STOCKADE_TEST_SCALE=20 $(BIN)/python -m pytest tests/faults tests/server/test_step_kills.py tests/cli/test_large_log.py
	STOCKADE_TEST_SCALE=50 $(BIN)/python -m pytest -s tests/fleet/test_ray_many.py  # ten thousand runs, twenty kills
	STOCKADE_TEST_SCALE=13 $(BIN)/python -m pytest -s tests/fleet/test_workspaces.py -k node_is_killed  # 52 of 104 on it
	$(PYTEST) -m long
	$(MAKE) test-model test-wasm test-mcp test-clients test-managers test-newer-python

check: $(VENV)/.dev  ## lint, who imports whom, and types only
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/mypy

attack: $(VENV)/.dev  ## the attacks on the real sandbox
	$(BIN)/python -m pytest tests/attack

attack-page: $(VENV)/.dev  ## docs/security/attacks.md from a real run (as root, some minutes)
	$(BIN)/python -m tests.attack.page

test-model: $(VENV)/.dev  ## five small tasks that the default model must solve (fetches 1.1 GB once)
	$(BIN)/python -m pytest -m model tests/model

test-newer-python:  ## the ordinary tests on Debian testing's Python, in a place of its own (as root; needs debootstrap, 1.5 GB)
	sh tests/support/newer_python.sh $(HOME)/.cache/stockade-dev/debian-testing

test-wasm: $(VENV)/.dev  ## the example tools built in four languages (fetches their compilers once; needs Debian's clang-19 and rustc, docs/wasm.md)
	$(BIN)/python -m pytest -m toolchain tests/wasm

test-mcp: $(VENV)/.dev  ## MCP servers of npm inside the sandbox, the inspector with `stockade mcp` (fetches them and a node once)
	$(BIN)/python -m pytest -m toolchain tests/mcp

test-clients: $(VENV)/.dev  ## the wrapped agents and Claude's SDK for real (docs/wrap.md), an ACP client, against a server that plays the model, and Harbor (as root; fetches them once, 2.7 GB on disk)
	$(BIN)/python -m pytest -m toolchain tests/clients tests/integrations tests/editors

test-managers: $(VENV)/.dev  ## package managers against local indexes (needs Debian's cargo-web, golang-go, default-jdk-headless; fetches uv and pnpm once)
	$(BIN)/python -m pytest -m toolchain tests/conformance/test_package_managers.py

bench: $(VENV)/.dev
	$(BIN)/python bench/overhead.py

docs: $(VENV)/.dev  ## docs/cli, settings-reference.md and security/syscalls.md from the definitions
	$(BIN)/python docs/make_cli.py

size:  ## lines and files of packages/*/src, Python and C
	@for kind in py c h; do find packages/*/src -name "*.$$kind" -print0 | xargs -0 cat | wc -l | tr '\n' ' '; \
		echo "lines in $$(find packages/*/src -name "*.$$kind" | wc -l) files .$$kind"; done
	@echo "$$(find packages/*/src -name '*.py' -size +0 -exec awk 'END { if (NR < 60) print FILENAME }' {} \; | wc -l) files .py below 60 lines"

agent: $(VENV)/.dev  ## rebuild the two small C programs of the sandbox (musl-gcc for x86-64, zig of PyPI for aarch64)
	for program in agent/agent launcher/launch; do \
		build="packages/sandbox/src/stockade_sandbox/$$(dirname $$program)/build.sh" && out="$$(basename $$program)" && \
		sh $$build $$out-x86_64 && CC="$$($(BIN)/python -m tests.support.toolchains)" sh $$build $$out-aarch64 || exit 1; done

picture: $(VENV)/.dev  ## the film of the README, from a real run in tmux
	$(BIN)/python -m docs.make_film

pictures: picture  ## docs/pictures from real runs in tmux and Chromium
	$(BIN)/python -m docs.make_pictures
	$(BIN)/python -m docs.make_page_pictures

release:  ## dist/ of this commit: wheels, what they are made of (CycloneDX), sums; the same bytes each time. Nothing is uploaded
	.ci/release

site: $(VENV)/.dev  ## the docs as a site with search in build/html; a link that leads nowhere ends it
	rm -rf build/site && mkdir -p build/site
	git ls-files -z -- '*.md' '*.toml' docs examples wit packages/stockade/src/stockade/plugins/wasm/wit | xargs -0 cp --parents --no-dereference -t build/site
	$(BIN)/zensical build --strict --clean

lock:  ## new lock files from pyproject.toml
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet --upgrade pip
	$(VENV)/lock/bin/python -m pip install --quiet --group dev packages/sandbox packages/stockade
	$(VENV)/lock/bin/python -m pip freeze --exclude stockade --exclude stockade-sandbox > requirements-dev.lock
	rm -rf $(VENV)/lock

clean:
	rm -rf $(VENV) demo
