# `make` lists the targets. The work is done in scripts/, so that it can be read, checked and run
# without make.
.DEFAULT_GOAL := help
.PHONY: help quick test test-all demo bench soak alert-mutation alert-bench page-pictures dashboards dashboard-pictures docs fmt

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

quick: ## After each change: format, lints, unit tests and the fast integration tests
	@bash scripts/test.sh quick $(ONLY)

test: ## What no change may break; installs what is missing (ONLY='rules docs' runs these steps)
	@bash scripts/test.sh test $(ONLY)

test-all: ## The long remainder, before a release: ONLY=libraries runs one step, ONLY=list lists them
	@bash scripts/test.sh all $(ONLY)

demo: ## See it at work: services that lock, the exporter, Prometheus, and an incident (DEMO_FLAGS='--speed 20')
	@bash scripts/demo.sh

bench: ## Speed beside mtail, ripgrep and prometheus-redis-exporter, as ratios; wants the machine for itself
	@bash scripts/bench.sh

soak: ## Counts through random faults and crashes for HOURS=2, with the exporter's memory: prints events, faults and kills
	@bash scripts/soak.sh $(or $(HOURS),2)

alert-mutation: ## Do the rule tests bind? All mutants of the rules, more than an hour on two cores (docs/alert-quality.md)
	@python3 scripts/mutate_rules.py
	@python3 scripts/mutate_rules.py --rules cordum.rules.yml

alert-bench: ## How good are the pages? The exporter's series of many scenarios on the real rule engine, beside other rules (SEEDS=2)
	@python3 scripts/alert_bench.py --seeds $(or $(SEEDS),2)

page-pictures: ## Pictures of the page for docs/images, from a run of MINUTES=20
	@scripts/test_page.sh pictures $(or $(MINUTES),20)

dashboards: ## dashboards/*.json from scripts/dashboards
	@python3 scripts/make_dashboards.py

dashboard-pictures: ## docs/images/dashboard-*.svg, drawn from the queries' answers during an incident that takes 20 minutes
	@python3 scripts/draw_dashboards.py

docs: ## docs/presets.md from presets/*.yaml, and what the commands of docs/own-rules.md say
	@UPDATE_FIXTURES=1 cargo test --quiet --test integration presets::the_page

fmt: ## Format the code
	@cargo fmt
