# headcount: `make train` and `make test` need Python 3.11 to 3.13, make, and a package index; nothing else.

PYTHON ?= python3
RUN    ?= runs/latest
SWEEP  ?= runs/heads_fixed_width_grammar
DATA   ?=
MODEL  ?=
RECIPE ?=
STUDY  ?= heads_fixed_width
JOBS   ?= -1
KEEP   ?= 12
ARGS   ?=

BIN := .venv/bin
HEADCOUNT := $(BIN)/headcount
CHOICES = $(if $(DATA),data=$(DATA)) $(if $(MODEL),model=$(MODEL)) $(if $(RECIPE),recipe=$(RECIPE)) $(ARGS)
PYTEST := $(BIN)/python -m pytest --numprocesses=auto --maxprocesses=4
SHORT := not slow and not reliability and not gpu
# Not compiled: most of what is installed is never imported, and what is gets compiled then.
PIP := $(BIN)/python -m pip install --disable-pip-version-check --quiet --no-compile --constraint constraints.txt
# With it, every start of Python would compile all that it imports anew, which doubles the time of the imports.
unexport PYTHONDONTWRITEBYTECODE

# NAME=VALUE as a word of the shell; the value is text in Hydra's quotes, but for a list [A,B].
setting = "$(1)=$(if $(filter [%,$(2)),$(2),'$(2)')"
run = $(call setting,run,$(RUN))

.DEFAULT_GOAL := help
.PHONY: help setup train evaluate translate doctor explore export serve ablate report heads prune findings record bench docs test test-medium test-all test-reliability mutation lint format clean

help:  ## Show what there is
	@echo "usage: make TARGET [DATA=multi30k] [MODEL=tiny] [RECIPE=multi30k_en_de] [RUN=runs/latest] [ARGS=\"model.num_heads=8 seed=2\"]"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "Every setting: $(HEADCOUNT) train --help (after make setup)"

setup: .venv/dev  ## Make .venv with everything, development tools included

train: .venv/core  ## Train a model, score it, leave a run directory
	$(HEADCOUNT) train $(CHOICES)

evaluate: .venv/core  ## Score RUN with sacrebleu
	$(HEADCOUNT) evaluate $(run) $(ARGS)

# What another engine needs, if ARGS asks for it.
ENGINE = $(if $(filter engine=ctranslate2,$(ARGS)),.venv/export)

translate: .venv/core $(ENGINE)  ## Translate standard input with RUN
	@$(HEADCOUNT) translate $(run) $(ARGS)

# RUN and the settings of a corpus exclude each other; a corpus has no MODEL.
doctor: .venv/core  ## Look for causes of a low score in RUN, or in a corpus: make doctor DATA=multi30k
	@$(HEADCOUNT) doctor $(if $(DATA)$(RECIPE),$(if $(DATA),data=$(DATA)) $(if $(RECIPE),recipe=$(RECIPE)),$(run)) $(ARGS)

explore: .venv/core  ## Write a page that runs RUN in a browser, to try its translations without some heads
	$(HEADCOUNT) export $(run) format=page $(ARGS)

export: .venv/export  ## Write RUN in the format of CTranslate2: ARGS="quantization=int8"; or ARGS="format=huggingface"
	$(HEADCOUNT) export $(run) $(ARGS)

serve: .venv/serve $(ENGINE)  ## Serve the translations of RUN over HTTP: ARGS="port=8080"
	@$(HEADCOUNT) serve $(run) $(ARGS)

ablate: .venv/report  ## Run STUDY, JOBS runs at once (-1: one a core), and report: STUDY=kv_heads RECIPE=multi30k_study
	$(HEADCOUNT) train --multirun study=$(STUDY) hydra.launcher.n_jobs=$(JOBS) report=true $(CHOICES)

report: .venv/report  ## Write the report of the sweep in SWEEP anew
	$(HEADCOUNT) report $(call setting,sweep,$(SWEEP)) $(ARGS)

findings: .venv/report  ## Write docs/findings.md and its pictures from the kept runs
	$(BIN)/python scripts/findings/findings.py

record: .venv/report  ## Time training to MARK BLEU over five seeds: NAME=mine MARK=90 ARGS="threads=2" (docs/records.md)
	$(BIN)/python scripts/findings/records.py $(NAME) --mark $(MARK) $(ARGS)

heads: .venv/report  ## Measure what each head of RUN does and is worth; of all runs of a sweep: SWEEP=runs/...
	$(HEADCOUNT) heads $(if $(filter file,$(origin SWEEP)),$(run),$(call setting,sweep,$(SWEEP))) $(ARGS)

prune: .venv/report  ## Write a smaller run with KEEP heads of RUN (a number, or a list of names): KEEP=12 ARGS="order=greedy"
	$(HEADCOUNT) heads $(run) "prune=$(KEEP)" $(ARGS)

bench: .venv/report .venv/export  ## Speed beside other programs (an hour); a part of it: ARGS="--work train --peers torch_loop"
	$(BIN)/python scripts/bench/run.py $(ARGS)

test: .venv/dev  ## Run the quick tests
	$(PYTEST) -m "not medium and $(SHORT)" $(ARGS)

test-medium: .venv/dev  ## Run the tests that take a fifth of a second or more: whole commands, short trainings
	$(PYTEST) -m "medium and $(SHORT)" $(ARGS)

test-all: .venv/slow  ## Run all tests, the slow ones too
	$(PYTEST) -m "not reliability" $(ARGS)

test-reliability: .venv/dev  ## Kill trainings at random moments, damage files, draw bad data: KILLS=1000 FUZZ_CASES=20000
	$(BIN)/python -m pytest -m "reliability or medium" -s tests/reliability $(ARGS)

MUTANTS := runs/mutation.sqlite
mutation: .venv/mutation  ## Mutation testing: do the quick tests notice changes of the lines that differ from main?
	mkdir -p runs
	$(BIN)/cosmic-ray init --force tests/cosmic-ray.toml $(MUTANTS)
	$(BIN)/cr-filter-operators $(MUTANTS) tests/cosmic-ray.toml
	$(BIN)/cr-filter-git --config tests/cosmic-ray.toml $(MUTANTS)
	$(BIN)/cosmic-ray exec tests/cosmic-ray.toml $(MUTANTS)
	$(BIN)/cr-report --surviving-only --show-diff $(MUTANTS)

docs: .venv/docs  ## Write the documentation as a site to site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --config-file scripts/site/mkdocs.yml
	@echo "site/index.html   (with search: python3 -m http.server --directory site)"

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
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || \
	  { echo "error: $(PYTHON) is not Python 3.11 to 3.13; name one that is: make PYTHON=python3.13 ..."; exit 2; }
	@echo "making .venv"
	@$(PYTHON) -m venv .venv

.venv/core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing what training needs (a minute or two)" >&2
	@$(PIP) --editable . >&2
	@touch $@

# An extra of pyproject.toml; not to standard output, where `make translate` writes.
.venv/docs .venv/export .venv/report .venv/serve: .venv/core
	@echo "installing what $(@F) needs" >&2
	@$(PIP) --editable ".[$(@F)]" >&2
	@touch $@

.venv/slow .venv/mutation: .venv/dev
	@$(PIP) --editable ".[$(@F)]"
	@touch $@

.venv/dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing everything, development tools included (a minute or two)"
	@$(PIP) --editable ".[dev]"
	@touch .venv/core .venv/export .venv/report .venv/serve $@
