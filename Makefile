# Everything here sets itself up: `make demo` and `make test` work on a fresh clone with Python 3.11 or newer.
.DEFAULT_GOAL := help
SHELL := /bin/bash
BIN := .venv/bin
READY := .venv/.ready
# The Sparks of `make test-spark`, next to the one in the locked environment.
SPARK := 4.0 4.1 4.2 4.3
# The brokers of `make test-brokers`; docs/versions.md lists them.
KAFKA := 2.1.1 2.8.2 3.3.2 3.9.2 4.0.2 4.1.2 4.2.1 4.3.1 4.4.0
# Python compiles each file once, not in every process, also where it is told to leave no bytecode next to the sources.
COMPILED := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(CURDIR)/.cache/bytecode
# The Pythons of `make test-pythons`, next to the 3.11 of the locked environment.
PYTHONS := 3.12 3.13 3.14
# Of tests/spark, what `make test` runs with real Kafka and Spark.
CORE := $(patsubst %,tests/spark/test_%.py,batch stream write_kafka exactly_once formats security)
# Python folders besides the package; the sdist lacks some.
SOURCES := spark_kafka_sink $(wildcard docs/generate.py pyspark_pykafka jobs examples benchmarks tests)
LOCK := uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url \
	--custom-compile-command "make lock" pyproject.toml
