# Two commands set everything up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
DEMO ?= demo
# tests run on every core: in neighbouring pieces, or all of one model's in one process; what they
# compile is shared by all (tests/helpers/quick_builds.py)
TEST := $(BIN)/python -m pytest -q -n auto --maxprocesses 8 --dist worksteal
BY_MODEL := $(subst worksteal,loadgroup,$(TEST))

# the many processes that tests start read what the first of them has compiled
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo lint test coverage product zoo conformance bench wheel clean

demo: $(VENV)/.installed-demo
	$(BIN)/python examples/digits/digits.py --out $(DEMO)

# what can be said of the code without running it: seconds
lint: $(VENV)/.installed-lint
	$(BIN)/ruff check .
	$(BIN)/mypy

test: $(VENV)/.installed-test
	$(TEST)

# the same, counting which lines it runs (slower)
coverage: $(VENV)/.installed-test
	$(BIN)/python -m pytest --cov --cov-report=term -q

# AOTC_SHARD=K/N: every N-th variant of these tests, from the K-th on, and at least one of each
product: $(VENV)/.installed-test
	$(TEST) -m 'product and not zoo'

# AOTC_SHARD=K/N: of what takes long for every model, every N-th model from the K-th on, of all
# else that runs over models half
zoo: $(VENV)/.installed-test
	$(BY_MODEL) -m zoo

# AOTC_SHARD=K/N: every N-th case of the official ONNX suite, from the K-th on
conformance: $(VENV)/.installed-test
	$(TEST) -m conformance

bench: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks.zoo

wheel: $(VENV)/.installed-demo
	$(BIN)/python -m pip wheel --no-deps --wheel-dir dist .

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	touch $@

$(VENV)/.installed-test: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[demo,test,platforms]'
	touch $@

$(VENV)/.installed-lint: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable '.[demo,test,platforms,lint]'
	touch $@

clean:
	rm -rf $(VENV) $(DEMO) build dist aotc.egg-info .pytest_cache .hypothesis .coverage
