# Every target makes what it needs: .venv with the pinned dependencies, then the work itself.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Modules are compiled as they are first imported: of twenty thousand that are installed few ever are. They are kept
# compiled where PYTHONDONTWRITEBYTECODE is set, too: else each process of the tests compiled two thousand anew.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(CURDIR)/$(VENV)/compiled
PIP    := $(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --constraint constraints.txt

# A test whose process dies fails, and the others go on in a new process: dividing by files waits for ever then.
PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist worksteal
# What depends on the scratch memory of convolutions, which is another on each processor.
SCRATCH := tests/report/test_report_browser.py tests/report/test_report_memory.py tests/report/test_report_page.py \
           tests/run/arena/test_region.py tests/run/worker/test_run_memory.py \
           tests/search/memory/test_holding.py::test_the_command_line \
           tests/test_documentation.py \
           -k 'not (test_documentation or test_run_memory) or README or command-line or convolution'

.PHONY: demo test test-long test-avx2 lint bench clean

demo: $(VENV)/.installed
	$(BIN)/python examples/demo.py

test: $(VENV)/.installed-test
	$(PYTEST)

# Random searches with all their cases, of which `test` tries a tenth, and what takes long.
test-long: $(VENV)/.installed-test
	GIRIH_LONG_TESTS=1 $(PYTEST)

# As on a processor without AVX-512.
test-avx2: $(VENV)/.installed-test
	ONEDNN_MAX_CPU_ISA=AVX2 $(PYTEST) $(SCRATCH)

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

# Not behind the other: one installation takes half as long as two.
$(VENV)/.installed-test: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable '.[arrays,gnn,loops,onnx,proofs,ray,report,runtimes,tables,test,lint,benchmarks]'
	touch $(VENV)/.installed $@

clean:
	rm -rf $(VENV)