# The lowest versions that pyproject.toml allows of what every installation has.
LOWEST := .cache/lowest-direct.txt
# The environments of lowest and of other Sparks have old versions on purpose.
AUDITED := $(filter-out requirements/lowest.txt requirements/spark-%,$(wildcard requirements/*.txt))
PIP_AUDIT := .cache/release/bin/pip-audit
# gssapi is compiled against the system's Kerberos: only requirements/gssapi.txt has it.
EXTRAS_BUT := python3 -c 'import sys, tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; print(*(f"--extra {extra}" for extra in extras if extra not in sys.argv))'

.PHONY: help setup demo test test-fast test-core test-more test-faults test-contract test-all test-spark test-brokers test-foreign test-shipping test-release test-yarn test-examples test-lowest test-pythons test-gssapi test-planted check format bench fuzz model soak pictures audit docs lock build clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9.-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## uv, the locked environment in .venv, a Java 17 or newer

$(READY): requirements/dev.txt pyproject.toml .ci/setup
	@.ci/setup .venv requirements/dev.txt
	@touch $@

demo: $(READY) ## 336,776 real rows onto a real Kafka and back (BROKER=host:port for your own)
	@$(BIN)/python -m examples.demo $(if $(BROKER),--broker $(BROKER))

test: $(READY) ## the tests without a JVM and, beside them, the first with real Kafka and Spark (10 minutes on 2 cores)
	@mkdir -p .cache; $(MAKE) --no-print-directory test-core >.cache/test-core.log 2>&1 & core=$$!; \
	$(MAKE) --no-print-directory test-fast; fast=$$?; echo 'The tests with Kafka and Spark:'; \
	wait $$core; core=$$?; cat .cache/test-core.log; exit $$((fast || core))

test-fast: $(READY) ## the tests without a JVM
	@$(COMPILED) $(BIN)/python -m pytest -n 3 --dist worksteal -m "not jvm and not slow" -o cache_dir=.pytest_cache/$@ $(ARGS)

test-core: $(READY) ## batch, stream, both guarantees, a registry, TLS and SASL on one real Kafka and one Spark
	@$(BIN)/python -m pytest -m "jvm and not slow" -o cache_dir=.pytest_cache/$@ $(CORE) $(ARGS)

test-more: $(READY) ## the other tests with real Kafka and Spark that run before a merge
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "jvm and not slow" -o cache_dir=.pytest_cache/$@ $(CORE:%=--ignore %) $(ARGS)

test-faults: $(READY) ## every kill, interrupt and network fault, each crash point of exactly-once
	@$(BIN)/python -m pytest -n 2 --dist loadfile tests/faults $(ARGS)

test-contract: $(READY) ## the contract with a broker and the secured clients on every Kafka, not just on the newest
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m jvm tests/contract $(ARGS)

test-all: $(READY) ## every test
	@$(BIN)/python -m pytest $(ARGS)

test-spark: $(SPARK:%=test-spark-%) ## the Spark tests on the newest 4.0 to 4.3 of Spark (SPARK=4.1: on that one)

test-spark-%: .cache/spark-%/.ready
	@.cache/spark-$*/bin/python -m pytest -m "jvm and not slow" tests/spark $(ARGS)

test-spark-3.5: .cache/spark-3.5/.ready ## write_kafka on Spark 3.5, which has no Python data sources
	@.cache/spark-3.5/bin/python -m pytest -m jvm tests/spark/test_write_kafka.py tests/faults/exactly_once/test_write_kafka.py \
		tests/spark/test_selftest.py::test_every_row_is_read_back_and_nothing_is_left $(ARGS)

test-brokers: $(READY) ## batch and stream, both guarantees, on brokers from the oldest to the newest (KAFKA=3.9.2: on that one)
	@$(BIN)/python -m pytest tests/spark/test_brokers.py $(KAFKA:%=--kafka-version %) $(ARGS)

test-foreign: $(READY) ## brokers that are not Apache Kafka's: franz-go's kfake with older versions (needs Go), librdkafka's mock
	@$(BIN)/python -m pytest tests/foreign $(ARGS)

test-shipping: $(READY) ## the package on a standalone cluster by --py-files, archive and image; Spark Connect; declarative pipelines
	@$(BIN)/python -m pytest tests/spark/test_shipping.py tests/spark/test_deployments.py tests/spark/test_pipelines.py $(ARGS)

test-release: $(READY) ## README's and the quickstart's first lines with the built wheel, in an empty environment
	@$(BIN)/python -m pytest tests/spark/test_first_use.py $(ARGS)

test-yarn: $(READY) ## batch and stream on a YARN of this machine (Hadoop 3.4.1), client and cluster mode, with containers killed
	@$(BIN)/python -m pytest tests/yarn $(ARGS)

.PRECIOUS: .cache/spark-%/.ready
.cache/spark-%/.ready: requirements/spark-%.txt pyproject.toml
	@.ci/setup $(@D) $<
	@touch $@

test-examples: .cache/examples/.ready ## examples/ run as their README says, with Airflow and a notebook's kernel
	@.cache/examples/bin/python -m pytest -m examples tests/examples $(ARGS)

.cache/examples/.ready: requirements/examples.txt pyproject.toml
	@.ci/setup $(@D) $<
	@touch $@

test-lowest: .cache/lowest/.ready ## the tests without a JVM, but that of speed, with the lowest versions of the dependencies
	@.cache/lowest/bin/python -m pytest -n 3 --dist worksteal -m "not jvm and not slow" \
		--ignore tests/repository/test_speed_guard.py $(ARGS)

.cache/lowest/.ready: requirements/lowest.txt pyproject.toml
	@.ci/setup $(@D) $<
	@touch $@

test-pythons: ## the tests without a JVM, a batch and a stream on Python 3.12, 3.13 and 3.14 (PYTHONS=3.13: on that one)
	@ARGS="$(ARGS)" .ci/pythons $(PYTHONS)

test-gssapi: kerberos .cache/gssapi/.ready ## Kerberos against a real KDC (installs it with apt, as root)
	@.cache/gssapi/bin/python -m pytest -m gssapi tests/contract/gssapi $(ARGS)

.PHONY: kerberos
kerberos:
	@.ci/kerberos

.cache/gssapi/.ready: requirements/gssapi.txt pyproject.toml | kerberos
	@.ci/setup $(@D) $<
	@touch $@

check: $(READY) ## lint, format, types, import rules
	@$(BIN)/ruff check $(SOURCES)
	@$(BIN)/ruff format --check $(SOURCES)
	@$(BIN)/mypy $(filter-out tests,$(SOURCES))
	@$(BIN)/lint-imports --no-logo

format: $(READY) ## format the code with ruff
	@$(BIN)/ruff format $(SOURCES)
	@$(BIN)/ruff check --fix $(SOURCES)

bench: .cache/bench/.ready ## rows per second, next to Spark's own sink (ARGS="default lz4", ARGS=--help)
	@$(COMPILED) .cache/bench/bin/python -m benchmarks $(ARGS)

.cache/bench/.ready: requirements/bench.txt pyproject.toml
	@.ci/setup $(@D) $<
	@touch $@

fuzz: $(READY) ## hostile bytes for everything that reads bytes from outside: MINUTES=60 on 2 cores (ARGS="-k jks")
	@ulimit -v 4194304; $(COMPILED) FUZZ_MINUTES=$(or $(MINUTES),20) $(BIN)/python -m pytest -n 2 $(ARGS) \
		tests/fuzz/test_fuzz.py::test_a_target_raises_only_its_errors_within_its_bounds

model: $(READY) ## every history of the exactly-once protocol at large bounds (15 minutes of one core)
	@$(BIN)/python -m tests.model $(ARGS)

test-planted: $(READY) ## faults that are planted into the code one by one: does a test catch each? (10 minutes; ARGS=security)
	@$(BIN)/python -m tests.planted $(ARGS)

soak: $(READY) ## queries, jobs and transactions under random faults, then a verdict: 20 minutes (MINUTES=60, ARGS="--seed 7")
	@$(COMPILED) $(BIN)/python -m tests.soak $(MINUTES:%=--minutes %) $(ARGS)

audit: .cache/release/.ready ## known vulnerabilities of the locked packages, by PyPI's advisories
	@failed=0; for locked in $(AUDITED); do \
		echo $$locked; $(PIP_AUDIT) --strict --disable-pip --require-hashes $(ARGS) -r $$locked || failed=1; \
	done; exit $$failed

.cache/release/.ready: requirements/release.txt
	@python3 -m venv --clear $(@D)
	@$(@D)/bin/pip install --quiet --require-hashes -r $<
	@touch $@

pictures: $(READY) ## what commands print, as images of the pages, from real runs (ARGS="check demo")
	@PYTHONPATH=. $(BIN)/python docs/pictures.py $(ARGS)

docs: $(READY) .cache/docs/.ready ## generated tables of the pages, then the site in .cache/site; fails on broken links (PROJECT_URL=https://…)
	@PYTHONPATH=. $(BIN)/python docs/generate.py
	@NO_MKDOCS_2_WARNING=1 .cache/docs/bin/mkdocs build --strict 2>&1 | { grep -vE "^INFO" || true; }; exit $${PIPESTATUS[0]}

.cache/docs/.ready: requirements/docs.txt pyproject.toml
	@.ci/setup $(@D) $<
	@touch $@

lock: ## compile requirements/*.txt anew
	@$(LOCK) --output-file requirements/base.txt
	@$(LOCK) --group dev $$($(EXTRAS_BUT) gssapi) requirements/dev.in --output-file requirements/dev.txt
	@for spark in $(SPARK); do \
		$(LOCK) --group dev $$($(EXTRAS_BUT) gssapi) requirements/spark-$$spark.in --output-file requirements/spark-$$spark.txt || exit 1; \
	done
	@$(LOCK) --group dev $$($(EXTRAS_BUT) gssapi spark connect) requirements/spark-3.5.in --output-file requirements/spark-3.5.txt
	@$(LOCK) --group dev $$($(EXTRAS_BUT)) requirements/gssapi.in --output-file requirements/gssapi.txt
	@$(LOCK) --group dev $$($(EXTRAS_BUT) gssapi) requirements/examples.in --output-file requirements/examples.txt
	@$(LOCK) requirements/bench.in --output-file requirements/bench.txt
	@for tools in docs release uv; do \
		$(filter-out pyproject.toml,$(LOCK)) requirements/$$tools.in --output-file requirements/$$tools.txt || exit 1; \
	done
	@mkdir -p .cache
	@uv pip compile --quiet --no-deps --resolution lowest-direct --no-header --python-version 3.11 pyproject.toml --output-file $(LOWEST)
	@$(LOCK) --group dev $$($(EXTRAS_BUT) gssapi connect) --constraint $(LOWEST) requirements/lowest.in --output-file requirements/lowest.txt

build: .cache/release/.ready ## wheel and sdist in dist/, SBOM and hashed requirements in build/ (PROJECT_URL=https://…: the links of PyPI's page)
	@.ci/build .cache/release/bin

clean: ## remove everything that make has made
	@rm -rf .venv .cache build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
