# `make` lists what there is. The work is in scripts/, so that it can be read, checked and run without make.
.DEFAULT_GOAL := help
.PHONY: help test demo bench alert-test alert-mutation alert-bench test-deb page-test test-libraries page-pictures dashboards dashboard-pictures docs lint fmt

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: ## Everything CI checks; installs what is missing first
	@bash scripts/test.sh

demo: ## See it at work: services that lock, the exporter, Prometheus, and an incident (DEMO_FLAGS='--speed 20')
	@bash scripts/demo.sh

bench: ## Speed beside mtail, ripgrep and prometheus-redis-exporter, as ratios; wants the machine for itself
	@bash scripts/bench.sh

alert-test: ## Tests of the alert rules with every Prometheus generation that can be had
	@scripts/install_promtools.sh
	@scripts/test_rules.sh --full

alert-mutation: ## Do the rule tests bind? All mutants of the rules, more than an hour on two cores (docs/alert-quality.md)
	@python3 scripts/mutate_rules.py
	@python3 scripts/mutate_rules.py --rules cordum.rules.yml

alert-bench: ## How good are the pages? The exporter's series of many scenarios on the real rule engine, beside other rules (SEEDS=2)
	@python3 scripts/alert_bench.py --seeds $(or $(SEEDS),2)

test-deb: ## The Debian package, on a Debian of its own that systemd boots (root, Debian)
	@scripts/install.sh test
	@scripts/test_deb.sh

page-test: ## The exporter's page in a real browser
	@scripts/install.sh test
	@scripts/test_page.sh

test-libraries: ## Every lock library that can be had here, beside the exporter (docs/presets.md)
	@scripts/install.sh test
	@scripts/test_libraries.sh all

page-pictures: ## Pictures of the page for docs/images, from a run of MINUTES=20
	@scripts/test_page.sh pictures $(or $(MINUTES),20)

dashboards: ## dashboards/*.json from scripts/dashboards
	@python3 scripts/make_dashboards.py

dashboard-pictures: ## docs/images/dashboard-*.svg, drawn from the queries' answers during an incident that takes 20 minutes
	@python3 scripts/draw_dashboards.py

docs: ## docs/presets.md from presets/*.yaml, and what the commands of docs/own-rules.md say
	@UPDATE_FIXTURES=1 cargo test --quiet --test integration presets::the_page

lint: ## Format check, clippy, shellcheck, links
	@bash scripts/lint.sh

fmt: ## Format the code
	@cargo fmt
