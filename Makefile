# `make` lists the targets. The work is done in scripts/, so that it can be read, checked and run
# without make.
.DEFAULT_GOAL := help
.PHONY: help quick test test-all demo bench soak alert-mutation alert-bench page-pictures dashboards dashboard-pictures docs fmt

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

quick: ## After each change: format, lints, unit tests and the fast integration tests
	@bash scripts/test.sh quick $(ONLY)

test: ## Before each commit: everything that no change may break; installs missing packages (ONLY='rules docs' runs these steps)
	@bash scripts/test.sh test $(ONLY)

test-all: ## Before a release: the remaining long tests (ONLY=libraries runs one step, ONLY=list lists the steps)
	@bash scripts/test.sh all $(ONLY)

demo: ## Run everything locally: services that use locks, the exporter, Prometheus, and an incident (DEMO_FLAGS='--speed 20')
	@bash scripts/demo.sh

bench: ## Measure speed relative to mtail, ripgrep and prometheus-redis-exporter; needs an otherwise idle machine
	@bash scripts/bench.sh

soak: ## Test counts during random faults and crashes for HOURS=2; reports events, faults, kills and memory
	@bash scripts/soak.sh $(or $(HOURS),2)

alert-mutation: ## Test the rule tests with all mutants of the rules; more than an hour on two cores (docs/alert-quality.md)
	@python3 scripts/mutate_rules.py
	@python3 scripts/mutate_rules.py --rules cordum.rules.yml

alert-bench: ## Measure the quality of the pages in many scenarios, compared with other rules (SEEDS=2)
	@python3 scripts/alert_bench.py --seeds $(or $(SEEDS),2)

page-pictures: ## Write pictures of the page to docs/images, from a run of MINUTES=20
	@scripts/test_page.sh pictures $(or $(MINUTES),20)

dashboards: ## Generate dashboards/*.json from scripts/dashboards
	@python3 scripts/make_dashboards.py

dashboard-pictures: ## Draw docs/images/dashboard-*.svg from the results of the queries during an incident of 20 minutes
	@python3 scripts/draw_dashboards.py

docs: ## Generate docs/presets.md from presets/*.yaml, and the command output in docs/own-rules.md
	@UPDATE_FIXTURES=1 cargo test --quiet --test integration presets::the_page

fmt: ## Format the code
	@cargo fmt
