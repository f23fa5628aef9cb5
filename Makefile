# make demo   a year of real flights through two streaming queries of Spark; driver, workers and broker are killed; exact
#             (SEED=7 ROWS=5000 KILLS=6); BROKERS=3: on three brokers and an etcd, whose leaders and coordinators are killed;
#             it prints the address of the console's page, which shows the run while it happens
# make demo-client  the same flights without Spark: counted by a group, then enriched in transactions, with kills;
#             SECURE=1: on the three brokers of deploy/docker-compose.secure.yml
# make test   what to run before a push: units, a part of the seeds, ablations and scenarios, one stream of Spark; what
#             `make check` runs is left out
# make test-all  everything, each part with its time: `make tests` (all but crashes), `make crashes`, `make faults`,
#             `make sim-exhaustive`, `make strangers`; hours
# make crashes  Spark's drivers, workers and brokers killed at every point of a batch, on a standalone cluster too; the demo
# make sim    the simulator: 300 seeds, or SEEDS=100000; SEED=17 shows one, SHRINK=1 makes it small; WORKLOAD=plain,churn;
#             BROKERS=3; ALONE=elections or ALONE=topics: three brokers without logs and clients; ALONE=crowd: fairness;
#             ALONE=disks: slow disks; ALONE=groups: members that die amid a rebalance, and deleted offsets
# make sim-exhaustive  an application of two batches, struck before each of its steps (SEEDS=20); late requests of old clients
# make ablations  safeguards switched off in turn: some seed has to miss each (NAME='duplicate window' WRITE=1)
# make faults real processes under SIGKILL, SIGSTOP, full disks, broken files and a bad network (MINUTES=5 SEED=7);
#             BROKERS=3: on three brokers and an etcd, cut off from each other, restarted in turn; SECURE=1: the same with users over TLS;
#             then losses of power at 40 points of a recorded run, and how long others wait while each sync takes 300 ms
# make soak   a broker under work whose names are new each time, for 45 minutes (MINUTES=10 SEED=7): memory, open files, tasks
#             and disk each minute; all that clients leave expires after 5 minutes, and all figures have to level off
# make fuzz   odd bytes at every door, for a minute or SECONDS=600, or EXAMPLES=100 of each kind; SEED=7 starts there
# make strangers  other people's programs and test suites against a broker, fetched by their languages' package clients
#             (NAME=kafka-clients); BROKERS=3: against three; AGAINST=kafka: against Apache Kafka, to compare (KAFKA=3.9.2)
# make check  format, lint, types, floors, tidy
# make map    writes the committed file that is made of tables: the dashboard
# make cluster  the three brokers and the etcd of docker-compose.yml, as processes (ARGS=-d leaves them running);
#             SECURE=1: those of deploy/docker-compose.secure.yml, with users, TLS and ACLs; keys and passwords in tls/
# make docs   the site of the documents, with the API reference, in build/site (ARGS=serve shows it on 127.0.0.1:8000)
# make dist   wheel and sdist in dist/; the wheel is installed into empty environments, where README, docs and examples run
# make screenshots  the pictures of the console in docs/images/console, taken in a Chromium of this machine
# make bench  the figures of docs/figures.md, measured on this machine
# JOBS=N     processes that run tests: one more than two cores, because tests of real processes wait for each other
# Each target does all the set-up it needs; it wants python3 (3.11 or newer), make and a package registry.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
JOBS   ?= 3
BROKERS ?= 1
DEMO_BROKERS = $(if $(SECURE),--brokers 3 --secure,--brokers $(BROKERS))

.PHONY: help screenshots demo demo-client test test-all tests crashes sim ablations soak fuzz faults strangers map cluster check docs dist bench format clean
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "semel needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip

$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	@echo "installing all that developers need, Spark too: about 2.1 GB"
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@touch $@ $(VENV)/.demo $(VENV)/.processes $(VENV)/.spark $(VENV)/.spark-processes

$(VENV)/.processes: pyproject.toml | $(BIN)/python
	@echo "installing what brokers and an etcd as processes need: about 300 MB"
	$(BIN)/python -m pip install --quiet --editable '.[demo,processes]'
	@touch $@ $(VENV)/.demo

$(VENV)/.spark: pyproject.toml | $(BIN)/python
	@echo "installing Spark, and a Java where there is none: about 1 GB"
	$(BIN)/python -m pip install --quiet --editable '.[demo,spark]'
	@touch $@ $(VENV)/.demo

$(VENV)/.spark-processes: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[demo,spark,processes]'
	@touch $@ $(VENV)/.spark $(VENV)/.demo $(VENV)/.processes

$(VENV)/.browser: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[broker,browser]'
	@touch $@

demo: $(VENV)/$(if $(filter 3,$(BROKERS)),.spark-processes,.spark)
	@$(BIN)/python -m demo.spark --brokers $(BROKERS) $(if $(SEED),--seed $(SEED)) $(if $(ROWS),--rows $(ROWS)) \
	  $(if $(KILLS),--kills $(KILLS))

