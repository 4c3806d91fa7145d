# Everything goes through here. Each target does its own set-up; `make demo` is the place to start.
#
#   make demo       how much memory a ResNet-50 training script takes on an RTX 3060
#   make test       all tests, on two PyTorch releases
#   make install    put gpucast under PREFIX (default ~/.local)
#   make wheel      dist/gpucast-*.whl, for `pip install`
#   make test-wheel the wheel in clean environments, with pip, uv and pipx, on two PyTorch releases
#   make test-api   the Python API with Ray and Optuna
#   make lint       formatting and static analysis
#   make sanitize   the C++ tests under address, undefined-behaviour and thread sanitizers
#   make test-cudnn what NVIDIA's own cuDNN answers (1 GB)
#   make programs   programs of many libraries and launchers, and what PyTorch's own counters say: docs/reference/compatibility.md (8 GB, an hour)
#   make trainers CHECKOUTS=DIR  public trainers by their own commands, and PyTorch's own counters: docs/results/trainers.md
#   make releases   the examples on every PyTorch release since 2.0, for the same page (one release at a time, half an hour)
#   make test-nvidia  the same peaks with NVIDIA's own wheels installed (2.5 GB)
#   make differential SEEDS=1000  gpucast's allocator against PyTorch's own on random sequences, on two releases
#   make test-web   the HTML pages in headless Chromium
#   make eval DATA=DIR  the papers' evaluation: every estimator beside what real cards took
#   make accuracy DATA=DIR  the figures of docs/results/accuracy.md and upper-bound.md, made again
#   make bench      benchmarks, answers checked
#   make screenshots  docs/images, from reports of examples
#   make clean      remove build folders (not the Python environments in .venv)

PREFIX ?= $(HOME)/.local
SANITIZERS ?= asan tsan
SEEDS ?= 1000
CHECKOUTS ?= checkouts
DATA ?= ../shared/data
EVAL_OUT ?= build/eval
FIRST_SEED ?= 0
BUILD := build/release
GPUCAST := $(BUILD)/bin/gpucast
TORCH_NEW := 2.14.1
TORCH_OLD := 2.6.0
ENV_NEW := .venv/torch-$(TORCH_NEW)
ENV_OLD := .venv/torch-$(TORCH_OLD)
ENV_NVIDIA := .venv/torch-$(TORCH_NEW)-nvidia
ENV_LINT := .venv/lint
ENV_WHEEL := .venv/wheel
ENV_API := .venv/api
ENV_PROGRAMS := .venv/programs
PROGRAM_ROWS := build/programs
ONLY ?=

# Where Python may not keep what it compiles, each of the hundreds of test processes would compile PyTorch's modules anew.
unexport PYTHONDONTWRITEBYTECODE

WEB_MODULES := build/web-test/node_modules

.PHONY: demo test test-cpp test-python test-slow test-occupancy test-web screenshots test-cudnn test-nvidia differential install wheel test-wheel test-api lint analyze sanitize eval accuracy bench programs trainers releases clean build setup

# The environment is mostly download and unpacking, the build mostly compiling: side by side.
demo: setup
	@$(MAKE) --no-print-directory -j2 build $(ENV_NEW)/.ready
	@echo '$$ gpucast run --gpu rtx3060 -- python examples/train_resnet50.py --batch 32'
	@PATH="$(CURDIR)/$(ENV_NEW)/bin:$$PATH" $(GPUCAST) run --gpu rtx3060 -- python examples/train_resnet50.py --batch 32

# The environments are mostly download and unpacking, the sanitized build mostly compiling: side by side.
test: setup
	@$(MAKE) --no-print-directory -j3 test-cpp $(ENV_NEW)/.ready $(ENV_OLD)/.ready
	@$(MAKE) --no-print-directory test-python test-web

# Under sanitizers: one build for both. The optimised one is tested from outside, by test-python.
test-cpp:
	@$(MAKE) --no-print-directory sanitize SANITIZERS=asan

