# Kioku Lab. `make` alone shows what there is to do. Needs: make, git, Python 3.11 or newer with pip.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SHELL := /bin/sh
# Where this is set, no compiled bytecode is ever kept and every process compiles its imports again.
unexport PYTHONDONTWRITEBYTECODE
# Variables reach Python through the environment, never through a shell line: SYSTEM='a b"; c' stays a name.
export SYSTEM ROUTE ROUTING PERSONAS PROFILE JOBS ENGINE SCHEDULER EDITION JUDGE ANSWERER GRADER JUDGE_SET_PAIRS EMBEDDER K BUDGET_TOKENS \
  FLOOR SEED BOOTSTRAP UNIT_TIMEOUT_S SETTINGS RUN TRACK ALL OUT LANGUAGE SIZE WORLD_SEED SHAPE AUTHORITY SCRIPT TRANSCRIPT \
  DATASET URL TOOLS TIMEOUT_S PINNED_KEY DATA LABEL QUESTIONS IDS TOP_SESSIONS READER PANEL OFFICIAL_REPO STEPWISE FACTS_STEPWISE \
  DISPUTED INTERNAL_MODEL MODEL ENDPOINT BUDGET BUDGET_USD CONCURRENCY PARAMS GENERATOR VOILA
export UV_NO_PROGRESS = 1
export PIP_DISABLE_PIP_VERSION_CHECK = 1

VENV ?= .venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3 python3.14 python; do \
  $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; done)
TESTS ?=

ifeq ($(USE_ACTIVE_ENV),1)
PY := python
READY := active
else
PY := $(VENV)/bin/python
LOCK := $(VENV)/kiokulab-$(shell cat requirements.lock pyproject.toml | cksum | tr ' ' '-')
READY := $(LOCK)
ifneq ($(filter embeddings,$(EXTRAS)),)
READY += $(VENV)/embeddings-$(shell cat requirements-embeddings.lock | cksum | tr ' ' '-')
endif
endif
ifneq ($(filter-out embeddings,$(EXTRAS)),)
$(error EXTRAS may be: embeddings)
endif
KIT := $(PY) -m kiokulab

.PHONY: help active env kioku drift emem verdict data-longmemeval test test-systems verify replay judge cost dataset contract systems reproduce compare report publish explore review teach test-browser bench notebook doctor clean

help: ## this list
	@echo "Kioku Lab: benchmarks of AI agents' memory, as notebooks that stay as receipts."
	@echo
	@awk -F ':.*## ' '/^[a-z%<>-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 } /^#> / { printf "       %s\n", substr($$0, 4) }' $(MAKEFILE_LIST)
	@echo
	@echo "  Everywhere: JOBS=n (units at a time), USE_ACTIVE_ENV=1 (the active environment and not .venv),"
	@echo "  EXTRAS=embeddings (sentence-transformers with torch), PYTHON=python3.12 (what .venv is made with)."

kioku: $(READY) ## run the kioku track: five systems, offline
#> make kioku SYSTEM=vector,store-everything ROUTE=all PERSONAS=2
#> make kioku SYSTEM=path/to/mine.py:MyMemory JOBS=4
#> make kioku ENGINE=dask SCHEDULER=tcp://127.0.0.1:8786
#> make kioku PROFILE=live BUDGET=5        with models, through an endpoint
#> also: ROUTING= EDITION= JUDGE= PROFILE=default|live|mine.yml JUDGE_SET_PAIRS= (how many a model judge is measured on)
	@$(KIT) run kioku --from-make

drift: $(READY) ## run the drift track: our worlds, English and Japanese, all arms
#> make drift SCRIPT=path/to/world.json SYSTEM=tfidf,mem0-verbatim
#> make drift SCRIPT=world.json TRANSCRIPT=theirs.json      grade somebody else's transcript
	@$(KIT) run drift --from-make

emem: $(READY) ## run the emem track: four axes of a responder (ours, unless URL is given)
#> make emem URL=http://127.0.0.1:5051 DATASET=items.jsonl
#> make emem SYSTEM=vector                                  any memory system, behind a bridge
	@$(KIT) run emem --from-make

verdict: $(READY) ## run the verdict track: questions on long histories, with the baselines every table has
#> make verdict DATA=longmemeval_s_cleaned.json SYSTEM=plain-rag,mem0-verbatim
#> also: LABEL= (names a file that is not a known release) QUESTIONS=30 IDS=ids.txt OFFICIAL_REPO=
	@$(KIT) run verdict --from-make

data-longmemeval: $(READY) ## how to get the official LongMemEval file, and whether the one in DATA= is it
	@$(KIT) data-longmemeval --from-make

test: $(READY) ## run the tests
#> make test TESTS=tests/test_units.py
	@KIOKULAB_TEST_SYSTEMS=langmem $(PY) -m pytest -n 2 --dist loadfile $(TESTS)

test-systems: $(READY) ## run the tests of the heavy systems, which it installs (ByteRover, cognee, Hindsight, Graphiti, MemOS: 6 GB)
	@KIOKULAB_TEST_SYSTEMS=langmem,byterover,cognee,hindsight,graphiti,memos $(PY) -m pytest $(wildcard tests/test_systems_*.py)

verify: $(READY) ## check a run again from its files alone
#> make verify RUN=outputs/kioku/v0.1/vector/0123456789ab
	@$(KIT) verify --from-make

