"""The dashboard of the person on call. From top to bottom: whether exclusion is intact, which lock
namespace is affected, since when, how badly compared with earlier, why, and whether the exporters
see everything. The first screen (22 rows of the grid) answers everything except the details of the
cause."""

from dashboards import panels, queries
from dashboards.panels import BAD, BLUE, GOOD, INFO, NEUTRAL, NOTICE, PURPLE, WARNING, colored, mapping, steps, target
from dashboards.queries import BY, EXPORTER, NAMESPACE, ON, RANGE, RATE, from_logs, from_redis, quantile, recorded

STATES = mapping(p3=f"page:{BAD}", p2=f"ticket:{WARNING}", p1=f"losing locks:{NOTICE}", p0=f"intact:{GOOD}", n1=f"idle:{NEUTRAL}",
                 n2=f"no ratio:{INFO}")
STATE_WORDS = (
    "page and ticket: an alert with that severity fires. Losing locks: more of the last 2 minutes' releases and renewals failed than the "
    "namespace's threshold allows, which pages when it lasts. Intact: fewer. Idle: nothing was released or renewed. "
    "No ratio: successes are not seen (logs only, or Redis does not tell of changes), so only counts of failures can be judged.")
NO_RULES = "no rules loaded"
CAUSES = panels.colors(expired_never_renewed=WARNING, renewals_stopped=BAD, deleted_early=PURPLE, taken_over=BLUE, lost_in_failover=INFO,
                       unknown=NEUTRAL)

# Alerts about Redis and the exporters have no lock namespace. The variable matches that, too.
ANNOTATIONS = [
    panels.annotation("Redis role changes", PURPLE,
                      f"increase(redis_lock_exporter_redis_failovers_total{{{EXPORTER}}}[{RATE}]) > 0",
                      "Redis failed over or restarted", "seen by {{instance}}"),
    # Not changes(), because a restart may take longer than the window.
    panels.annotation("Exporter starts", INFO, f"time() - redis_lock_exporter_start_time_seconds{{{EXPORTER}}} < 120", "Exporter started", "{{instance}}"),
    *(panels.annotation(name, color, queries.firing(severity=severity, others='cluster=~"$cluster",lock_namespace=~"$lock_namespace|"'), "{{alertname}}", "{{lock_namespace}}",
                        enabled=severity == "critical")
      for name, color, severity in (("Pages", BAD, "critical"), ("Tickets", WARNING, "warning"))),
]


def _first_line():
    alerts = {severity: queries.firing(severity=severity, others='cluster=~"$cluster"') for severity in ("critical", "warning")}
    zero = '0 * count(lock_namespace:redis_lock_page:effective{cluster=~"$cluster"})'
    share = f"topk(1, {queries.NOT_OWNED_RATIO} / {ON} {queries.NOT_OWNED_THRESHOLD})"
    absent = f"{queries.LEADER_ABSENCE}\n> {ON} group_left () {queries.LEADER_LIMIT}"
    blind = f"""count(
  redis_lock_exporter_redis_up{{{EXPORTER}}} == 0
  or redis_lock_exporter_tracking_up{{{EXPORTER}}} == 0
  or redis_lock_exporter_log_open_files{{{EXPORTER}}} == 0
  or (redis_lock_exporter_state_durable{{{EXPORTER}}} == 0 and on (cluster, job, instance) redis_lock_exporter_state_enabled{{{EXPORTER}}} == 1)
  or (up{{{EXPORTER}}} == 0 and on (cluster, job, instance) last_over_time(redis_lock_exporter_build_info{{{EXPORTER}}}[1d]))
)
or 0 * count(redis_lock_exporter_build_info{{{EXPORTER}}})"""
    exporter = panels.link("Open the exporters' dashboard", f"/d/redis-lock-exporter?{panels.KEPT}")
    return [
        panels.stat(1, "Alerts firing", "Alerts of the bundled rules that fire now, those about Redis and the exporters included. "
                    "Without the rules there is no number.",
                    [target(f"count({alerts['critical']}) or {zero}", "pages"), target(f"count({alerts['warning']}) or {zero}", "tickets")],
                    "short", NO_RULES, steps((1, BAD)), named=True,
                    overrides=[panels.override("byName", "tickets", thresholds=steps((1, WARNING)))]),
        panels.stat(2, "Nearest to its threshold",
                    "The namespace whose share of lost locks (not owned / (not owned + releases + renewals), 10 minutes) is highest compared with its own "
                    "threshold: at 100 % it has reached it. Lasting for minutes it pages.",
                    [target(share, "{{lock_namespace}}")], "percentunit", "no ratio", steps((0.5, WARNING), (1, BAD)), named=True, decimals=0,
                    links=[panels.NAMESPACE_LINK]),
        panels.stat(3, "Leaders absent", "Locks that somebody should always hold and that have been free for longer than `leader_absent` allows.",
                    [target(f"count({absent})\nor 0 * count(redis_lock_last_held_timestamp_seconds{{{NAMESPACE}}})", "absent")], "short", "no leader locks",
                    steps((1, BAD))),
        panels.stat(4, "Locks without TTL", "Locks held now that have no TTL. If their holder dies, nobody ever gets them.",
                    [target(f"sum({recorded('lock_namespace:redis_lock_without_ttl:sum')})", "without TTL")], "short", "no Redis is seen",
                    steps((1, WARNING))),
        panels.stat(5, "Redis", "Whether any exporter reaches each Redis that holds locks, and how often one changed its primary or restarted within an hour.",
                    [target('min(redis:redis_lock_redis_up:max{cluster=~"$cluster"})', "now"),
                     target('sum(redis:redis_lock_failovers:increase1h{cluster=~"$cluster"})', "failovers, 1 h")], "short", "no Redis is seen",
                    steps((1, WARNING), (3, BAD)), named=True, decimals=0,
                    overrides=[panels.override("byName", "now", mappings=mapping(p1=f"reachable:{GOOD}", p0=f"unreachable:{BAD}"))]),
        panels.stat(6, "Blind spots", "What is not seen now: an exporter that is down, does not reach Redis, is not told of changes, cannot save its state, or follows no "
                    "file of a log source. While this is not 0, silence elsewhere proves little.",
                    [target(blind, "blind spots")], "short", "no exporter is scraped", steps((1, BAD)), links=[exporter]),
    ]


