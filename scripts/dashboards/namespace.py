"""The dashboard of one or a few lock namespaces: how their locks are held, end and are lost, each
number next to the policy that applies to it."""

from dashboards import panels, queries
from dashboards.overview import ANNOTATIONS, CAUSES, NO_RULES, STATES, STATE_WORDS
from dashboards.panels import BAD, BLUE, WARNING, target
from dashboards.queries import BY, NAMESPACE, ON, from_logs, from_redis, quantile, recorded

NOT_SEEN = "This namespace is not seen in Redis: no `keys` are configured, or no exporter looks at Redis."


def policy(metric):
    return f"max by ({BY}) ({metric}{{{NAMESPACE}}})"


def _policy():
    seconds = {"unit": "s", "noValue": "not set"}
    numbers = [
        (f'max by ({BY}, style, on_renewal_failure, severity) (redis_lock_namespace_info{{{NAMESPACE}}})', None, {}),
        (policy("redis_lock_config_ttl_seconds"), "TTL", seconds),
        (policy("redis_lock_recommended_ttl_seconds"), "TTL advised", {**seconds, "noValue": "too few samples"}),
        (policy("redis_lock_config_renew_interval_seconds"), "Renewed every", {**seconds, "noValue": "never"}),
        (policy("redis_lock_recommended_renew_interval_seconds"), "Every, advised", {**seconds, "noValue": "none"}),
        (policy("redis_lock_config_takeover_slo_seconds"), "Takeover SLO", seconds),
        (policy("redis_lock_takeover_bound_seconds"), "Its bound", {**seconds, "noValue": "no TTL set"}),
        (recorded("lock_namespace:redis_lock_max_hold_seconds:effective"), "Hold limit", {**seconds, "noValue": "no limit"}),
        (queries.NOT_OWNED_THRESHOLD, "Lost above", {"unit": "percentunit", "noValue": NO_RULES}),
        (queries.RENEWAL_THRESHOLD, "Failed above", {"unit": "percentunit", "noValue": NO_RULES}),
        (recorded("lock_namespace:redis_lock_min_failures:effective"), "Failures from", {"noValue": NO_RULES}),
        (policy("redis_lock_config_strict"), "Strict", {"unit": "bool_yes_no"}),
    ]
    columns = {
        "lock_namespace": ("Namespace", {"custom_width": 140}), "style": ("Style", {"custom_width": 60}),
        "on_renewal_failure": ("If renewal fails", {"custom_width": 115}), "severity": ("Severity", {"custom_width": 75}),
    }
    columns |= {f"Value #{chr(ord('A') + index)}": (name, {**settings, "custom_width": 105}) for index, (_, name, settings) in enumerate(numbers) if name}
    return panels.table(
        2, "Policy", "What the configuration says about this namespace, and what the exporter recommends from what it has seen. If renewal fails: `fence` stops its own work, "
        "`continue` carries on without the lock. Severity: whether trouble pages or is a ticket. A takeover cannot be quicker than its bound, the TTL: a bound above the SLO is an SLO that cannot be met. "
        "Alerts want a share of lost locks or of failed renewals above the one shown, and at least as many failures. Where nothing is configured, the default of the rules is shown.",
        [target(f"max by ({BY}) ({expr})" if "lock_namespace:" in expr else expr, instant=True) for expr, _, _ in numbers], columns,
        "No such namespace: no exporter is scraped, or none has it configured.", sort_by=[("Namespace", False)], hidden=["Value #A", "cluster"])


def _near_to_a_page():
    """Bad slices as a share of what a page needs, for the three conditions that lead to a page. The
    counts are the same as in the rules."""
    slices = recorded("lock_namespace:redis_lock_not_owned:slice_bad")
    ways = [("5m30s", 10, "quick"), ("10m", 15, "steady"), ("30m", 20, "recurrent")]
    return panels.time_series(
        5, "How near to a page", "For lost locks: bad slices (the last 2 minutes were above the threshold, noted every 30 s) as a share of those that a page needs: 10 within 5 minutes "
        "if half of all fail, 15 within 10, or 20 within 30. At 100 % it pages, if there are enough failures.",
        [target(f"sum_over_time({slices}[{window}]) / {count}", f"{name}, {{{{lock_namespace}}}}") for window, count, name in ways],
        "percentunit", "No ratio: nothing was released or renewed, successes are not seen, or the rules are not loaded.")