demo-client: $(VENV)/$(if $(SECURE)$(filter 3,$(BROKERS)),.processes,.demo)
	$(BIN)/python -m demo.counting $(DEMO_BROKERS) $(if $(SEED),--seed $(SEED)) $(if $(ROWS),--rows $(ROWS))
	$(BIN)/python -m demo $(DEMO_BROKERS) $(if $(SEED),--seed $(SEED)) $(if $(ROWS),--rows $(ROWS)) $(if $(KILLS),--kills $(KILLS))

# A test that hangs where no signal reaches it (in C, or in a loop that takes the signal's exception) ends its worker with a dump of all threads.
test: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations=25 -m 'not crash and not thorough' --ignore=tests/tidy \
	  --maxfail=50 -o faulthandler_timeout=400 -o faulthandler_exit_on_timeout=true $(ARGS)

# Each part runs, also after one that failed: a run takes hours, and shows all failures at once.
test-all: $(VENV)/.dev
	@failed=; for part in tests crashes faults 'faults BROKERS=3' sim-exhaustive strangers 'strangers BROKERS=3'; do \
	  began=$$(date +%s); echo "== make $$part"; \
	  $(MAKE) $$part && result=passed || { result=FAILED; failed="$$failed, make $$part"; }; \
	  echo "== make $$part: $$result after $$((($$(date +%s) - began) / 60)) minutes"; \
	done; test -z "$$failed" || { echo "failed: $${failed#, }"; exit 1; }

tests: $(VENV)/.dev
	$(BIN)/python -m pytest -n $(JOBS) --dist worksteal --durations=25 -m 'not crash' $(ARGS)

crashes: $(VENV)/.dev
	$(BIN)/python -m pytest -m crash tests/pipeline tests/demo $(ARGS)

sim: $(VENV)/.dev
	@PYTHONPATH=tests $(BIN)/python -m $(if $(ALONE),sim.alone $(ALONE),sim) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(FIRST),--first $(FIRST)) \
	  $(if $(SEED),--seed $(SEED)) $(if $(PLAN),--plan $(PLAN)) $(if $(WORKLOAD),--workload $(WORKLOAD)) \
	  $(if $(ALONE),,--brokers $(BROKERS)) $(if $(SHRINK),--shrink) $(if $(SHORT),--short) $(ARGS)

sim-exhaustive: $(VENV)/.dev
	@PYTHONPATH=tests $(BIN)/python -m sim.applications $(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)
	@PYTHONPATH=tests $(BIN)/python -m sim.old_clients

ablations: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m sim.ablations $(if $(NAME),'$(NAME)') $(if $(SEEDS),--seeds $(SEEDS)) $(if $(WRITE),--keep) $(ARGS)

# With a SEED or arguments, rounds alone.
faults: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m faults --brokers $(BROKERS) $(if $(SECURE),--secure) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)
ifeq ($(SEED)$(SECURE)$(ARGS),)
	$(if $(filter 1,$(BROKERS)),PYTHONPATH=tests $(BIN)/python -m faults.power)
	PYTHONPATH=tests $(BIN)/python -m faults.slow_disk --brokers $(BROKERS)
endif

soak: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m fuzz $(if $(SECONDS),--seconds $(SECONDS)) $(if $(EXAMPLES),--examples $(EXAMPLES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

strangers: $(VENV)/$(if $(AGAINST),.dev,.processes)
	@$(BIN)/python -m tools.strangers $(NAME) --brokers $(BROKERS) $(if $(AGAINST),--against $(AGAINST)) $(if $(KAFKA),--kafka $(KAFKA)) $(ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	MYPYPATH=tests $(BIN)/mypy -p sim -p faults -p fuzz -p soak -p support -p tools.bench -p demo
	$(BIN)/mypy examples tests/client/typing
	$(BIN)/basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/tidy

map: $(VENV)/.dev
	@$(BIN)/python -m tools.dashboard

cluster: $(VENV)/.processes
	@$(if $(SECURE),$(BIN)/python -m tools.cluster -f deploy/docker-compose.secure.yml secrets tls)
	@$(if $(SECURE),PEER_NAMES=) $(BIN)/python -m tools.cluster \
	  $(if $(SECURE),-f deploy/docker-compose.secure.yml --env-file tls/passwords.env) up $(ARGS)

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[docs]'
	@touch $@

docs: $(VENV)/.docs
	@PYTHONPATH=tests $(BIN)/python -m tools.website $(ARGS)

$(VENV)/.release: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[release]'
	@touch $@

dist: $(VENV)/.release
	@$(BIN)/python -m tools.release $(ARGS)

screenshots: $(VENV)/.browser
	@PYTHONPATH=tests $(BIN)/python -m console.screenshots

bench: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -m tools.bench $(ARGS)

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .strangers demo-data fuzz-findings