def _table():
    ratio, threshold = queries.NOT_OWNED_RATIO, queries.NOT_OWNED_THRESHOLD
    exporter = f"""topk by ({BY}) (1, max by ({BY}, instance) (
  0 * redis_lock_held{{{NAMESPACE}}} + 1 or on (instance, {BY}) 0 * redis_lock_namespace_info{{{NAMESPACE}}}
))"""
    queries_and_columns = [
        (queries.STATE, "State", colored(mappings=STATES, custom_width=110)),
        (f"max by ({BY}) ({ratio})", "Lost, 10 m", {"unit": "percentunit", "decimals": 1, "noValue": "no ratio"}),
        (f"max by ({BY}) ({ratio} / {ON} {threshold})", "Of threshold",
         colored("gauge", unit="percentunit", min=0, max=2, noValue="no ratio", thresholds=steps((0.5, WARNING), (1, BAD)))),
        (f"max by ({BY}) ({recorded('lock_namespace:redis_lock_not_owned_per_operation:ratio6h')})", "Lost, 6 h",
         {"unit": "percentunit", "decimals": 1, "noValue": "no ratio"}),
        (f"max by ({BY}) ({queries.RENEWAL_RATIO})", "Renewals failed", {"unit": "percentunit", "decimals": 1, "noValue": "none renewed"}),
        (from_logs("redis_lock_abandonments_total", window=RANGE, function="increase"), "Abandoned", {"decimals": 0, "noValue": "never logged"}),
        (from_redis("redis_lock_expirations_total", window=RANGE, function="increase"), "Expired", {"decimals": 0, "noValue": "not seen"}),
        (f"max by ({BY}) ({recorded('lock_namespace:redis_lock_held:sum')})", "Held", {"noValue": "not seen"}),
        (queries.OLDEST_HOLD, "Oldest hold", {"unit": "s", "noValue": "none held"}),
        (quantile(0.99, "redis_lock_takeover_seconds", RANGE), "Takeover p99", {"unit": "s", "noValue": "no takeover"}),
        (f"count by ({BY}) ({queries.firing()}) or {ON} 0 * {queries.POLICY}", "Alerts",
         colored(thresholds=steps((1, WARNING), base="transparent"))),
        (exporter, "", {}),
    ]
    columns = {"lock_namespace": ("Namespace", {"links": [
        panels.link("Open namespace ${__value.raw}", "/d/redis-lock-namespace?var-lock_namespace=${__value.raw}&" + panels.KEPT),
        panels.link("Its locks, on the exporter's page", "http://${__data.fields.instance}/#/namespace/${__value.raw}", new_tab=True),
        panels.link("Its incidents, on the exporter's page", "http://${__data.fields.instance}/#/incidents?lock_namespace=${__value.raw}", new_tab=True),
    ]})}
    targets = []
    for index, (expr, name, settings) in enumerate(queries_and_columns):
        targets.append(target(expr, instant=True))
        if name:
            columns[f"Value #{chr(ord('A') + index)}"] = (name, settings)
    columns["instance"] = ("Exporter", {"links": [panels.link("The exporter's page", "http://${__value.raw}/", new_tab=True)]})
    return panels.table(
        7, "Namespaces", f"The worst first. {STATE_WORDS} Lost: the share of releases and renewals that found the lock lost; failed renewals are of 10 minutes too. Abandoned and expired are counted over the time shown; loops let their locks expire on purpose. "
        "Takeover p99 is from the last sign of life of a holder whose lock expired to the next holder, and as exact as the histogram's bounds. "
        "A click on a namespace leads to its dashboard, or to single locks on the exporter's page.",
        targets, columns, "No namespace: no exporter is scraped, or the bundled rules are not loaded.",
        sort_by=[("State", True), ("Of threshold", True)], hidden=["Value #L", "cluster"])


