"""The annotations of every alert, compared word for word with annotation_texts.py."""

from .annotation_texts import TEXTS
from .builders import case, reached
from .world import World, clock, counter, gauge, parse_alert

RUNBOOKS = "https://github.com/redis-lock-exporter/redis_lock_exporter/blob/main/docs/runbooks/"


def add_texts(name, world, minute):
    """Adds a case for the texts of TEXTS[name]: exactly these alerts fire, with these
    annotations."""
    entries = []
    for alert, summary, description, dashboard, page in TEXTS[name]:
        labels = {k: v for k, v in parse_alert(alert).items() if k != "alertstate"}
        alertname = labels.pop("alertname")
        links = {"runbook_url": f"{RUNBOOKS}{alertname}.md", "dashboard_url": dashboard, "exporter_url": page}
        entries.append((minute, alertname, labels, {"summary": summary, "description": description, **links}))
    case("text", name, world, {minute: [entry[0] for entry in TEXTS[name]]}, text=entries)


def text():
    """Every alert once, with the texts that people read."""
    east = {"cluster": "east"}
    one = {"instance": "a:9190", "job": "locks", **east}

    def put(world, name, metric, values, redis=None, **labels):
        world.put(f"redis_lock_{metric}", values, lock_namespace=name, redis=redis, **labels, **one)

    w = World(40).exporter(cluster="east").exporter("b:9190", cluster="east", logs=False)
    for name, more in (
        ("lost", {}), ("renew", {"policy": "continue"}), ("stop", {"severity": "ticket"}), ("bare", {}), ("stuck", {"traffic": 5}), ("quit", {"traffic": 5}), ("fence", {}), ("twice", {}),
        ("leader", {"style": "loop", "config": {"leader_absent_seconds": 180}}), ("late", {}), ("eternal", {}),
        ("slow", {"config": {"max_hold_seconds": 600}}), ("churn", {}), ("expire", {}), ("short", {"config": {"ttl_seconds": 30}}),
        ("early", {"style": "loop"}), ("relay", {"style": "loop", "config": {"ttl_seconds": 30}}), ("takeover", {}),
    ):
        w.namespace(name, cluster="east", **more)
    w.namespace("far", cluster="east", instance="b:9190", redis="second", logs=False)
    steady = counter(40, (10, 40, 1))
    put(w, "lost", "not_owned_total", counter(40, (10, 40, 17)), operation="release")
    put(w, "lost", "not_owned_causes_total", counter(40, (10, 40, 15)), cause="renewals_stopped")
    put(w, "lost", "not_owned_causes_total", counter(40, (10, 40, 3)), cause="taken_over")
    put(w, "lost", "not_owned_causes_total", counter(40, (10, 40, 40)), cause="unknown")
    # This series is from another cluster, so it is not a cause in this one.
    w.put("redis_lock_not_owned_causes_total", counter(40, (10, 40, 90)), cause="lost_in_failover", lock_namespace="lost", instance="w:9190", job="locks", cluster="west")
    put(w, "renew", "renewal_failures_total", counter(40, (10, 40, 8)), reason="redis_unavailable")
    put(w, "stop", "renewal_failures_total", counter(40, (10, 40, 8)), reason="failover")
    put(w, "bare", "unlocked_work_total", counter(40, (10, 40, 10)))
    put(w, "bare", "acquire_failures_total", counter(40, (10, 40, 10)), reason="redis_unavailable")
    put(w, "bare", "acquire_failures_total", counter(40, (10, 40, 50)), reason="busy")
    put(w, "bare", "acquire_failures_total", counter(40, (10, 40, 50)), reason="canceled")
    put(w, "stuck", "acquire_failures_total", counter(40, (10, 40, 15)), reason="failover")
    put(w, "stuck", "acquire_failures_total", counter(40, (10, 40, 40)), reason="busy")
    put(w, "quit", "abandonments_total", steady)
    put(w, "fence", "fence_regressions_total", counter(40, (28, 28.5, 1)), redis="main")
    put(w, "twice", "conflicting_writes_total", steady, kind="duplicate_terminal_state")
    put(w, "leader", "last_held_timestamp_seconds", clock(40, (0, None), (10, 10)), redis="main", lock="app:leader")
    put(w, "late", "renewal_overdue", gauge(40, (0, 0), (10, 6)), redis="main")
    put(w, "eternal", "without_ttl", gauge(40, (0, 0), (5, 2)), redis="main")
    put(w, "slow", "oldest_acquired_timestamp_seconds", clock(40, (0, None), (10, 10)), redis="main")
    put(w, "churn", "owner_changes_total", counter(40, (5, 40, 4)), redis="main", after="expiry")
    put(w, "relay", "owner_changes_total", counter(40, (5, 40, 6)), redis="main", after="unknown")
    put(w, "relay", "held", gauge(40, (0, 1)), redis="main")
    put(w, "expire", "expirations_total", counter(40, (5, 40, 20)), redis="main")
    put(w, "short", "not_owned_causes_total", counter(40, (10, 40, 0.5)), cause="expired_never_renewed")
    put(w, "short", "recommended_ttl_seconds", gauge(40, (0, 90)), redis="main")
    put(w, "short", "recommended_renew_interval_seconds", gauge(40, (0, 30)), redis="main")
    put(w, "short", "takeover_bound_seconds", gauge(40, (0, 30)), redis="main")
    put(w, "early", "early_releases_total", counter(40, (10, 40, 0.5)), redis="main")
    put(w, "takeover", "takeovers_total", counter(40, (10, 40, 0.5)), redis="main", within_slo="false")
    put(w, "takeover", "takeovers_total", counter(40, (10, 40, 1.5)), redis="main", within_slo="true")
    w.put("redis_lock_exporter_redis_failovers_total", counter(40, (5, 5.5, 1), (12, 12.5, 1), (20, 20.5, 1), (28, 28.5, 1)), **one)
    reached(w, gauge(40, (0, 1), (10, 0)), **{**one, "instance": "b:9190"})
    add_texts("texts about lock namespaces and Redis", w, 30)

    # Different exporters read the logs and watch Redis. The links lead to the one that watches
    # Redis, and the texts contain what it saw.
    w = World(40).exporter(cluster="east", redis=False).exporter("b:9190", cluster="east", logs=False)
    for name in ("lost", "short"):
        w.namespace(name, cluster="east", redis=None, config={"ttl_seconds": 30}).namespace(name, cluster="east", instance="b:9190", logs=False, config={"ttl_seconds": 30})
    sees = {"redis": "main", **one, "instance": "b:9190"}
    put(w, "lost", "not_owned_total", counter(40, (10, 40, 17)), operation="release")
    put(w, "short", "not_owned_total", counter(40, (10, 40, 0.5)), operation="release")
    for name, expired in (("lost", 4), ("short", 0.5)):
        put(w, name, "not_owned_causes_total", counter(40, (10, 40, 17)), cause="unknown")
        w.put("redis_lock_expirations_total", counter(40, (10, 40, expired)), lock_namespace=name, **sees)
        w.put("redis_lock_owner_changes_total", counter(40, (10, 40, 0.25)), lock_namespace=name, after="release", **sees)
        w.put("redis_lock_owner_changes_total", counter(40, (10, 40, 0.5)), lock_namespace=name, after="unknown", **sees)
    w.put("redis_lock_recommended_ttl_seconds", gauge(40, (0, 90)), lock_namespace="short", **sees)
    w.put("redis_lock_exporter_redis_failovers_total", counter(40, (10, 10.5, 1)), **{**one, "instance": "b:9190"})
    add_texts("texts if different exporters read the logs and watch Redis", w, 30)

    # Several exporters watch Redis: of two exporters on one Redis the larger number counts, the
    # numbers of two Redis are added, and events older than half an hour no longer count. Other
    # exporters belong to another cluster, or have the same address in another job.
    w = World(50).exporter(cluster="east", redis=False).namespace("lost", cluster="east", redis=None)
    put(w, "lost", "not_owned_total", counter(50, (10, 50, 17)), operation="release")
    for instance, job, cluster, redis, expired, moved, failovers in (
        ("b:9190", "locks", "east", "main", 4, 0.25, 1), ("c:9190", "locks", "east", "main", 1, 0.125, 0), ("b:9190", "other", "east", "second", 2, 0.5, 1), ("b:9190", "locks", "west", "main", 3, 1, 1),
    ):
        sees = {"instance": instance, "job": job, "cluster": cluster}
        w.exporter(**sees, logs=False).namespace("lost", **sees, redis=redis, logs=False)
        w.put("redis_lock_expirations_total", counter(50, (0, 10, 20), (10, 50, expired)), lock_namespace="lost", redis=redis, **sees)
        for after, times in (("release", 1), ("unknown", 2)):
            w.put("redis_lock_owner_changes_total", counter(50, (0, 10, 20), (10, 50, times * moved)), lock_namespace="lost", redis=redis, after=after, **sees)
        w.put("redis_lock_exporter_redis_failovers_total", counter(50, (5, 5.5, 1), (30, 30.5, failovers)), **sees)
        # Two exporters on one Redis see the same events. The second Redis has more of them.
        fences, w = counter(50, (40, 40.5, 2 if redis == "second" else 1)), w.namespace("quiet", **sees, redis=redis, logs=False, severity="ticket")
        for name, metric, values in (("lost", "fence_regressions_total", fences), ("quiet", "fence_regressions_total", fences), ("lost", "without_ttl", gauge(50, (0, 0), (25, 2 if redis == "second" else 1)))):
            w.put(f"redis_lock_{metric}", values if cluster == "east" else counter(50), lock_namespace=name, redis=redis, **sees)
    # The logs of two nodes are added, also if their series begin with an event.
    for instance, node in (("a:9190", 1), ("d:9190", 2)):
        own = {"lock_namespace": "lost", "instance": instance, "job": "locks", "cluster": "east"}
        for metric in ("renewal_failures", "release_failures", "acquire_failures"):
            w.namespace(metric, cluster="east", redis=None)
            w.put(f"redis_lock_{metric}_total", counter(50, (15, 50, node)), reason="denied", **{**own, "lock_namespace": metric})
        for metric, labels in (("abandonments", {}), ("conflicting_writes", {"kind": "duplicate_terminal_state"})):
            w.put(f"redis_lock_{metric}_total", gauge(50, (0, None), (40, node)), **labels, **own)
    add_texts("texts if several exporters watch Redis", w, 46)

    # A Redis Cluster with one unavailable primary.
    w = World(40).exporter(cluster="east").namespace(cluster="east")
    w.put("redis_lock_exporter_redis_nodes", gauge(40, (0, 3)), **one)
    w.put("redis_lock_exporter_redis_nodes_up", gauge(40, (0, 3), (10, 2)), **one)
    w.put("redis_lock_exporter_redis_up", gauge(40, (0, 1), (10, 0)), **one)
    add_texts("texts about a part of Redis", w, 30)

    # Alerts that need an hour of past, with the links of links.rules.yml.
    w = World(90).exporter(cluster="east").namespace("busy", cluster="east").namespace("rate", cluster="east", redis=None, policy="continue").namespace("margin", cluster="east").namespace("burn", cluster="east")
    w.put("redis_lock:links", gauge(90, (0, 1)), grafana_url="https://grafana.example", exporter_url="https://locks.example")
    put(w, "busy", "acquire_failures_total", counter(90, (5, 90, 40)), reason="busy")
    put(w, "rate", "not_owned_total", counter(90, (70, 90, 2)), operation="release")
    put(w, "rate", "renewal_failures_total", counter(90, (0, 70, 0.125), (70, 90, 3)), reason="redis_unavailable")
    put(w, "rate", "acquire_failures_total", counter(90, (70, 90, 4)), reason="failover")
    for bound in ("0.3", "0.4", "0.6", "0.7", "+Inf"):
        put(w, "margin", "renewal_margin_ratio_bucket", counter(90, (0, 60, 20 if float(bound) >= 0.7 else 0), (60, 90, 20 if float(bound) >= 0.4 else 0)), redis="main", le=bound)
    put(w, "burn", "not_owned_total", counter(90, (5, 90, 1.5)), operation="release")
    add_texts("texts of alerts that compare with the past, with links", w, 84)

    w = World(40).exporter(cluster="east").namespace(cluster="east")
    w.exporter("c:9190", cluster="east", redis=False).exporter("d:9190", cluster="east", logs=False).exporter("e:9190", cluster="east", job="logs", redis=False)
    w.namespace("third", cluster="east", instance="d:9190", redis="third", logs=False)
    w.gone(5, text="c:9190")
    w.gone(5, text="d:9190")
    w.gone(5, text="e:9190")
    w.put("up", gauge(40, (0, 1), (5, 0)), **{**one, "instance": "c:9190"})
    w.put("redis_lock_exporter_tracking_up", gauge(40, (0, 1), (5, 0)), **one)
    w.put("redis_lock_exporter_scan_last_success_timestamp_seconds", clock(40, (0, None), (5, 5)), **one)
    w.put("redis_lock_exporter_log_lag_bytes", gauge(40, (0, 0), (5, 500)), source="/var/log/app.log", **one)
    w.put("redis_lock_exporter_log_bytes_total", counter(40, (0, 5, 3000)), source="/var/log/app.log", **one)
    w.put("redis_lock_exporter_log_open_files", gauge(40, (0, 0)), source="/var/log/none.log", **one)
    w.put("redis_lock_exporter_state_enabled", gauge(40, (0, 1)), **one)
    w.put("redis_lock_exporter_state_durable", gauge(40, (0, 0)), **one)
    put(w, "jobs", "untracked_locks_total", counter(40, (5, 40, 5)), redis="main")
    w.put("redis_lock_exporter_table_evictions_total", counter(40, (5, 40, 2)), table="joined_lines", **one)
    w.put("redis_lock_exporter_redis_permission_denied", gauge(40, (0, 1)), command="CLIENT", **one)
    put(w, "jobs", "release_failures_total", counter(40, (5, 40, 1)), reason="denied")
    w.put("redis_lock_exporter_config_last_reload_successful", gauge(40, (0, 0)), **one)
    add_texts("texts about exporters", w, 30)

    w = World(30).exporter().namespace()
    w.gone(5)
    add_texts("text if no exporter runs", w, 20)
