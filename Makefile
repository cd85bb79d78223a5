# make run | test | test-titan | test-all | bench | lint | wheel | build | clean. Each works alone in a fresh clone.
#
# Variables: PYTHON (3.10 to 3.13; the venv is made with it), JOBS.

PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11 python3.10; do \
  $$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 14))' 2>/dev/null && echo $$p && break; done)
JOBS ?= $(shell nproc)

VENV := .venv
BIN := $(VENV)/bin
BUILD := build/release
TRAINERS := build/trainers-venv
# What is installed, as build.targets in pyproject.toml.
INSTALLED := neuron_emu_C nccom-test
CMAKE := $(BIN)/cmake
CONFIGURE := $(CMAKE) --preset release -DNEURON_BUILD_BENCH=OFF -DPython3_EXECUTABLE=$(abspath $(BIN)/python)
CCACHE := $(shell command -v ccache)
ifneq ($(CCACHE),)
CONFIGURE += -DCMAKE_CXX_COMPILER_LAUNCHER=ccache
export CCACHE_SLOPPINESS := pch_defines,time_macros
endif
export PATH := $(abspath $(BIN)):$(PATH)
export PIP_DISABLE_PIP_VERSION_CHECK := 1

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.PHONY: run test test-titan test-all check ctest pytest bench lint wheel build clean sanitizers

run: export OMP_NUM_THREADS := 1
run: build
	$(BIN)/torchrun --standalone --nproc-per-node=2 examples/test_distributed.py
	$(BIN)/torchrun --standalone --nproc-per-node=4 examples/test_distributed.py

test: check ctest pytest

test-all: check ctest sanitizers test-titan
	$(BIN)/python -m pytest -m "long or not long"

# Trainers that others wrote, in a venv of their own that sees the packages of .venv: one torch on the disk.
test-titan: $(TRAINERS)/.stamp build
	$(TRAINERS)/bin/python -m pytest -o timeout=1800 -o pythonpath="tests/trainers tests/distributed" tests/trainers

$(TRAINERS)/.stamp: requirements/trainers.txt $(VENV)/.stamp-test
	$(BIN)/python -m venv $(TRAINERS)
	$(BIN)/python -c 'import sysconfig; print("import site; site.addsitedir(" + repr(sysconfig.get_path("platlib")) + ")")' \
	  > "$$($(TRAINERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/neuron_emu_venv.pth"
	$(TRAINERS)/bin/python -m pip install -q -r requirements/trainers.txt
	touch $@

check: $(VENV)/.stamp-test
	$(BIN)/python tools/check_layers.py
	$(BIN)/python tools/check_file_length.py
	$(BIN)/python tools/generate_env_docs.py --check

ctest: build
	$(CMAKE) --build $(BUILD) -j $(JOBS)
	$(BIN)/python tools/check_layers.py --libraries $(BUILD)
	$(BIN)/ctest --test-dir $(BUILD) --output-on-failure --no-tests=error -j $(JOBS)

pytest: build
	$(BIN)/python -m pytest

# What threads share: in the engine by its own tests, in the bridge by tests of Python, with the extension instrumented.
UNDER_TSAN := $(addprefix tests/python/test_,$(addsuffix .py,threads streams events copies memory dispatch host_memory python_lock fuzz)) \
  tests/distributed/test_work.py tests/distributed/test_p2p.py
# It shares 1.5 GB of the host's memory among four processes, of which TSan's own memory leaves nothing.
NOT_UNDER_TSAN := tests/python/test_memory.py::test_four_processes_at_once_get_errors_not_signals
sanitizers: build
	for preset in asan-ubsan tsan; do \
	  $(CMAKE) --preset $$preset && $(CMAKE) --build --preset $$preset -j $(JOBS) && \
	  $(BIN)/ctest --preset $$preset --no-tests=error -j $(JOBS); done
	$(CMAKE) --preset tsan-bridge -DPython3_EXECUTABLE=$(abspath $(BIN)/python)
	$(CMAKE) --build --preset tsan-bridge -j $(JOBS)
	PYTEST_ADDOPTS="--deselect $(NOT_UNDER_TSAN)" tools/pytest_under_tsan.sh build/tsan-bridge $(UNDER_TSAN)

bench: build
	$(CMAKE) -S . -B $(BUILD) -DNEURON_BUILD_BENCH=ON
	$(CMAKE) --build $(BUILD) -j $(JOBS)
	$(BIN)/python bench/run_all.py

lint: $(VENV)/.stamp-lint build
	$(BIN)/clang-format --dry-run -Werror $$(find engine bridge bench -name '*.h' -o -name '*.cpp')
	$(BIN)/clang-tidy --quiet -p $(BUILD) $$(find engine -name '*.cpp')
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

wheel: $(BUILD)/build.ninja
	$(BIN)/pip wheel --no-build-isolation --no-deps -w dist .
	@ls dist/*.whl

# The extension and nccom-test in the venv, up to date with every source. Incremental: seconds after a change in one engine file.
build: $(VENV)/.stamp-editable $(BUILD)/build.ninja
	$(CMAKE) --build $(BUILD) -j $(JOBS) --target $(INSTALLED)
	$(CMAKE) --install $(BUILD) --prefix "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" >/dev/null

$(BUILD)/build.ninja: | $(VENV)/.stamp-test
	$(CONFIGURE)

$(VENV)/.stamp-editable: pyproject.toml $(VENV)/.stamp-test | $(BUILD)/build.ninja
	$(CMAKE) --build $(BUILD) -j $(JOBS) --target $(INSTALLED)
	$(BIN)/pip install -q --no-build-isolation --no-deps -e .
	touch $@

$(VENV)/.stamp-test: requirements/test.txt requirements/build.txt | $(BIN)/python
	$(BIN)/pip install -q -r requirements/test.txt
	touch $@

$(VENV)/.stamp-lint: requirements/lint.txt | $(BIN)/python
	$(BIN)/pip install -q -r requirements/lint.txt
	touch $@

$(BIN)/python:
	@[ -n "$(PYTHON)" ] || { echo "No Python from 3.10 to 3.13 found; say which: make PYTHON=/path/to/python3.12" >&2; exit 1; }
	tools/install_system_packages.sh $(PYTHON)
	$(PYTHON) -m venv $(VENV)

clean:
	rm -rf build dist $(VENV)/.stamp-editable
