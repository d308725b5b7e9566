"""Several lock namespaces in one cluster at the same time: ratios and rates.

Some lock namespaces fire. For each condition of an alert there is one lock namespace that lacks
only this condition, while its neighbors fulfill it. A join that omits the lock namespace makes that
one fire, or matches two lock namespaces where one is expected."""

from .builders import JOBS, SEEN, case, failed_acquisitions, failed_renewals, lost
from .world import World, counter, gauge


def named(alerts):
    """"Name/severity" for each namespace: {"NotOwnedRatioHigh/critical": "all few"}."""
    return [f"{alert} lock_namespace={name}" for alert, names in alerts.items() for name in names.split()]


def beside_ratios():
    def namespace(w, name, *segments, policy="continue", stops=None, unlocked=True, abandoned=(), twice=(), **more):
        """`segments`: failures of each kind per 20 successes. The successes end at `stops`."""
        w.namespace(name, policy=policy, **more)
        here = {"lock_namespace": name}
        lost(w, *[(begin, end, 2 * amount) for begin, end, amount in segments], **here)
        failed_renewals(w, *segments, **here)
        failed_acquisitions(w, *segments, **here)
        for metric, of, labels in (("unlocked_work", segments if unlocked is True else unlocked or [], {}), ("abandonments", abandoned, {}), ("conflicting_writes", twice, {"kind": "duplicate_terminal_state"})):
            w.put(f"redis_lock_{metric}_total", gauge(36, (0, None), (20, 1)) if of == "new" else counter(36, *of), **labels, **JOBS | here)
        if stops:
            for metric in ("acquisitions", "releases", "renewals"):
                w.put(f"redis_lock_{metric}_total", counter(36, (0, stops, 20)), **SEEN | here)

    def every_5_minutes(amount):
        return [(10 + 5 * i, 11 + 5 * i, amount) for i in range(6)]

    w = World(36).exporter().exporter("b:9190")
    # all: everything fails. part: 43 % fail for a short time. few: below min_failures. steady: 30 %
    # fail where 20 % are allowed. spikes: each slice is a little too bad, but not the long windows.
    namespace(w, "all", (10, 36, 20), stops=10, abandoned=[(10, 36, 1)], twice=[(10, 36, 1)])
    namespace(w, "part", (10, 15.5, 15), abandoned=[(10, 16, 50)], twice=[(10, 14, 50)])
    namespace(w, "few", (10, 36, 20), stops=10, config={"min_failures": 1e5}, abandoned="new", twice="new")
    namespace(w, "steady", (10, 36, 8.5), config={"not_owned_ratio": 0.2, "renewal_failure_ratio": 0.2})
    namespace(w, "spikes", *[(10 + 2.5 * i, 10.5 + 2.5 * i, 4.5) for i in range(10)], unlocked=None, abandoned=[(0, 36, 0.14)])
    # bursts: fires. small: bursts, but not enough in the long windows. over: ended at 20, then
    # single failures, and min_failures is low only later. calm: one event of each kind and nothing
    # else.
    namespace(w, "bursts", *every_5_minutes(16))
    namespace(w, "small", *every_5_minutes(9), unlocked=None)
    namespace(w, "over", (10, 20, 20), (25, 36, 0.125), unlocked=None)
    w.put("redis_lock_config_min_failures", gauge(36, (0, 1e5), (33, 5)), **JOBS | {"lock_namespace": "over"})
    namespace(w, "calm", abandoned=[(12, 12.5, 1)], twice=[(12, 12.5, 1)])
    # Who is alerted: pages and tickets.
    namespace(w, "ticket", (10, 36, 8.5), severity="ticket", abandoned=[(10, 36, 2.5)], twice=[(10, 36, 1)])
    namespace(w, "stops", (10, 36, 8.5), policy="fence", strict=1, abandoned=[(15, 15.5, 1)])
    namespace(w, "fenced", (10, 36, 30), policy="fence")
    namespace(w, "strict", severity="ticket", strict=1, abandoned=[(10, 36, 2.5)])
    # Successes are not visible, or not all of them.
    namespace(w, "passes", (10, 36, 20), source="scan", unlocked=[(10, 36, 0.125)], config={"min_failures": 1}, abandoned=[(10, 36, 5)])
    namespace(w, "logs", (10, 36, 20), redis=None, unlocked=[(10, 36, 0.5)])
    # A second exporter sees the same in Redis, or has an older configuration. Another one sees what
    # happened later.
    for name in ("fenced", "bursts", "strict"):
        w.namespace(name, instance="b:9190", logs=False, policy="fence" if name == "fenced" else "continue", severity="ticket" if name == "strict" else "page")
    namespace(w, "halves", abandoned=[(10, 15, 2.5)], twice=[(10, 13.5, 1)])
    w.put("redis_lock_abandonments_total", counter(36, (15, 20, 2.5)), **JOBS | {"lock_namespace": "halves", "instance": "b:9190"})
    w.put("redis_lock_conflicting_writes_total", counter(36, (13.5, 18, 1)), kind="duplicate_terminal_state", **JOBS | {"lock_namespace": "halves", "instance": "b:9190"})
    for name in ("stops", "ticket"):
        w.put("redis_lock_fence_regressions_total", counter(36, (30, 30.5, 1)), **SEEN | {"lock_namespace": name})
    n, r, a, u = "NotOwnedRatioHigh", "RenewalFailureRatioHigh", "AcquireFailing", "UnlockedWork"
    event, twice, pages = "AbandonedEvent/warning", "DuplicateTerminalState/warning", "DuplicateTerminalState/critical"
    ratios = {
        f"{n}/critical": "all fenced steady stops", f"{n}/warning": "ticket", f"{r}/critical": "all fenced steady", f"{r}/warning": "ticket stops", f"{a}/critical": "all fenced",
        f"{a}/warning": "steady ticket stops", f"{u}/critical": "all fenced steady stops passes logs", f"{u}/warning": "ticket",
    }
    abandoned = {"Abandoned/critical": "all stops strict halves", "Abandoned/warning": "ticket"}
    case("beside", "namespaces of one cluster: failures", w, {
        9: named({event: "spikes"}),
        15.5: named({f"{n}/critical": "all fenced", f"{r}/critical": "all fenced", event: "all part spikes calm ticket stops strict passes halves", "Abandoned/critical": "stops strict", twice: "all part calm ticket halves"}),
        18.5: named({**ratios, event: "all part spikes calm ticket stops strict passes halves", "Abandoned/critical": "stops strict", pages: "all halves", twice: "part calm ticket"}),
        25: named({**ratios, event: "all part spikes calm ticket stops strict passes few halves", **abandoned, pages: "all halves", twice: "part calm ticket"}),
        34: named({
            **ratios, f"{n}/critical": "all fenced steady stops bursts", f"{r}/critical": "all fenced steady bursts", event: "all spikes ticket strict passes few halves", **abandoned, pages: "all halves", twice: "part calm ticket few",
            "FenceRegression/critical": "stops", "FenceRegression/warning": "ticket",
        }),
    }, holds=[
        # There is no ratio if not every success is visible: 14 of 16 lock namespaces have one,
        # without "passes" and "logs".
        f"count(lock_namespace:redis_lock_{ratio}{{CLUSTER}}) == bool 14"
        for of, minutes in (("not_owned_per_operation", (2, 5, 10, 30)), ("renewal_failures_per_renewal", (2, 5, 10, 30)), ("acquire_failures_per_attempt", (2, 10))) for ratio in (f"{of}:ratio{m}m" for m in minutes)
    ] + [f"max(lock_namespace:redis_lock_unlocked_work_per_start:ratio{m}m{{CLUSTER,lock_namespace=\"{name}\"}}) == bool 1" for m in (2, 10, 30) for name in ("logs", "passes")])

    # The same names in another cluster: everything fails.
    w, tickets = World(36).exporter(), "all fenced stops"
    pages_too = "part few steady spikes bursts small over calm ticket strict passes logs"
    for name in f"{tickets} {pages_too}".split():
        namespace(w, name, (10, 36, 20), stops=10, abandoned=[(10, 36, 1)], twice=[(10, 36, 1)], severity="ticket" if name in tickets.split() else "page", strict=int(name == "calm"),
                  config={"not_owned_ratio": 0.05, "renewal_failure_ratio": 0.05, "min_failures": 5})
    every = f"{tickets} {pages_too}"
    fails = {f"{n}/critical": pages_too, f"{n}/warning": tickets, f"{r}/critical": pages_too, f"{r}/warning": tickets, event: every, "Abandoned/critical": "calm", twice: every}
    case("beside", "namespaces of another cluster: failures", w, {
        9: [], 15.5: named(fails),
        **{minute: named({
            **fails, **{f"{name}/{severity}": names for name in (a, u, *(["Abandoned"] if minute > 20 else []), "DuplicateTerminalState") for severity, names in (("critical", pages_too), ("warning", tickets))},
        }) for minute in (18.5, 25, 34)},
    })