def _lost():
    day_before = f"{queries.NOT_OWNED_RATIO} offset 1d"
    return [
        (8, [
            (9, panels.time_series(
                3, "Locks lost, as a share of releases and renewals", "not owned / (not owned + releases + renewals), over 2 and 10 minutes, a day before, and dashed the threshold.",
                [target(recorded("lock_namespace:redis_lock_not_owned_per_operation:ratio2m"), "{{lock_namespace}}, 2 m"),
                 target(queries.NOT_OWNED_RATIO, "{{lock_namespace}}, 10 m"), target(day_before, "{{lock_namespace}}, a day before"),
                 target(queries.NOT_OWNED_THRESHOLD, "threshold of {{lock_namespace}}")],
                "percentunit", "No ratio: nothing was released or renewed, successes are not seen, or the rules are not loaded.", overrides=panels.limit("D"))),
            (8, panels.time_series(
                4, "Failed renewals, as a share of renewals", "failures / (failures + renewals), over 2 and 10 minutes, and dashed the threshold.",
                [target(recorded("lock_namespace:redis_lock_renewal_failures_per_renewal:ratio2m"), "{{lock_namespace}}, 2 m"),
                 target(queries.RENEWAL_RATIO, "{{lock_namespace}}, 10 m"), target(queries.RENEWAL_THRESHOLD, "threshold of {{lock_namespace}}")],
                "percentunit", "No ratio: these locks are not renewed, successes are not seen, or the rules are not loaded.", overrides=panels.limit("C"))),
            (7, _near_to_a_page()),
        ]),
        (8, [
            (9, panels.time_series(
                6, "Why locks were lost", "Each lost lock by what had happened to it in Redis. 0 everywhere is healthy. Which lock it was, and who held it, is on the exporter's page.",
                [target(f"sum by (cause) (increase(redis_lock_not_owned_causes_total{{{NAMESPACE}}}[{queries.RATE}]))", "{{cause}}")],
                "short", "No exporter is scraped.", stacked=True, overrides=CAUSES, calcs=("sum",))),
            (8, panels.time_series(
                7, "Failures by operation and reason", "What the programs' logs say: failed renewals, failed releases, and acquisitions that failed for other reasons than that the lock "
                "was taken.",
                [target(f'sum by (reason) (increase(redis_lock_renewal_failures_total{{{NAMESPACE},reason!="canceled"}}[{queries.RATE}]))', "renew: {{reason}}"),
                 target(f"sum by (reason) (increase(redis_lock_release_failures_total{{{NAMESPACE}}}[{queries.RATE}]))", "release: {{reason}}"),
                 target(f'sum by (reason) (increase(redis_lock_acquire_failures_total{{{NAMESPACE},reason!="busy"}}[{queries.RATE}]))', "acquire: {{reason}}")],
                "short", "No rule reads failures of this namespace, or no exporter is scraped.", stacked=True, calcs=("sum",))),
            (7, panels.time_series(
                8, "Damage", "Holders that gave up, work that ran without a lock, writes that collided, and fence counters that went backwards. All of these should be 0.",
                [target(from_logs("redis_lock_abandonments_total", function="increase"), "abandoned, {{lock_namespace}}"),
                 target(from_logs("redis_lock_unlocked_work_total", function="increase"), "without a lock, {{lock_namespace}}"),
                 target(from_logs("redis_lock_conflicting_writes_total", "kind", function="increase"), "{{kind}}, {{lock_namespace}}"),
                 target(from_redis("redis_lock_fence_regressions_total", function="increase"), "fence backwards, {{lock_namespace}}")],
                "short", "No rule reads such lines, or no exporter is scraped.", stacked=True, calcs=("sum",))),
        ]),
    ]