test-python: build $(ENV_NEW)/.ready $(ENV_OLD)/.ready
	GPUCAST_BIN=$(CURDIR)/$(GPUCAST) $(ENV_OLD)/bin/python -m pytest -n 3 --dist loadscope --durations=10 -m "not once and not slow"
	GPUCAST_BIN=$(CURDIR)/$(GPUCAST) $(ENV_NEW)/bin/python -m pytest -n 3 --dist loadscope --durations=10 -m "not slow"

test-slow: build $(ENV_NEW)/.ready $(ENV_OLD)/.ready
	GPUCAST_BIN=$(CURDIR)/$(GPUCAST) $(ENV_OLD)/bin/python -m pytest -n 2 -m "slow and not once"
	GPUCAST_BIN=$(CURDIR)/$(GPUCAST) $(ENV_NEW)/bin/python -m pytest -n 2 -m slow

# Against NVIDIA's own calculator, of two toolkits; and with DATA, against profiler traces.
test-occupancy: setup $(ENV_OLD)/.ready
	for toolkit in nvidia-cuda-runtime-cu12==12.8.90 nvidia-cuda-runtime==13.0.96; do \
	  folder=build/occupancy/$$toolkit; mkdir -p $$folder; \
	  $(ENV_OLD)/bin/python -m pip install --quiet --upgrade --no-deps --target $$folder $$toolkit && \
	  c++ -std=c++20 -O2 -I. -Iinclude -isystem $$(dirname $$(find $$folder -name cuda_occupancy.h)) src/occupancy/cuda_occupancy_test.cc \
	    src/occupancy/occupancy.cc src/occupancy/rules.cc -lgtest -lgtest_main -lpthread -o $$folder/test && $$folder/test || exit 1; \
	done

test-web: build $(WEB_MODULES)/.package-lock.json
	@tools/setup --web-test
	$(WEB_MODULES)/.bin/tsc -p build/web-test
	GPUCAST_BIN=$(CURDIR)/$(GPUCAST) GPUCAST_MODULES=$(CURDIR)/$(WEB_MODULES) node --test tests/web/report.test.mjs tests/web/job.test.mjs tests/web/cases.test.mjs

screenshots: build $(WEB_MODULES)/.package-lock.json $(ENV_OLD)/.ready
	@tools/setup --web-test
	PATH="$(CURDIR)/$(ENV_OLD)/bin:$$PATH" GPUCAST_BIN=$(CURDIR)/$(GPUCAST) GPUCAST_MODULES=$(CURDIR)/$(WEB_MODULES) node tests/web/screenshots.mjs docs/images

# All of web/package.json: the build's own folder has only what the page is made from.
$(WEB_MODULES)/.package-lock.json: web/package.json web/package-lock.json web/.npmrc web/tsconfig.json
	@mkdir -p build/web-test
	@cp web/package.json web/package-lock.json web/.npmrc build/web-test/
	@echo '{"extends": "../../web/tsconfig.json", "compilerOptions": {"paths": {"uplot": ["./node_modules/uplot"]}}, "include": ["../../web/src"]}' > build/web-test/tsconfig.json
	cd build/web-test && npm ci --ignore-scripts --silent
	@touch $@

test-nvidia: build $(ENV_NEW)/.ready $(ENV_OLD)/.ready $(ENV_NVIDIA)/.ready
	$(ENV_NEW)/bin/python tests/same_peaks.py --gpucast $(GPUCAST) $(ENV_OLD)/bin/python $(ENV_NEW)/bin/python $(ENV_NVIDIA)/bin/python

# Rows are kept: a second call goes on. ONLY=trainer,ddp runs those again.
programs: build $(ENV_PROGRAMS)/.ready
	@mkdir -p $(PROGRAM_ROWS)
	python3 tests/programs/run.py --gpucast $(GPUCAST) --python $(ENV_PROGRAMS)/bin/python --rows $(PROGRAM_ROWS)/programs.jsonl \
	  --logs $(PROGRAM_ROWS)/logs $(if $(ONLY),--only $(ONLY) --again) --releases $(PROGRAM_ROWS)/releases.jsonl --markdown docs/reference/compatibility.md
	python3 tests/programs/jobs.py --gpucast $(GPUCAST) --python $(ENV_PROGRAMS)/bin/python --rows $(PROGRAM_ROWS)/jobs.jsonl \
	  --logs $(PROGRAM_ROWS)/logs $(if $(ONLY),--only $(ONLY) --again) --page docs/results/programs.md

