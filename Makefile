# `make demo` and `make test` work in a fresh clone: Python >= 3.12 and make, no more.
# Another Python than `python3`: make PYTHON=python3.13 test

PYTHON ?= python3
WORKERS ?= 2
LOCK := requirements.lock
OLDEST_LOCK := requirements-oldest.lock
BIN := .venv/bin
OLDEST_BIN := .venv-oldest/bin
DOCS_LOCK := requirements-docs.lock
DOCS_BIN := .venv-docs/bin
IREE_LOCK := requirements-iree.lock
IREE_BIN := .venv-iree/bin
DEPLOY_LOCK := requirements-deploy.lock
DEPLOY_BIN := .venv-deploy/bin
SEARCH_LOCK := requirements-search.lock
POLICIES_LOCK := requirements-policies.lock
SEARCH_BIN := .venv-search/bin
POLICIES_BIN := .venv-policies/bin
SPARSE_LOCK := requirements-sparse.lock
SPARSE_BIN := .venv-sparse/bin
CODESIGN_LOCK := requirements-codesign.lock
CODESIGN_BIN := .venv-codesign/bin
FLOORPLAN_LOCK := requirements-floorplan.lock
FLOORPLAN_BIN := .venv-floorplan/bin
CLUSTER_LOCK := requirements-cluster.lock
CLUSTER_BIN := .venv-cluster/bin
STAMP := .venv/.installed
OLDEST_STAMP := .venv-oldest/.installed
DOCS_STAMP := .venv-docs/.installed
IREE_STAMP := .venv-iree/.installed
DEPLOY_STAMP := .venv-deploy/.installed
SEARCH_STAMP := .venv-search/.installed
POLICIES_STAMP := .venv-policies/.installed
SPARSE_STAMP := .venv-sparse/.installed
CODESIGN_STAMP := .venv-codesign/.installed
FLOORPLAN_STAMP := .venv-floorplan/.installed
CLUSTER_STAMP := .venv-cluster/.installed
COMPILE := $(BIN)/uv pip compile pyproject.toml --universal --quiet \
	--python-version 3.12 --no-header --no-annotate \
	--no-emit-index-url --no-emit-find-links
ALL := --extra dev --extra zoo

.PHONY: help demo demo-train demo-cluster demo-deploy demo-nas demo-accelerator test test-slow test-oldest test-iree test-deploy test-search test-policies test-sparse test-codesign test-floorplan test-cluster test-wheel check docs lock clean

help:
	@echo "make demo         plan, partition, train and compare a small GPT"
	@echo "make demo-train   train a tiny GPT by a recipe, with checkpoints and evaluation"
	@echo "make demo-cluster the same on four processes of a cluster, with Ray"
	@echo "make demo-deploy  a small Vision Transformer as a page, in build/deploy"
	@echo "make demo-nas     models of digits that are accurate, and fast on a TPU"
	@echo "make demo-accelerator  a page about a network on a design of a chip, and a search for another"
	@echo "make test         the tests, without the slow ones"
	@echo "make check        format, lint, types, layers, size of folders, language, docs, tests"
	@echo "make test-slow    the slow tests"
	@echo "make test-oldest  the tests on the oldest supported jax"
	@echo "make test-iree    the tests that need IREE, in an environment of their own"
	@echo "make test-deploy  the tests of deployed models, in an environment of their own"
	@echo "make test-search  the tests of searches for models, with optuna, pymoo and scikit-learn"
	@echo "make test-policies  the tests of a compiler's decisions, with the clang of ziglang"
	@echo "make test-sparse  the tests that need MLIR, in an environment of their own"
	@echo "make test-codesign the tests that compare accelerators with other simulators"
	@echo "make test-floorplan  the tests of floorplans, with gymnasium's check of environments"
	@echo "make test-cluster the tests that need Ray, in an environment of their own"
	@echo "make test-wheel   the wheel, installed and tried outside of this tree"
	@echo "make docs         the documentation, as a site in build/site"
	@echo "make lock         resolve the lock files again"
	@echo "make clean        remove the environments and all caches"

demo: $(STAMP)
	$(BIN)/python -m examples.demo

demo-train: $(STAMP)
	$(BIN)/python -m meshwright train examples/gpt.toml --resume

demo-cluster: $(CLUSTER_STAMP)
	$(CLUSTER_BIN)/python -m meshwright train examples/gpt.toml --resume \
	  --cluster local:4x2 --out out/gpt-cluster

demo-deploy: $(DEPLOY_STAMP)
	mkdir -p build
	$(DEPLOY_BIN)/python -m meshwright deploy zoo/vit.py:tiny --to web --out build/deploy
	@echo "$(DEPLOY_BIN)/python -m http.server --bind 127.0.0.1 --directory build/deploy"

demo-nas: $(SEARCH_STAMP)
	$(SEARCH_BIN)/python -m meshwright nas search examples/digits_space.py \
	  --machine tpu-v5e --target-ms 1 --trials 12 --seed 0 --out out/nas-demo

demo-accelerator: $(STAMP)
	mkdir -p build
	$(BIN)/python -m meshwright accelerator eval tpu-v4i zoo/efficientnet.py:b0 \
	  --html build/accelerator.html
	$(BIN)/python -m meshwright accelerator search zoo/efficientnet.py:b0 --trials 60 \
	  --area-mm2 250 --tdp-w 120
	@echo "build/accelerator.html"

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS)

test-slow: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) -m slow

test-oldest: $(OLDEST_STAMP)
	$(OLDEST_BIN)/python -m pytest -n $(WORKERS) $(TESTS)

test-iree: $(IREE_STAMP)
	$(IREE_BIN)/python -m pytest -m iree $(TESTS)