def _life():
    hold_limit = recorded("lock_namespace:redis_lock_max_hold_seconds:effective")
    ttl, recommended = policy("redis_lock_config_ttl_seconds"), policy("redis_lock_recommended_ttl_seconds")
    hold = [target(quantile(share, "redis_lock_hold_seconds"), f"p{share * 100:.0f}, {{{{lock_namespace}}}}") for share in (0.5, 0.95, 0.99)]
    takeover = [target(quantile(share, "redis_lock_takeover_seconds"), f"p{share * 100:.0f}, {{{{lock_namespace}}}}") for share in (0.5, 0.99)]
    margin = [target(quantile(share, "redis_lock_renewal_margin_ratio"), f"p{share * 100:.0f}, {{{{lock_namespace}}}}") for share in (0.01, 0.1, 0.5)]
    return [
        (8, [
            (8, panels.time_series(
                9, "Hold time beside the TTL", "From taking a lock to its end, and dashed the configured TTL (red) and the recommended one (blue). Locks that are not renewed must be "
                "released well before their TTL. Quantiles are as exact as the histogram's bounds: 1, 10, 30, 60, 300 and 1800 s.",
                [*hold, target(ttl, "TTL of {{lock_namespace}}"), target(recommended, "recommended for {{lock_namespace}}")],
                "s", "No hold ended, or the style is loop, whose locks are held for their TTL on purpose.",
                overrides=[*panels.limit("D"), *panels.limit("E", color=BLUE)])),
            (8, panels.time_series(
                10, "TTL left when locks are renewed", "The share of the TTL that was left at all but the slowest hundredth (p1), tenth (p10) and half (p50) of renewals. Two thirds is usual; "
                "locks are lost when it reaches 0.",
                margin, "percentunit", "No lock was renewed, or no `renew_every` is configured.", most=1, calcs=("lastNotNull", "min"))),
            (8, panels.time_series(
                11, "Takeover time beside its SLO", "From the last sign of life of a holder whose lock expired to the next holder; dashed the SLO (red), and the bound below which it cannot be "
                "(blue). Quantiles are as exact as the histogram's bounds: 15, 30, 60 and 120 s.",
                [*takeover, target(policy("redis_lock_config_takeover_slo_seconds"), "SLO of {{lock_namespace}}"),
                 target(policy("redis_lock_takeover_bound_seconds"), "bound of {{lock_namespace}}")],
                "s", "No expired lock was taken over.", overrides=[*panels.limit("C"), *panels.limit("D", color=BLUE)])),
        ]),
        (8, [
            (8, panels.time_series(
                12, "What happens to locks", "Locks taken, released and expired per second, and those whose end was not seen. Expiry is the normal end of a loop's lock; for other locks the holder died "
                "or was too slow.",
                [target(from_redis("redis_lock_acquisitions_total"), "taken, {{lock_namespace}}"), target(from_redis("redis_lock_releases_total"), "released, {{lock_namespace}}"),
                 target(from_redis("redis_lock_expirations_total"), "expired, {{lock_namespace}}"),
                 target(from_redis("redis_lock_unknown_ends_total"), "end not seen, {{lock_namespace}}")],
                "ops", NOT_SEEN)),
            (8, panels.time_series(
                13, "Renewals", "Renewals per second, and the number of locks that are past the moment their renewal was due.",
                [target(from_redis("redis_lock_renewals_total"), "renewals, {{lock_namespace}}"),
                 target(recorded("lock_namespace:redis_lock_renewal_overdue:sum"), "overdue, {{lock_namespace}}")],
                "ops", NOT_SEEN, overrides=[panels.override("byFrameRefID", "B", unit="short", color=panels.fixed(WARNING), custom_axisPlacement="right")])),
            (8, panels.time_series(
                14, "Who comes next", "Owners per second that got a lock from another one, by how that one ended, and takeovers of expired locks that took longer than the SLO.",
                [target(from_redis("redis_lock_owner_changes_total", "after"), "after {{after}}, {{lock_namespace}}"),
                 target(from_redis("redis_lock_takeovers_total", where=',within_slo="false"'), "too slow, {{lock_namespace}}"),
                 target(from_redis("redis_lock_early_releases_total"), "loop released early, {{lock_namespace}}")],
                "ops", NOT_SEEN)),
        ]),
        (8, [
            (8, panels.time_series(
                15, "Held now", "Locks held, and those that have no TTL: if their holder dies, nobody ever gets them.",
                [target(recorded("lock_namespace:redis_lock_held:sum"), "held, {{lock_namespace}}"),
                 target(recorded("lock_namespace:redis_lock_without_ttl:sum"), "without TTL, {{lock_namespace}}")],
                "short", NOT_SEEN, overrides=[panels.override("byFrameRefID", "B", color=panels.fixed(BAD))])),
            (8, panels.time_series(
                16, "Longest hold and least time left", "How long the oldest lock has been held, dashed the limit once a quarter of it is reached, and the least time left of all locks held. A lock held for too long has a holder that hangs and "
                "goes on renewing.",
                [target(queries.OLDEST_HOLD, "oldest, {{lock_namespace}}"), target(f"min by ({BY}) ({queries.now('redis_lock_ttl_remaining_min_seconds')})", "least left, {{lock_namespace}}"),
                 # Distant values would only compress the rest of the plot.
                 target(f"{hold_limit}\nand {ON} max_over_time(({queries.OLDEST_HOLD})[{queries.RANGE}:] @ end()) > {hold_limit} / 4", "limit of {{lock_namespace}}")],
                "s", "No lock is held, or this namespace is not seen in Redis.", overrides=panels.limit("C"))),
            (8, panels.time_series(
                17, "Busy: locks that were taken", "Attempts that found the lock taken, as a share of all attempts, and dashed the threshold. Many programs do not log it.",
                [target(_busy(), "{{lock_namespace}}"), target(recorded("lock_namespace:redis_lock_busy_ratio:effective"), "threshold of {{lock_namespace}}")],
                "percentunit", "No rule reads such lines, or nothing was taken.", overrides=panels.limit("B"))),
        ]),
    ]