# CHECKOUTS has a clone of each repository: run_trainers.py --clones prints how. ONLY and rows as above.
trainers: build $(ENV_PROGRAMS)/.ready $(ENV_OLD)/.ready
	$(ENV_PROGRAMS)/bin/python tests/programs/run_trainers.py --gpucast $(GPUCAST) --python $(ENV_PROGRAMS)/bin/python --checkouts $(CHECKOUTS) \
	  --out $(PROGRAM_ROWS)/trainers $(if $(ONLY),--only $(ONLY) --again) --page

releases: build
	@mkdir -p $(PROGRAM_ROWS)
	python3 tests/programs/releases.py --gpucast $(GPUCAST) --rows $(PROGRAM_ROWS)/releases.jsonl $(if $(ONLY),--only $(ONLY))
	python3 tests/programs/run.py --rows $(PROGRAM_ROWS)/programs.jsonl --releases $(PROGRAM_ROWS)/releases.jsonl --markdown docs/reference/compatibility.md

test-cudnn: build $(ENV_NEW)/.ready .venv/cudnn/.ready
	GPUCAST_BIN=$(CURDIR)/$(GPUCAST) GPUCAST_CUDNN=$(CURDIR)/.venv/cudnn $(ENV_NEW)/bin/python -m pytest tests/python/test_cudnn.py

differential: build $(ENV_NEW)/.ready $(ENV_OLD)/.ready
	for env in $(ENV_OLD) $(ENV_NEW); do \
	  GPUCAST_BIN=$(CURDIR)/$(GPUCAST) $(ENV_NEW)/bin/python tests/differential/compare.py --torch $$env/bin/python \
	    --seeds $(SEEDS) --first-seed $(FIRST_SEED) --jobs 2 || exit 1; \
	done

install: build
	cmake --install $(BUILD) --prefix $(PREFIX)
	@echo 'gpucast is in $(PREFIX)/bin'

wheel: setup $(ENV_WHEEL)/.ready
	tools/wheel $(ENV_WHEEL)

test-wheel: build wheel $(ENV_NEW)/.ready $(ENV_OLD)/.ready
	GPUCAST_BIN=$(CURDIR)/$(GPUCAST) GPUCAST_WHEEL=$$(echo dist/gpucast-*.whl) TORCH_PYTHONS='$(ENV_NEW)/bin/python $(ENV_OLD)/bin/python' \
	  $(ENV_WHEEL)/bin/python -m pytest tests/wheel