def beside_rare():
    """The second pattern of UnlockedWork: half of the work of 30 minutes."""
    page = "UnlockedWork/critical"

    def namespace(w, name, every=4, end=60, acquired=0, **config):
        w.namespace(name, traffic=acquired, renewals=0, config=config)
        w.put("redis_lock_unlocked_work_total", counter(60, *[(at, at + 0.5, 1) for at in range(10, end, every)]), **JOBS | {"lock_namespace": name})

    # rare: fires. few: fewer than min_failures. part: a third of the work. sparse: too few slices.
    # over: no slice in the last 10 minutes, and min_failures is low only then. steady: fires because
    # of the first pattern.
    w = World(60).exporter()
    namespace(w, "rare")
    namespace(w, "few", min_failures=1e5)
    namespace(w, "part", acquired=0.25)
    namespace(w, "sparse", every=8, min_failures=1)
    namespace(w, "over", every=2, end=34)
    w.namespace("steady")
    w.put("redis_lock_unlocked_work_total", counter(60, (10, 60, 5)), **JOBS | {"lock_namespace": "steady"})
    w.put("redis_lock_config_min_failures", gauge(60, (0, 1e5), (48, 5)), **JOBS | {"lock_namespace": "over"})
    case("beside", "namespaces of one cluster: rare work", w, {15: [], 26: named({page: "steady"}), **{minute: named({page: "rare steady"}) for minute in (40, 50, 59)}})
    w, names = World(60).exporter(), "few part sparse over"
    for name in names.split():
        namespace(w, name, min_failures=5)
    case("beside", "namespaces of another cluster: rare work", w, {26: [], 40: named({page: names}), 59: named({page: names})})


