"""Tests of the alert rules. A case is a small simulated world, and the exact alerts that fire in it
at some moments.

scripts/test_rules.sh writes the cases as promtool files into target/rule-tests and runs them.

Building blocks: world.py (healthy exporters and namespaces, and functions to change them),
builders.py (common failures). Cases: all other files that are imported below, each named after its
subject. annotation_texts.py contains the expected annotations. Running: promtool_file.py (writes a
test file), focus.py (chooses the rules that a case needs), generate.py (writes all files)."""

from . import (
    abandoned, acquire, annotations, beside_exporters, beside_ratios, beside_state, budget_burn, bursts, cordum, events, exporter,
    failure_rates, lifecycle, lifecycle_limits, not_owned, redis, renewal, state, sustained_ratio, two_exporters, unlocked_work,
)
from .builders import CASES

for add_cases in (
    not_owned.not_owned, sustained_ratio.not_owned_tiers, budget_burn.burn, budget_burn.long_burn, failure_rates.rates, failure_rates.rates_beside,
    renewal.renewal, sustained_ratio.renewal_tiers, unlocked_work.unlocked, acquire.acquire, events.events, abandoned.abandoned_share,
    state.state, lifecycle.lifecycle, lifecycle_limits.lifecycle_limits, redis.redis, exporter.exporter, exporter.exporter_limits,
    two_exporters.twins, beside_ratios.beside_ratios, beside_ratios.beside_rare, beside_ratios.beside_burn, beside_ratios.beside_rates, beside_state.beside_state,
    beside_state.beside_lifecycle, beside_state.beside_trends, beside_state.beside_ttl, beside_exporters.beside_exporters,
    bursts.arithmetic, annotations.text, cordum.cordum, cordum.cordum_limits,
):
    add_cases()