def _busy():
    busy = from_logs("redis_lock_acquire_failures_total", where=',reason="busy"')
    return f"{busy}\n/ {ON} ({busy} + {ON} {from_redis('redis_lock_acquisitions_total')} > 0)"


def _first_line():
    exporter = f'max by ({BY}, instance) (0 * redis_lock_held{{{NAMESPACE}}} + 1)'
    state = panels.state_timeline(1, "State", STATE_WORDS, [target(queries.STATE, "{{lock_namespace}}")], STATES,
                                  "No such namespace: no exporter is scraped, or the rules are not loaded.")
    page = panels.table(
        18, "Single locks and holders", "Which lock, which holder, and what happened to it: on the page of an exporter that looks at Redis. Prometheus has no ids.",
        [target(exporter, instant=True)],
        {"instance": ("Exporter", {"links": [
            panels.link("Locks of ${__data.fields.lock_namespace}", "http://${__value.raw}/#/namespace/${__data.fields.lock_namespace}", new_tab=True),
            panels.link("Incidents of ${__data.fields.lock_namespace}", "http://${__value.raw}/#/incidents?lock_namespace=${__data.fields.lock_namespace}", new_tab=True)]}),
         "lock_namespace": ("Namespace", {})},
        "No exporter sees this namespace in Redis.", sort_by=[("Namespace", False)], hidden=["Value", "cluster"], merged=False)
    return [(4, [(16, state), (8, page)]), (4, [(24, _policy())])]


def dashboard():
    rows = [*_first_line(), panels.row(100, "Locks that were lost"), *_lost(), panels.row(101, "How locks live"), *_life()]
    return panels.dashboard("namespace", "Namespace", "How the locks of a namespace live, end and are lost, beside the policy they are judged by. Choose one namespace above.", rows,
                            ANNOTATIONS, with_namespace=True)