# Ray and Optuna in an environment that borrows PyTorch from another.
test-api: build $(ENV_API)/.ready $(ENV_NEW)/.ready
	GPUCAST_BIN=$(CURDIR)/$(GPUCAST) PYTHONPATH=$(CURDIR)/python/api:$$($(ENV_NEW)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	  $(ENV_API)/bin/python -m pytest tests/api tests/python/test_sweep.py

lint: $(ENV_LINT)/.ready
	@tools/setup
	$(ENV_LINT)/bin/clang-format --dry-run --Werror $$(git ls-files '*.h' '*.cc')
	$(ENV_LINT)/bin/ruff check .
	$(ENV_LINT)/bin/ruff format --check .
	cmake --preset dev >/dev/null
	tools/clang_tidy.py --clang-tidy $(ENV_LINT)/bin/clang-tidy -p build/dev --slowest 5 $(ANALYZE) $$(git ls-files 'src/*.cc' | grep -v '_test.cc\|_bench.cc\|^src/vgpu/libs/')

# The linters with clang's path-sensitive analyzer, which takes twice as long as all of them.
analyze:
	@$(MAKE) --no-print-directory lint ANALYZE=--analyze

sanitize: setup
	for preset in $(SANITIZERS); do \
	  cmake --preset $$preset >/dev/null && cmake --build --preset $$preset && ctest --preset $$preset -j2 || exit 1; \
	done

eval: build $(ENV_OLD)/.ready
	$(ENV_OLD)/bin/python -m eval.papers.run_papers --gpucast $(GPUCAST) --data $(DATA) --out $(EVAL_OUT)

accuracy: build $(ENV_OLD)/.ready
	@mkdir -p $(EVAL_OUT)
	$(ENV_OLD)/bin/python -m eval.memory.xmem_rows --gpucast $(GPUCAST) --data $(DATA) --arch all --min-batch 1 --cudnn off --jobs 2 \
	  --resume $(EVAL_OUT)/accuracy.jsonl --markdown docs/results/accuracy.md
	$(ENV_OLD)/bin/python -m eval.memory.upper_bound --gpucast $(GPUCAST) --data $(DATA) --cudnn off --jobs 2 \
	  --resume $(EVAL_OUT)/accuracy.jsonl --write data/calibration.json --markdown docs/results/upper-bound.md

bench: build $(ENV_NEW)/.ready $(WEB_MODULES)/.package-lock.json
	@tools/setup --bench
	cmake -S . -B build/bench -G Ninja -DCMAKE_BUILD_TYPE=Release -DGPUCAST_BENCH=ON -DGPUCAST_TESTS=OFF >/dev/null
	cmake --build build/bench --target gpucast_bench vgpu_bench
	build/bench/bin/vgpu_bench
	$(ENV_NEW)/bin/python bench/run_overhead.py --gpucast $(GPUCAST)
	$(ENV_NEW)/bin/python bench/replay_speed.py --gpucast $(GPUCAST) --bench build/bench/bin/gpucast_bench
	$(ENV_NEW)/bin/python bench/profile_reader.py --gpucast $(GPUCAST) --bench build/bench/bin/gpucast_bench
	$(ENV_NEW)/bin/python bench/time_speed.py --gpucast $(GPUCAST)
	$(ENV_NEW)/bin/python bench/count_speed.py --bench build/bench/bin/gpucast_bench
	$(ENV_NEW)/bin/python bench/ranks_speed.py --bench build/bench/bin/gpucast_bench
	@tools/setup --web-test
	PATH="$(CURDIR)/$(ENV_NEW)/bin:$$PATH" $(GPUCAST) run --steps 8 --force -o build/bench/short.gpucast -- python examples/train_resnet50.py --batch 32 >/dev/null
	$(ENV_NEW)/bin/python bench/make_capture.py build/bench/short.gpucast build/bench/long.gpucast --events 1000000
	$(ENV_NEW)/bin/python bench/reports.py --gpucast $(GPUCAST) --modules $(WEB_MODULES) build/bench/long.gpucast

build: setup
	@cmake --preset release >/dev/null
	@cmake --build --preset release

setup:
	@tools/setup

$(ENV_NEW)/.ready: tools/python_env
	@tools/python_env $(ENV_NEW) $(TORCH_NEW)

$(ENV_OLD)/.ready: tools/python_env
	@tools/python_env $(ENV_OLD) $(TORCH_OLD)

$(ENV_NVIDIA)/.ready: tools/python_env
	@tools/python_env $(ENV_NVIDIA) $(TORCH_NEW) --with-nvidia

# The newest release that PyTorch's own requirement allows, alone: no environment.
.venv/cudnn/.ready: $(ENV_NEW)/.ready
	@$(ENV_NEW)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-compile --upgrade --target .venv/cudnn 'nvidia-cudnn-cu13==9.24.*'
	@touch $@

$(ENV_LINT)/.ready: tools/python_env
	@tools/python_env $(ENV_LINT) lint

$(ENV_WHEEL)/.ready: tools/python_env
	@tools/python_env $(ENV_WHEEL) wheel

$(ENV_PROGRAMS)/.ready: tools/python_env
	@tools/python_env $(ENV_PROGRAMS) programs

$(ENV_API)/.ready: tools/python_env
	@tools/python_env $(ENV_API) api

clean:
	rm -rf build
