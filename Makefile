# Every target makes what it needs: .venv with the pinned dependencies, then the work itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test lint bench clean

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/.installed-test
	$(BIN)/python -m benchmarks

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[arrays,report]'
	touch $@

$(VENV)/.installed-test: $(VENV)/.installed
	$(PIP) --editable '.[arrays,loops,onnx,proofs,ray,report,runtimes,tables,test,lint,benchmarks]'
	touch $@

clean:
	rm -rf $(VENV)
