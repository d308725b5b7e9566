# `make` lists what there is. The work is in scripts/, so that it can be read, checked and run without make.
.DEFAULT_GOAL := help
.PHONY: help test demo bench lint fmt

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## Everything CI checks; installs what is missing first
	@bash scripts/test.sh

demo: ## Generated Cordum logs with rotations, and the exporter counting them (DEMO_SECONDS=20, KEEP=1)
	@bash scripts/demo.sh

bench: ## Speed beside mtail and ripgrep, as ratios; wants the machine for itself
	@bash scripts/bench.sh

lint: ## Format check, clippy, shellcheck, links
	@bash scripts/lint.sh

fmt: ## Format the code
	@cargo fmt
