# make install | demo | test | docs | fuzz | test-thorough | test-browser | test-spark | audit | wheel | image | bench | bench-smoke | bench-memory | lint | types; everything lives in .venv
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs

# One torch thread pool of the size of the machine; waiting threads sleep instead of spinning on a shared machine.
export HF_HUB_OFFLINE := 1
export OMP_WAIT_POLICY := PASSIVE
export KMP_BLOCKTIME := 0
export TOKENIZERS_PARALLELISM := true

.PHONY: bench bench-smoke install demo test docs docs-version fuzz test-thorough test-browser test-spark audit bench-memory wheel image lint types unit clean

install: $(STAMP)
	$(BIN)/labeldeconv doctor --compile

# torch first and pinned: the pinned CPU build, where a range would fetch gigabytes of CUDA.
$(STAMP): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[minilm,lora,4bit,metis,ogb,images,onnx,tensorboard,mlflow,optuna,report,serve,browser,audit,dev]'
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/labeldeconv compare planted --methods pne,fne,wo-ld,ld --gnns gcn --seeds 1 --out runs/demo

test: lint types unit

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

unit: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal --durations 10

# Property tests of everything that reads files, with new cases every time; failures are kept in .hypothesis.
# COVERAGE=60 adds so many seconds of atheris (pip install atheris) for each of ten readers.
CASES ?= 100000
fuzz: $(STAMP)
	FUZZ_CASES=$(CASES) $(BIN)/python -m pytest -q -s tests/fuzz
	@if [ -n "$(COVERAGE)" ]; then for target in conllu tables toml saved fasta packages ogb pickled settings run; do \
	  $(BIN)/python -m tests.fuzz.coverage_guided $$target --seconds $(COVERAGE) || exit 1; done; fi

# Every method with every GNN, transductive and inductive: test labels change nothing but the test score.
test-thorough: $(STAMP)
	$(BIN)/python -m pytest -n 2 -m thorough --durations 5

# The report in a real browser. Chromium comes from the system, or through apt-get where that is allowed.
test-browser: $(STAMP)
	@command -v chromium >/dev/null || ./.ci/debian chromium || true
	@if command -v chromium >/dev/null; then \
	  $(BIN)/python -m pytest -n 2 -m browser --durations 5; \
	else \
	  echo "test-browser: skipped, there is no chromium and it cannot be installed here"; \
	fi

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $(DOCS_STAMP)

# The site, in site/: broken links and anchors are errors (not with --quiet, which also quiets --strict). Then its tests.
# SITE=1 leaves out what takes minutes: commands in miniature, and Python that trains.
docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	LABELDECONV_SITE=site $(BIN)/python -m pytest tests/docs -n 2 -m docs --durations 5 $(if $(SITE),-k 'not miniature and not trains')
	@echo "docs: open site/index.html"

# The site of this version beside those of others, as a commit of the local branch gh-pages; publishing is `git push`.
docs-version: $(DOCS_STAMP)
	PATH="$(CURDIR)/$(BIN):$$PATH" OFFLINE=false NO_MKDOCS_2_WARNING=1 mike deploy --update-aliases \
	  "$$($(BIN)/python -c 'import labeldeconv; print(labeldeconv.__version__)')" latest
	PATH="$(CURDIR)/$(BIN):$$PATH" mike set-default latest  # it calls mkdocs by its name

# Spark in a cluster of two workers on this machine. Java comes from the system, or through apt-get; pyspark through pip.
test-spark: $(STAMP)
	@command -v java >/dev/null || ./.ci/debian default-jre-headless || true
	@$(BIN)/python -c 'import pyspark' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[spark]' || true
	@if command -v java >/dev/null && $(BIN)/python -c 'import pyspark' 2>/dev/null; then \
	  $(BIN)/python -m pytest -n 2 -m spark --durations 5 tests/lake tests/labels tests/test_cluster_files.py; \
	else \
	  echo "test-spark: skipped, there is no Java or no pyspark and they cannot be installed here"; \
	fi

# Hop labels of 5 GiB in 2 GiB, and ogbn-products' shape end to end in 4 GiB: a quarter of an hour, 15 GB of disk.
bench-memory: $(STAMP)
	$(BIN)/python -m benchmarks.memory

# bandit and pip-audit. Without an advisory service (code 3) it says so: that is no failure, and no clean bill either.
audit: $(STAMP)
	@$(BIN)/python -m benchmarks.audit || { [ $$? -eq 3 ] && echo "audit: INCOMPLETE, the dependencies were not audited"; }

# The wheel, tried in a folder of its own, away from the repository.
wheel: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist .
	LABELDECONV_WHEEL=dist $(BIN)/python -m pytest tests/test_wheel.py

# The container image, built from the files in git and tried as a container. Not part of CI. podman comes from the system, or through
# apt-get where that is allowed; ENGINE=docker takes docker. .ci/image says what to do where no registry can be reached.
ENGINE ?= podman
image: $(STAMP)
	@command -v $(ENGINE) >/dev/null || ./.ci/debian $(ENGINE) || true
	@if command -v $(ENGINE) >/dev/null; then \
	  ENGINE=$(ENGINE) ./.ci/image && ENGINE=$(ENGINE) $(BIN)/python -m pytest -m image tests/test_image.py; \
	else \
	  echo "image: skipped, there is no $(ENGINE) and it cannot be installed here"; \
	fi

# Ratios against peers in interleaved rounds; fails where one is far below docs/performance.md. Not part of CI.
bench-smoke: $(STAMP)
	$(BIN)/python benchmarks/smoke.py

# Every benchmark of speed into benchmarks/results, ten minutes each at most; MINUTES=3 for less, ONLY=gnn-train for one.
MINUTES ?= 10
bench: $(STAMP)
	$(BIN)/python benchmarks/bench.py --minutes $(MINUTES) $(if $(ONLY),--only $(ONLY))

clean:
	rm -rf $(VENV) runs dist site