def _alerts():
    since = f"""1000 * ALERTS_FOR_STATE{{component="redis_lock",cluster=~"$cluster",lock_namespace=~"$lock_namespace|"}}
  and ignoring (alertstate) {queries.firing(others='cluster=~"$cluster"')}"""
    # The runbook can then be read from the exporter, without the internet. Alerts are also shown if
    # no exporter is up.
    exporter = f'topk by (cluster) (1, label_replace(redis_lock_exporter_build_info{{{EXPORTER}}}, "exporter", "$1", "instance", "(.+)"))'
    expr = f"({since})\n* on (cluster) group_left (exporter) {exporter}\nor on (cluster) ({since})"
    columns = {
        "alertname": ("Alert", {"custom_width": 260, "links": [
            panels.link("Runbook", panels.REPOSITORY + "/docs/runbooks/${__value.raw}.md", new_tab=True),
            panels.link("Runbook, on the exporter's page", "http://${__data.fields.exporter}/runbooks/${__value.raw}", new_tab=True),
        ]}),
        "severity": ("Severity", colored("color-text", custom_width=80, mappings=[{"type": "value", "options": {
            "critical": {"text": "page", "color": BAD, "index": 0}, "warning": {"text": "ticket", "color": WARNING, "index": 1},
            "info": {"text": "info", "color": INFO, "index": 2}}}])),
        "lock_namespace": ("Namespace", {"custom_width": 120, "links": [
            panels.link("Open namespace ${__value.raw}", "/d/redis-lock-namespace?var-lock_namespace=${__value.raw}&" + panels.KEPT)]}),
        "Value": ("Since", {"unit": "dateTimeFromNow", "custom_width": 110}),
        "lock": ("Lock", {}), "redis": ("Redis", {}), "instance": ("Instance", {}), "source": ("Log source", {}),
        "exporter": ("Exporter", {"links": [panels.link("The exporter's page", "http://${__value.raw}/", new_tab=True)]}),
    }
    return panels.table(12, "Alerts firing: which, since when", "Alerts of the bundled rules that fire now, and since when their condition has held. A click on one leads to its runbook.",
                        [target(expr, instant=True)], columns, "No alert about locks is firing.", sort_by=[("Severity", False)], merged=False,
                        hidden=["cluster", "job", "failover_sensitive", "missing", "command", "table", "reason"])