replay: $(READY) ## run a run again from its recorded model calls: no network, no key, the same figures
#> make replay RUN=outputs/kioku/v0.1/mem0/0123456789ab
	@$(KIT) replay --from-make

judge: $(READY) ## judge a finished run again by another judge, without ingesting again
#> make judge RUN=outputs/kioku/v0.1/vector/0123456789ab JUDGE=llm:openai/gpt-6-luna BUDGET=2
	@$(KIT) judge --from-make

cost: $(READY) ## estimate a live run in calls, tokens and dollars
#> make cost PARAMS=params/live/kioku.yml
	@$(KIT) cost --from-make

dataset: $(READY) ## make a dataset of any size
#> make dataset SEED=7 PERSONAS=100
#> make dataset GENERATOR=llm:openai/gpt-6-luna SEED=7 PERSONAS=2 BUDGET=2      written by a model
	@$(KIT) dataset --from-make

contract: $(READY) ## test an adapter against the contract
#> make contract SYSTEM=mem0-verbatim
	@$(KIT) contract --from-make

systems: $(READY) ## list the memory systems
	@$(KIT) systems --from-make

system-%: $(READY) ## make a memory system's own environment (made on first use otherwise)
#> make system-mem0-verbatim
	@GOAL='$(subst ','\'',$*)'; $(KIT) system -- "$$GOAL"

reproduce: $(READY) ## compute the published figures again
#> make reproduce TRACK=kioku
	@$(KIT) reproduce --from-make

compare: $(READY) ## compare all runs: tables, paired tests, ranks, who is left out and why
	@$(KIT) compare --from-make

report: $(READY) ## make the static site of all published runs
	@$(KIT) report --from-make

publish: $(READY) ## copy a finished run, verified, to outputs/published/
#> make publish RUN=outputs/kioku/v0.1/vector/0123456789ab
	@$(KIT) publish --from-make

explore: $(READY) ## open the explorer in JupyterLab: from a figure to the utterance and the ledger
#> make explore VOILA=1        as a page of its own, without code, by Voila
	@$(PY) -m kiokulab.explore

review: $(READY) ## read an edition as a person and say what is unnatural or wrong
#> make review EDITION=v1 VOILA=1
	@$(PY) -m kiokulab.review

teach: $(READY) ## run the six lessons of notebooks/teach/ and their checks
	@$(KIT) teach

test-browser: $(READY) ## look at explorer and site with Debian's Chromium (apt install chromium chromium-driver)
	@$(PY) -m pytest tests/browser -rs

bench: $(READY) ## measure the kit's own speed
	@$(KIT) bench --from-make

notebook: $(READY) ## open the notebooks in JupyterLab
	@$(PY) -m jupyterlab notebooks

doctor: $(READY) ## say what this machine has and what is missing
	@PYTHONPATH=lib $(KIT) doctor

clean: $(READY) ## take away caches and runs that did not finish
#> make clean ALL=1        every run, .venv and .envs as well
	@$(KIT) clean --from-make

env: $(READY) ## make .venv, or do nothing where it is right

# --- environments -------------------------------------------------------------------------------------------------
# The stamp's name holds the checksum of the lock: a changed lock asks for another stamp, an unchanged one costs nothing.

$(VENV)/kiokulab-%: | requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer was not found. Install it, or say where it is: make PYTHON=/path/to/python3.11"; exit 2; }
	@echo "setting up $(VENV) (once; about a minute)"
	@rm -f $(VENV)/kiokulab-* $(VENV)/embeddings-*
	@$(VENV)/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { echo "  $$($(PYTHON) -V)"; rm -rf $(VENV); $(PYTHON) -m venv $(VENV); }
	@$(VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(VENV)/bin/python -m ensurepip -q
	@echo "  $$(grep -c == requirements.lock) packages from requirements.lock"
	@{ $(VENV)/bin/python -m pip install -q "$$(grep '^uv==' requirements.lock)" \
	    && VIRTUAL_ENV="$$PWD/$(VENV)" $(VENV)/bin/uv pip sync -q --compile-bytecode requirements.lock; } \
	  || { echo "  uv cannot be used here; pip does it, more slowly"; $(VENV)/bin/python -m pip install -q -r requirements.lock; }
	@echo "  the kit itself"
	@VIRTUAL_ENV="$$PWD/$(VENV)" $(VENV)/bin/uv pip install -q --no-deps -e . 2>/dev/null \
	  || { $(VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(VENV)/bin/python -m ensurepip -q; $(VENV)/bin/python -m pip install -q --no-deps -e .; }
	@touch $@ && echo "  ready"

$(VENV)/embeddings-%: $(LOCK) | requirements-embeddings.lock
	@echo "adding sentence-transformers and torch to $(VENV) (large)"
	@$(VENV)/bin/python -m pip --version >/dev/null 2>&1 || $(VENV)/bin/python -m ensurepip -q
	@$(VENV)/bin/python -m pip install -q -c requirements.lock -r requirements-embeddings.lock
	@touch $@ && echo "  ready"

active:
	@PYTHONPATH=lib python -m kiokulab doctor --dependencies || exit 2
	@python -c 'import kiokulab' 2>/dev/null || python -m pip install -q --no-deps -e .