def beside_burn():
    w = World(225).exporter().exporter("b:9190", logs=False).namespace("burns", instance="b:9190", logs=False)
    for name, segments, config in (
        ("burns", [(10, 225, 1.25)], {}), ("few", [(10, 225, 1.25)], {"min_failures": 1e5}), ("spikes", [(5, 225, 0.8), *[(10 + 30 * i, 10.5 + 30 * i, 40) for i in range(8)]], {}), ("over", [(10, 165, 4.5)], {}), ("passes", [(10, 225, 1.25)], {}),
    ):
        w.namespace(name, config=config, source="scan" if name == "passes" else "watch")
        lost(w, *segments, lock_namespace=name)
    # There were enough failures before, but min_failures is low only now.
    w.put("redis_lock_config_min_failures", gauge(225, (0, 1e5), (197.5, 5)), **JOBS | {"lock_namespace": "over"})
    case("beside", "namespaces of one cluster: slow burn", w, {170: [], 187.5: named({"FailureBudgetBurn/warning": "burns"}), 222.5: named({"FailureBudgetBurn/warning": "burns"})}, every=2.5,
         holds=["count(lock_namespace:redis_lock_not_owned_per_operation:ratio6h{CLUSTER}) == bool 4"])
    w = World(225).exporter()
    for name in ("few", "spikes", "over", "passes"):
        w.namespace(name)
        lost(w, (10, 225, 1.25), lock_namespace=name)
    case("beside", "namespaces of another cluster: slow burn", w, {170: [], 187.5: named({"FailureBudgetBurn/warning": "few spikes over passes"}), 222.5: named({"FailureBudgetBurn/warning": "few spikes over passes"})}, every=2.5)