def dashboard():
    worst_ratio = queries.NOT_OWNED_RATIO
    ratio = panels.time_series(
        9, "Locks lost, as a share of releases and renewals",
        "not owned / (not owned + releases + renewals) over 10 minutes, of the six namespaces that lost most in the time shown, and dashed the threshold of each. "
        "It is the number that the alert RedisLockNotOwnedRatioHigh speaks of.",
        [target(queries.worst(worst_ratio, worst_ratio), "{{lock_namespace}}"),
         target(queries.worst(queries.NOT_OWNED_THRESHOLD, worst_ratio), "threshold of {{lock_namespace}}")],
        "percentunit", "No ratio: no lock was released or renewed, successes are not seen, or the rules are not loaded.",
        overrides=panels.limit("B"), links=[panels.NAMESPACE_LINK])
    state = panels.state_timeline(
        8, "State of each namespace: since when?", f"The column State of the table above, over time. {STATE_WORDS}",
        [target(queries.STATE, "{{lock_namespace}}")], STATES, "No namespace: no exporter is scraped, or the rules are not loaded.",
        links=[panels.NAMESPACE_LINK])
    causes = panels.time_series(
        10, "Why locks were lost", "Each lost lock by what had happened to it in Redis. expired_never_renewed and renewals_stopped: the TTL is too short for the work, or the "
        "holder hung. deleted_early and taken_over: somebody does not look whose lock it is. lost_in_failover: it was gone after a restart or failover. "
        "unknown: nothing was seen that explains it. 0 everywhere is healthy.",
        [target(f"sum by (cause) (increase(redis_lock_not_owned_causes_total{{{NAMESPACE}}}[{RATE}]))", "{{cause}}")],
        "short", "No exporter is scraped.", stacked=True, overrides=CAUSES, calcs=("sum",))
    reasons = panels.time_series(
        11, "Why renewals failed", "Failed renewals by what the program's log says about it, all namespaces chosen above together. not_owned: the lock was lost before. "
        "redis_unavailable and failover: Redis. denied: its ACL.",
        [target(f'sum by (reason) (increase(redis_lock_renewal_failures_total{{{NAMESPACE},reason!="canceled"}}[{RATE}]))', "{{reason}}")],
        "short", "No rule reads failed renewals, or no exporter is scraped.", stacked=True, calcs=("sum",),
        overrides=panels.colors(not_owned=BAD, redis_unavailable=INFO, failover=PURPLE, denied=BLUE, other=NEUTRAL, busy=NOTICE))
    margin = panels.heatmap(
        13, "TTL left when locks are renewed", "How many renewals came with how much of the TTL left, all namespaces chosen above together. Two thirds is usual. It sinks before locks "
        "are lost: at 0 they are.",
        [target(f"sum by (le) (max by ({BY}, redis, le) (increase(redis_lock_renewal_margin_ratio_bucket{{{NAMESPACE}}}[{RATE}])))", "{{le}}", heatmap=True)],
        "percentunit", "No lock was renewed, or no namespace with `renew_every` is seen in Redis.")
    low = recorded("lock_namespace:redis_lock_renewal_margin_ratio:p10_30m")
    all_margins = f"sum by (le) (max by ({BY}, redis, le) (rate(redis_lock_renewal_margin_ratio_bucket{{{NAMESPACE}}}[{RATE}])))"
    low_margin = panels.time_series(
        14, "TTL left at the slowest renewals", "The share of the TTL that was left at all but the slowest tenth (p10) and hundredth (p1) of renewals, all namespaces together, and p10 over 30 "
        "minutes by namespace, which RedisLockRenewalMarginShrinking compares with the day before.",
        [target(f"histogram_quantile(0.01, {all_margins}) >= 0", "p1 of all"), target(f"histogram_quantile(0.1, {all_margins}) >= 0", "p10 of all"),
         target(low, "p10 of {{lock_namespace}}, 30 m")],
        "percentunit", "No lock was renewed, or no namespace with `renew_every` is seen in Redis.", most=1, links=[panels.NAMESPACE_LINK],
        calcs=("lastNotNull", "min"))
    unreleased = ',after=~"expiry|unknown"'
    changes = from_redis("redis_lock_owner_changes_total", window=RANGE, function="increase", where=unreleased)
    churn = panels.time_series(
        15, "Owner churn: locks that changed hands unreleased",
        "Owners per minute that got a lock which the one before let expire, or whose end was not seen, of the six namespaces with the most. Loops change hands by expiry on purpose, once "
        "per TTL at most; for locks of single pieces of work it means that holders crash, hang or are too slow.",
        [target(f"60 * {from_redis('redis_lock_owner_changes_total', where=unreleased)}\nand {ON} topk(6, {at_end(changes)})", "{{lock_namespace}}")],
        "short", "No Redis is seen.", links=[panels.NAMESPACE_LINK], decimals=1)
    leaders = panels.state_timeline(
        16, "Leaders", "Whether each lock that somebody should always hold is held. Absent: it has been free for longer than `leader_absent` allows, which pages. "
        "A gap: Redis was not seen.",
        [target(queries.LEADER_STATE, "{{lock}}")], mapping(p0=f"held:{GOOD}", p1=f"free:{NOTICE}", p2=f"absent:{BAD}"),
        "No namespace of style loop with a fixed key is seen in Redis.", links=[panels.NAMESPACE_LINK])
    rows = [
        (4, [(4, panel) for panel in _first_line()]),
        (9, [(24, _table())]),
        (9, [(12, state), (12, ratio)]),
        (8, [(7, causes), (7, reasons), (10, _alerts())]),
        (8, [(12, margin), (12, low_margin)]),
        (8, [(12, churn), (12, leaders)]),
    ]
    return panels.dashboard(
        "overview", "Overview", "Is exclusion intact, which lock namespace is hurt, since when, how badly compared with before, and why?", rows, ANNOTATIONS,
        with_namespace=True)


def at_end(expression):
    """Returns an expression whose windows end with the displayed time range, so that it is the same
    at every step."""
    return expression.replace(f"[{RANGE}]", f"[{RANGE}] @ end()")
