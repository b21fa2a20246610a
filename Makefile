# headcount: `make train` and `make test` need Python 3.11 or newer, make, and a package index; nothing else.

PYTHON ?= python3
RUN    ?= runs/latest
SWEEP  ?= runs/heads_fixed_width_grammar
DATA   ?=
MODEL  ?=
RECIPE ?=
STUDY  ?= heads_fixed_width
JOBS   ?= -1
ARGS   ?=

BIN := .venv/bin
CHOICES = $(if $(DATA),data=$(DATA)) $(if $(MODEL),model=$(MODEL)) $(if $(RECIPE),recipe=$(RECIPE)) $(ARGS)
WORKERS := --numprocesses=auto --maxprocesses=4
SHORT := not slow and not reliability and not gpu
# Not compiled: most of what is installed is never imported, and what is gets compiled then.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet --no-compile --constraint constraints.txt
# With it, every start of Python would compile all that it imports anew, which doubles the time of the imports.
unexport PYTHONDONTWRITEBYTECODE

# NAME=VALUE of a variable, as a word of the shell. The value is text in Hydra's quotes, but for a list [A,B] and for what
# begins with a quote.
hydra = $(if $(filter [% '%,$(firstword $(1))),$(1),'$(subst ',\',$(1))')
doubled = "$(subst `,\`,$(subst $$,\$$,$(subst ",\",$(subst \,\\,$(1)))))"
setting = $(call doubled,$(1)=$(call hydra,$(value $(2))))

.DEFAULT_GOAL := help
.PHONY: help setup train evaluate translate doctor explore export serve ablate report heads prune bench test test-medium test-all test-reliability mutation lint format clean

help:  ## Show what there is
	@echo "usage: make TARGET [DATA=multi30k] [MODEL=tiny] [RECIPE=multi30k_en_de] [RUN=runs/latest] [ARGS=\"model.num_heads=8 seed=2\"]"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "Every setting: $(BIN)/python scripts/train.py --help (after make setup)"

setup: .venv/dev  ## Make .venv with everything, development tools included

train: .venv/core  ## Train a model, score it, leave a run directory
	$(BIN)/python scripts/train.py $(CHOICES)

evaluate: .venv/core  ## Score RUN with sacrebleu
	$(BIN)/python scripts/evaluate.py $(call setting,run,RUN) $(ARGS)

# What another engine needs, if ARGS asks for it.
ENGINE = $(if $(filter engine=ctranslate2,$(ARGS)),.venv/export)

translate: .venv/core $(ENGINE)  ## Translate standard input with RUN
	@$(BIN)/python scripts/translate.py $(call setting,run,RUN) $(ARGS)

# RUN and the settings of a corpus exclude each other; a corpus has no MODEL.
doctor: .venv/core  ## Look for causes of a low score in RUN, or in a corpus: make doctor DATA=multi30k
	@$(BIN)/headcount doctor $(if $(DATA)$(RECIPE),$(if $(DATA),data=$(DATA)) $(if $(RECIPE),recipe=$(RECIPE)) $(ARGS),$(call setting,run,RUN) $(ARGS))

explore: .venv/core  ## Write a page that runs RUN in a browser, to try its translations without some heads
	$(BIN)/headcount export $(call setting,run,RUN) format=page $(ARGS)

export: .venv/export  ## Write RUN in the format of CTranslate2: ARGS="quantization=int8"; or ARGS="format=huggingface"
	$(BIN)/headcount export $(call setting,run,RUN) $(ARGS)

serve: .venv/serve $(ENGINE)  ## Serve the translations of RUN over HTTP: ARGS="port=8080"
	@$(BIN)/headcount serve $(call setting,run,RUN) $(ARGS)

# JOBS=-1 is a run a core, of those that this process may use. A job may fail; there is a report of the rest all the same, of
# the folder that the sweep has written to the file.
ablate: .venv/study  ## Run STUDY, JOBS runs at once, and report: STUDY=kv_heads RECIPE=multi30k_study
	@export HEADCOUNT_SWEEP_FILE=$$(mktemp); \
	$(BIN)/python scripts/train.py --multirun study=$(STUDY) hydra/launcher=joblib hydra.launcher.n_jobs=$(JOBS) $(CHOICES); \
	status=$$? sweep=$$(cat $$HEADCOUNT_SWEEP_FILE); rm $$HEADCOUNT_SWEEP_FILE; \
	[ -z "$$sweep" ] || $(BIN)/python scripts/report.py "$$sweep" && exit $$status

report: .venv/study  ## Write the report of the sweep in SWEEP anew
	$(BIN)/python scripts/report.py $(call setting,sweep,SWEEP) $(ARGS)

heads: .venv/study  ## Measure what each head of RUN does and is worth; of all runs of a sweep: SWEEP=runs/...
	$(BIN)/python scripts/heads.py $(if $(filter file,$(origin SWEEP)),$(call setting,run,RUN),$(call setting,sweep,SWEEP)) $(ARGS)

# KEEP: a number of heads, or a list of their names.
KEEP ?= 12
prune: .venv/study  ## Write a smaller run with KEEP heads of RUN: KEEP=12 ARGS="order=greedy"
	$(BIN)/python scripts/heads.py $(call setting,run,RUN) $(call doubled,prune=$(KEEP)) $(ARGS)

bench: .venv/study .venv/export  ## Speed beside other toolkits; a part of it: ARGS="--work train --peers torch_loop"
	$(BIN)/python scripts/bench/run.py $(ARGS)

test: .venv/dev  ## Run the quick tests
	$(BIN)/python -m pytest $(WORKERS) -m "not medium and $(SHORT)" $(ARGS)

test-medium: .venv/dev  ## Run the tests that take a fifth of a second or more: whole commands, short trainings
	$(BIN)/python -m pytest $(WORKERS) -m "medium and $(SHORT)" $(ARGS)

test-all: .venv/slow  ## Run all tests, the slow ones too
	$(BIN)/python -m pytest $(WORKERS) -m "not reliability" $(ARGS)

test-reliability: .venv/dev  ## Kill trainings at random moments, damage files, draw bad data: KILLS=1000 FUZZ_CASES=20000
	$(BIN)/python -m pytest -m "reliability or medium" -s tests/reliability $(ARGS)

mutation: .venv/mutation  ## Mutation testing: do the tests notice random changes of the code? ARGS="--help"
	$(BIN)/python tests/mutation.py $(ARGS)

lint: .venv/dev  ## Check style, types and the direction of imports
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/dev  ## Put the code into shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove caches and prepared data; runs and the environment stay
	rm -rf data/prepared .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
	find src scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +

# Each is installed again only when the requirements change.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "error: $(PYTHON) is older than 3.11; name a newer one: make PYTHON=python3.12 ..."; exit 2; }
	@echo "making .venv"
	@$(PYTHON) -m venv .venv

.venv/core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing what training needs (a minute or two)"
	@$(PIP) --editable .
	@touch $@

.venv/study: .venv/core
	@echo "installing what studies need"
	@$(PIP) --editable ".[sweep,report]"
	@touch $@

# Not to standard output, where `make translate` writes.
.venv/export: .venv/core
	@echo "installing CTranslate2" >&2
	@$(PIP) --editable ".[export]" >&2
	@touch $@

.venv/serve: .venv/core
	@echo "installing what the server needs"
	@$(PIP) --editable ".[serve]"
	@touch $@

.venv/dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing everything, development tools included (a minute or two)"
	@$(PIP) --editable ".[dev]"
	@touch .venv/core .venv/export .venv/serve .venv/study $@

.venv/slow: .venv/dev
	@echo "installing what slow tests need"
	@$(PIP) --editable ".[slow]"
	@touch $@

.venv/mutation: .venv/dev
	@echo "installing cosmic-ray"
	@$(PIP) --editable ".[mutation]"
	@touch $@