def beside_rates():
    def namespace(w, name, *segments, since=0, redis=None, policy="continue", abandoned=(), times=1, **more):
        w.namespace(name, redis=redis, policy=policy, logs=not since, **more)
        for metric, labels, of in (
            ("not_owned", {"operation": "release"}, [(begin, end, times * amount) for begin, end, amount in segments]), ("renewal_failures", {"reason": "redis_unavailable"}, segments),
            ("acquire_failures", {"reason": "redis_unavailable"}, segments), ("abandonments", {}, abandoned),
        ):
            w.put(f"redis_lock_{metric}_total", [None if k / 2 < since else v for k, v in enumerate(counter(95, *of))], **labels, **JOBS | {"lock_namespace": name})

    w = World(95).exporter()
    # begins: after a quiet hour. always: from the start. young: with less than half an hour of
    # past. once: all at one time. spikes: in most slices, but not in the long windows. The others:
    # in bursts, and in smaller ones.
    namespace(w, "begins", (62, 95, 2), abandoned=[(62, 95, 1)])
    namespace(w, "again", (62, 95, 2), abandoned=[(62, 95, 1)])
    namespace(w, "ticket", (62, 95, 2), severity="ticket", abandoned=[(62, 95, 1)])
    namespace(w, "stops", (62, 95, 2), policy="fence")
    namespace(w, "always", (0, 95, 2), abandoned=[(0, 95, 1)])
    namespace(w, "young", (62, 95, 2), since=40, abandoned=[(62, 95, 1)])
    namespace(w, "once", (62, 63, 10))
    namespace(w, "spikes", *[(62 + 2.5 * i, 62.5 + 2.5 * i, 2.25) for i in range(12)])
    namespace(w, "bursts", *[(62 + 5 * i, 63 + 5 * i, 30) for i in range(6)])
    namespace(w, "small", *[(62 + 5 * i, 63 + 5 * i, 2) for i in range(6)])
    namespace(w, "over", *[(62 + 5 * i, 63.5 + 5 * i, 9) for i in range(4)], (80, 95, 1 / 32))
    w.put("redis_lock_config_min_failures", gauge(95, (0, 20), (91, 1)), **JOBS | {"lock_namespace": "over"})
    # Every success is visible.
    namespace(w, "seen", (62, 95, 30), redis="main", times=2, abandoned=[(62, 95, 3)])
    n, r, a, event = "NotOwnedRateHigh", "RenewalFailureRatioHigh", "AcquireFailing", "AbandonedEvent/warning"
    frequent = {
        f"{n}/critical": "begins again stops", f"{n}/warning": "ticket", f"{r}/critical": "begins again seen", f"{r}/warning": "ticket stops", f"{a}/critical": "begins again stops seen", f"{a}/warning": "ticket", "NotOwnedRatioHigh/critical": "seen",
        event: "begins again ticket always young seen",
    }
    abandoned = {"Abandoned/critical": "begins again seen", "Abandoned/warning": "ticket"}
    bursts = {f"{n}/critical": "begins again stops bursts", f"{r}/critical": "begins again bursts seen"}
    case("beside", "namespaces of one cluster: rates", w, {
        60: named({event: "always"}), 71.5: named({**frequent, **abandoned}), 75: named({**frequent, **abandoned}), 86: named({**frequent, **abandoned, **bursts}), 92.5: named({**frequent, **abandoned, **bursts}),
    })

    # The same names in another cluster: completely visible, bad from the start, or bad after a
    # quiet hour.
    w, begun = World(95).exporter(), "young spikes once bursts over small always"
    for name in ("again", "ticket"):
        namespace(w, name, (62, 95, 30), redis="main", times=2, abandoned=[(62, 95, 3)])
    namespace(w, "begins", (0, 95, 2))
    namespace(w, "stops", (62, 95, 2), severity="ticket")
    for name in begun.split():
        namespace(w, name, (62, 95, 2), abandoned=[(62, 95, 1)])
    fails = {
        f"{n}/critical": begun, f"{n}/warning": "stops", f"{r}/critical": f"{begun} again ticket", f"{r}/warning": "stops", f"{a}/critical": f"{begun} again ticket", f"{a}/warning": "stops", "NotOwnedRatioHigh/critical": "again ticket",
        event: f"{begun} again ticket", "Abandoned/critical": f"{begun} again ticket",
    }
    case("beside", "namespaces of another cluster: rates", w, {60: [], **{minute: named(fails) for minute in (71.5, 75, 86, 92.5)}})