test-deploy: $(DEPLOY_STAMP)
	$(DEPLOY_BIN)/python -m pytest -m deploy $(or $(TESTS),tests/features/deploy tests/cli/test_deploy.py)

test-search: $(SEARCH_STAMP)
	$(SEARCH_BIN)/python -m pytest $(or $(TESTS),tests/search/trials tests/features/codesign/nas)

test-policies: $(POLICIES_STAMP)
	$(POLICIES_BIN)/python -m pytest $(or $(TESTS),tests/features/policies/compiler)

test-sparse: $(SPARSE_STAMP)
	$(SPARSE_BIN)/python -m pytest -m sparse $(or $(TESTS),tests/features/sparse)

test-codesign: $(CODESIGN_STAMP)
	$(CODESIGN_BIN)/python -m pytest -m codesign $(or $(TESTS),tests/features/codesign/accelerator)

test-floorplan: $(FLOORPLAN_STAMP)
	$(FLOORPLAN_BIN)/python -m pytest $(or $(TESTS),tests/features/codesign/floorplan)

test-cluster: $(CLUSTER_STAMP)
	$(CLUSTER_BIN)/python -m pytest -m cluster $(or $(TESTS),tests/features/cluster)

test-wheel: $(STAMP)
	$(BIN)/python tools/wheel.py

check: $(STAMP)
	$(BIN)/python tools/check.py

docs: $(DOCS_STAMP)
	NO_MKDOCS_2_WARNING=1 $(DOCS_BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

# An editable install reads pyproject.toml, and the lock file names all it needs.
$(STAMP): $(LOCK) pyproject.toml
	$(call install,.venv,$(LOCK))
	-$(BIN)/python -m meshwright.search.assignment.warm  # compiled once, not in a search
	-$(BIN)/python -m meshwright.planner.tree.warm

$(OLDEST_STAMP): $(OLDEST_LOCK) pyproject.toml
	$(call install,.venv-oldest,$(OLDEST_LOCK))

$(DOCS_STAMP): $(DOCS_LOCK) pyproject.toml
	$(call install,.venv-docs,$(DOCS_LOCK))

$(IREE_STAMP): $(IREE_LOCK) pyproject.toml
	$(call install,.venv-iree,$(IREE_LOCK))

$(DEPLOY_STAMP): $(DEPLOY_LOCK) pyproject.toml
	$(call install,.venv-deploy,$(DEPLOY_LOCK))

$(SEARCH_STAMP): $(SEARCH_LOCK) pyproject.toml
	$(call install,.venv-search,$(SEARCH_LOCK))

$(POLICIES_STAMP): $(POLICIES_LOCK) pyproject.toml
	$(call install,.venv-policies,$(POLICIES_LOCK))

$(SPARSE_STAMP): $(SPARSE_LOCK) pyproject.toml
	$(call install,.venv-sparse,$(SPARSE_LOCK))

$(CODESIGN_STAMP): $(CODESIGN_LOCK) pyproject.toml
	$(call install,.venv-codesign,$(CODESIGN_LOCK))

$(FLOORPLAN_STAMP): $(FLOORPLAN_LOCK) pyproject.toml
	$(call install,.venv-floorplan,$(FLOORPLAN_LOCK))

$(CLUSTER_STAMP): $(CLUSTER_LOCK) pyproject.toml
	$(call install,.venv-cluster,$(CLUSTER_LOCK))

define install
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 12))' || { \
	  echo "meshwright needs Python >= 3.12; $(PYTHON) is $$($(PYTHON) -V 2>&1)."; \
	  echo "Name a newer one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	test -x $(1)/bin/pip || $(PYTHON) -m venv $(1)
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check -r $(2)
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check \
	  --no-deps --no-build-isolation --editable .
	@touch $(1)/.installed
endef

lock: $(STAMP)
	$(COMPILE) $(ALL) --upgrade --output-file $(LOCK)
	$(COMPILE) $(ALL) --upgrade --constraint tools/oldest.txt --output-file $(OLDEST_LOCK)
	$(COMPILE) --extra docs --upgrade --constraint $(LOCK) --output-file $(DOCS_LOCK)
	$(COMPILE) tools/iree.txt --extra iree --extra learned --upgrade \
	  --constraint $(LOCK) --output-file $(IREE_LOCK)
	$(COMPILE) tools/deploy.txt --extra deploy --extra zoo --upgrade \
	  --output-file $(DEPLOY_LOCK)  # litert-converter wants other releases than $(LOCK)
	$(COMPILE) $(ALL) --extra search --upgrade --constraint $(LOCK) --output-file $(SEARCH_LOCK)
	$(COMPILE) tools/policies.txt --extra policies --upgrade \
	  --constraint $(LOCK) --output-file $(POLICIES_LOCK)
	$(COMPILE) tools/sparse.txt --extra sparse --upgrade \
	  --constraint $(LOCK) --output-file $(SPARSE_LOCK)
	$(COMPILE) tools/codesign.txt --extra codesign --upgrade \
	  --output-file $(CODESIGN_LOCK)  # scalesim wants another NumPy than $(LOCK)
	$(COMPILE) tools/floorplan.txt --extra floorplan --upgrade \
	  --constraint $(LOCK) --output-file $(FLOORPLAN_LOCK)
	$(COMPILE) tools/cluster.txt --extra cluster --extra train --upgrade \
	  --constraint $(LOCK) --output-file $(CLUSTER_LOCK)

clean:
	rm -rf .venv .venv-oldest .venv-docs .venv-iree .venv-deploy .venv-search .venv-policies .venv-sparse .venv-codesign .venv-floorplan .venv-cluster .pytest_cache .ruff_cache .hypothesis \
	  .import_linter_cache build dist out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
