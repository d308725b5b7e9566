"""Several lock namespaces in one cluster at the same time: state and lifecycle. beside_ratios.py
explains the idea."""

from .beside_ratios import named
from .builders import JOBS, OWN, SEEN, case, failed_acquisitions, lost, reached
from .world import World, clock, counter, gauge


def beside_state():
    """When an exporter loses Redis, its last values are out of date. They must not count if another
    exporter of its job is connected, or an exporter of another job at the same address. The two
    variants run as clusters in which the same names mean something else."""
    for where, cut, swap in (("of one job", {"instance": "b:9190"}, False), ("at one address", {"job": "second"}, True)):
        w = World(26).exporter().exporter(**{**OWN, **cut}, logs=False)
        reached(w, gauge(26, (0, 1), (8, 0)), **{**OWN, **cut})
        page, ticket = {"severity": "ticket" if swap else "page"}, {"severity": "page" if swap else "ticket"}
        for name, here, there, more in (
            # What the connected exporter shows, and what the other one showed last.
            ("late", {"held": (0, 10), "renewal_overdue": (5, 6)}, {"held": (0, 100), "renewal_overdue": (0, 0)}, page),
            ("ticket", {"held": (0, 10), "renewal_overdue": (5, 6)}, {}, ticket),
            ("seldom", {"held": (0, 20), "renewal_overdue": (5, 12 if swap else 1)}, {"renewal_overdue": (5, 12 if swap else 20)}, {}),
            ("eternal", {"without_ttl": (5, 1)}, {}, {}),
            ("fleeting", {"without_ttl": (0, 0)}, {"without_ttl": (7.5, 3)}, {}),
        ):
            w.namespace(name, **more).namespace(name, logs=False, **cut, **more)
            for labels, shown in ((SEEN, here), ({**SEEN, **cut}, there)):
                for metric, (since, value) in shown.items():
                    w.put(f"redis_lock_{metric}", gauge(26, (0, 0), (since, value)), **{**labels, "lock_namespace": name})
        # The thresholds are the same, configured or by default.
        absent, held = [{"leader_absent_seconds": 180}, {"ttl_seconds": 30}], [{"max_hold_seconds": 300}, {"ttl_seconds": 15}]
        for name, oldest, since, there, more in (
            ("leads", None, 5, 8, {"style": "loop", "config": absent[swap], **page}), ("follows", None, 5, None, {"style": "loop", "config": absent[not swap], **ticket}),
            ("free", None, 25 if swap else 5, None, {"style": "loop" if swap else "item", "config": {"ttl_seconds": 30}}),
            ("holds", 5, None, None, {"config": held[swap]}), ("keeps", 5, None, None, {"config": held[not swap]}),
            ("loops", 25 if swap else 5, None, None, {"style": "item" if swap else "loop", "config": {"ttl_seconds": 15}}), ("took", 25, None, 1, {"config": {"max_hold_seconds": 300}}),
        ):
            w.namespace(name, **more).namespace(name, logs=False, **cut, **more)
            here = {"lock_namespace": name}
            if since:
                w.put("redis_lock_last_held_timestamp_seconds", clock(26, (0, None), (since, since)), lock="app:leader", **{**SEEN, **here})
                w.put("redis_lock_last_held_timestamp_seconds", clock(26, (0, None)), lock="app:other", **{**SEEN, **here})
                if there:
                    w.put("redis_lock_last_held_timestamp_seconds", clock(26, (0, None), (there, there)), lock="app:leader", **{**SEEN, **cut, **here})
            if oldest:
                w.put("redis_lock_oldest_acquired_timestamp_seconds", clock(26, (0, None), (oldest, oldest)), **{**SEEN, **here})
                if there:
                    w.put("redis_lock_oldest_acquired_timestamp_seconds", clock(26, (0, None), (there, there)), **{**SEEN, **cut, **here})
        loud, soft = ("warning", "critical") if swap else ("critical", "warning")
        leads, follows = (f"LeaderAbsent/{severity} lock_namespace={name} redis=main lock=app:leader" for severity, name in ((loud, "leads"), (soft, "follows")))
        long = [f"HeldTooLong/warning lock_namespace={name} redis=main" for name in ("holds", "keeps")]
        mass = [*named({f"MassRenewalOverdue/{loud}": "late", f"MassRenewalOverdue/{soft}": "ticket"}), *named({"MassRenewalOverdue/critical": "seldom", "RenewalOverdue/warning": "seldom"} if swap else {})]
        case("beside", f"namespaces of one cluster: states that two exporters {where} show", w, {
            5: [], 11: [leads, follows], 18: [leads, follows, *long, *mass, *named({"RenewalOverdue/warning": "ticket"})],
            25: [leads, follows, *long, *mass, *named({"RenewalOverdue/warning": "late ticket", "WithoutTtl/warning": "eternal"})],
        })


    # The same for pages and tickets about leaders, and for a ticket about a few late renewals.
    w = World(26).exporter().exporter("b:9190", logs=False).exporter(job="second", logs=False)
    for labels in ({**OWN, "instance": "b:9190"}, {**OWN, "job": "second"}):
        reached(w, gauge(26, (0, 1), (8, 0)), **labels)
    for name, cut, more in (("leads", {"job": "second"}, {}), ("follows", {"instance": "b:9190"}, {"severity": "ticket"})):
        w.namespace(name, style="loop", config={"ttl_seconds": 30}, **more).namespace(name, style="loop", logs=False, **cut, **more)
        for labels, since in ((SEEN, 5), ({**SEEN, **cut}, 8)):
            w.put("redis_lock_last_held_timestamp_seconds", clock(26, (0, None), (since, since)), lock="app:leader", **{**labels, "lock_namespace": name})
    for name, here, there, more in (("late", 1, 20, {"severity": "ticket"}), ("mass", 12, 12, {})):
        w.namespace(name, **more).namespace(name, job="second", logs=False, **more)
        for labels, value in ((SEEN, here), ({**SEEN, "job": "second"}, there)):
            w.put("redis_lock_held", gauge(26, (0, 20)), **{**labels, "lock_namespace": name})
            w.put("redis_lock_renewal_overdue", gauge(26, (0, 0), (7.5, value)), **{**labels, "lock_namespace": name})
    alerts = [f"LeaderAbsent/{severity} lock_namespace={name} redis=main lock=app:leader" for severity, name in (("critical", "leads"), ("warning", "follows"))]
    case("beside", "namespaces of one cluster: leaders that exporters saw before they lost Redis", w, {
        5: [], 11: alerts, 18: [*alerts, *named({"MassRenewalOverdue/critical": "mass"})], 25: [*alerts, *named({"MassRenewalOverdue/critical": "mass", "RenewalOverdue/warning": "mass"})],
    })
    w = World(26)
    for labels in ({**OWN, "instance": "b:9190"}, {**OWN, "job": "second"}):
        w.exporter(**labels, logs=False).namespace("calm", **labels)
        reached(w, gauge(26, (0, 1)), **labels)
    # One exporter has never completed a pass, and a target that is down was never an exporter.
    w.exporter(logs=False).drop("scan_last_success_timestamp_seconds{instance=\"a:9190\",job=\"locks\"}")
    w.put("up", gauge(26, (0, 0)), instance="d:9190", job="locks")
    case("beside", "exporters of the same names in another cluster", w, {4: [], 25: ["ScanStale/warning instance=a:9190 job=locks"]})


def beside_lifecycle():
    w = World(60).exporter().exporter("b:9190", logs=False).exporter("c:9190", logs=False)

    def events(*minutes, amount=1):
        return [(minute, minute + 0.5, amount) for minute in minutes]

    often, at_once, two = events(*range(5, 60, 4)), [(5, 7, 100)], [(5, 25, 0.05)]
    for name, changes, ended, slow, fast, more in (
        # Owner changes every 30 s after expirations; slow takeovers and early releases; others.
        ("churns", [(5, 60, 4)], [(5, 60, 20)], often, [], {}), ("loops", [(5, 60, 10)], [(5, 60, 20)], [], [], {"style": "loop"}), ("passes", [(5, 60, 10)], [(5, 60, 20)], [], [], {"source": "scan"}),
        ("moved", [(5, 7, 400)], [(5, 7, 400)], at_once, [], {}), ("few", [(5, 60, 4)], [(5, 60, 20)], two, [], {"config": {"min_failures": 1e5}}), ("fast", [], [], often, [(0, 60, 2)], {}),
    ):
        here = {**SEEN, "lock_namespace": name}
        w.namespace(name, **more)
        w.put("redis_lock_owner_changes_total", counter(60, *changes), after="expiry", **here)
        w.put("redis_lock_expirations_total", counter(60, *ended), **here)
        w.put("redis_lock_early_releases_total", counter(60, *([] if name == "fast" else slow)), **here)
        for within, of in (("false", slow), ("true", fast)):
            w.put("redis_lock_takeovers_total", counter(60, *of), within_slo=within, **here)
    # Two Redis, each with half of the events.
    for labels, minutes in ((SEEN, (5, 9)), ({**SEEN, "instance": "c:9190", "redis": "second"}, (13, 17))):
        w.namespace("halves", instance=labels["instance"], redis=labels["redis"], logs=labels is SEEN)
        for metric, within in (("early_releases", {}), ("takeovers", {"within_slo": "false"})):
            w.put(f"redis_lock_{metric}_total", counter(60, *events(*minutes)), **{**labels, "lock_namespace": "halves"}, **within)
    # The TTL is too short: either the causes are known, or locks are found lost while locks expire,
    # and an exporter on the same Redis sees nothing of that.
    apart, later = events(5, 13, 21, 29, 37, 45), events(2.5, 10.5, 18.5, 26.5, 34.5, 42.5)
    for name, causes, gone, ended, more in (
        ("short", often, [], [], {}), ("advised", often, [], [], {}), ("burst", at_once, [], [], {}), ("enough", often, [], [], {"config": {"ttl_seconds": 30, "min_failures": 1e5}}),
        ("unseen", [], often, often, {}), ("other", [], apart, later, {}), ("released", [], often, often[:4], {}), ("held", [], often[:4], often, {}), ("looped", [], often, often, {"style": "loop"}), ("deleted", [], often, often, {}),
    ):
        here = {**JOBS, "lock_namespace": name}
        w.namespace(name, **{"config": {"ttl_seconds": 30}, **more}).namespace(name, instance="b:9190", logs=False, **{"config": {"ttl_seconds": 30}, **more})
        w.put("redis_lock_recommended_ttl_seconds", gauge(60, (0, 30 if name == "advised" else 60)), redis="main", **here)
        w.put("redis_lock_not_owned_causes_total", counter(60, *causes), cause="expired_never_renewed", **here)
        w.put("redis_lock_not_owned_causes_total", counter(60, *(events(30) if name == "deleted" else ())), cause="deleted_early", **here)
        lost(w, *gone, lock_namespace=name)
        w.put("redis_lock_expirations_total", counter(60, *ended), redis="main", **here)
    w.put("redis_lock_expirations_total", counter(60, *often[:4]), **{**SEEN, "instance": "b:9190", "lock_namespace": "released"})
    w.namespace("known", config={"ttl_seconds": 30})
    w.put("redis_lock_recommended_ttl_seconds", gauge(60, (0, 60)), **{**SEEN, "lock_namespace": "known"})
    for instance, minutes in (("a:9190", (5, 9)), ("b:9190", (13, 17))):
        w.put("redis_lock_not_owned_causes_total", counter(60, *events(*minutes, amount=2)), cause="expired_never_renewed", **{**JOBS, "instance": instance, "lock_namespace": "known"})
    lived = {"OwnerChurnHigh/warning": "churns", "ExpiryRatioHigh/warning": "churns", "TakeoverSlow/warning": "churns halves", "ReleasedEarly/warning": "churns halves"}
    case("beside", "namespaces of one cluster: how locks live", w, {4: [], 22: named(lived), 48: named({**lived, "TtlTooShort/warning": "short unseen known"}), 59: named({**lived, "TtlTooShort/warning": "short unseen known"})})

    # Two exporters see the same in one Redis: their numbers are not added. This is another cluster,
    # in which the same names mean something else.
    w = World(61).exporter().exporter("b:9190", logs=False)
    every = {"changes": [(5, 61, 4)], "ended": [(5, 61, 8)], "slow": often, "fast": [(0, 61, 0.8)], "early": often}
    for name, more in (
        ("churns", {"changes": [(5, 61, 1.6)]}), ("seldom", {"changes": [(5, 61, 0.14)], "ended": [(minute, minute + 0.5, 1) for minute in range(5, 61, 8)], "traffic": 0.5}),
        ("bursts", {"ended": [(5 + 4 * i, 7 + 4 * i, 9.5) for i in range(14)]}), ("loops", {"ended": [(5, 11, 20), (11, 61, 4)]}), ("passes", {"slow": often, "fast": [(0, 61, 1.5)]}), ("moved", every), ("few", every),
    ):
        for instance in ("a:9190", "b:9190"):
            here = {**SEEN, "instance": instance, "lock_namespace": name}
            w.namespace(name, instance=instance, logs=instance == "a:9190", traffic=more.get("traffic", 20))
            for metric, of, labels in (("owner_changes", "changes", {"after": "expiry"}), ("expirations", "ended", {}), ("takeovers", "slow", {"within_slo": "false"}), ("takeovers", "fast", {"within_slo": "true"}), ("early_releases", "early", {})):
                w.put(f"redis_lock_{metric}_total", counter(61, *more.get(of, ())), **labels, **here)
    # The TTL of these lock namespaces is too short.
    for name in ("burst", "advised", "unseen", "looped", "released", "other"):
        here, known = {**JOBS, "lock_namespace": name}, name not in ("released", "other")
        w.namespace(name, config={"ttl_seconds": 30})
        w.put("redis_lock_recommended_ttl_seconds", gauge(61, (0, 60)), redis="main", **here)
        w.put("redis_lock_not_owned_causes_total", counter(61, *(often if known else ())), cause="expired_never_renewed", **here)
        lost(w, *(() if known else often), lock_namespace=name)
        w.put("redis_lock_expirations_total", counter(61, *(() if known else often)), redis="main", **here)
    lived = {f"{name}/warning": "moved few" for name in ("OwnerChurnHigh", "ExpiryRatioHigh", "TakeoverSlow", "ReleasedEarly")}
    case("beside", "two exporters see the same: how locks live", w, {
        4: [], 22: named(lived), 48: named({**lived, "TtlTooShort/warning": "burst advised unseen looped released other"}), 60: named({**lived, "TtlTooShort/warning": "burst advised unseen looped released other"}),
    })


def beside_trends():
    def margins(w, name, amount, before, after, instance="a:9190"):
        for bound in ("0.3", "0.4", "0.6", "0.7", "+Inf"):
            of = [(begin, end, amount) for begin, end, le in ((0, 75, before), (75, 125, after)) if float(bound) >= le]
            w.put("redis_lock_renewal_margin_ratio_bucket", counter(125, *of), le=bound, **{**SEEN, "instance": instance, "lock_namespace": name})

    w = World(125).exporter().exporter("b:9190", logs=False)
    for name, before, after, busy, more in (
        ("late", 0.7, 0.4, 40, {}), ("always", 0.4, 0.4, 16, {}), ("seldom", 0.7, 0.4, 0.42, {"traffic": 0, "renewals": 0.25}), ("passes", 0.7, 0.7, 40, {"source": "scan"}), ("allowed", 0.7, 0.7, 40, {"config": {"busy_ratio": 0.8}}),
        ("mixed", 0.7, 0.7, 0, {}),
    ):
        w.namespace(name, **more)
        margins(w, name, more.get("renewals", 20), before, after)
        failed_acquisitions(w, (5, 125, busy), reason="busy", lock_namespace=name)
    # Another exporter sees the same few renewals, or only the late ones, which are a tenth of what
    # the first exporter sees and less than a tenth of the sum.
    w.namespace("seldom", instance="b:9190", logs=False, traffic=0, renewals=0.25).namespace("mixed", instance="b:9190", logs=False)
    margins(w, "seldom", 0.25, 0.7, 0.4, instance="b:9190")
    margins(w, "mixed", 2.125, 0.7, 0.4, instance="b:9190")
    busy = {"ContentionHigh/warning": "late"}
    case("beside", "namespaces of one cluster: trends", w, {35: [], 75: named(busy), 105: named({**busy, "RenewalMarginShrinking/warning": "late"}), 125: named({**busy, "RenewalMarginShrinking/warning": "late mixed"})}, every=5)
    w = World(125).exporter()
    for name in ("late", "always", "seldom", "passes"):
        w.namespace(name, config={"busy_ratio": 0.5})
        margins(w, name, 20, 0.7, 0.4)
        failed_acquisitions(w, (5, 125, 40), reason="busy", lock_namespace=name)
    late = "late always seldom passes"
    case("beside", "namespaces of another cluster: trends", w, {35: [], 75: named({"ContentionHigh/warning": late}), 125: named({"ContentionHigh/warning": late, "RenewalMarginShrinking/warning": late})}, every=5)


def beside_ttl():
    """Locks are found lost while locks expire: each sum and each hour, from both sides. Evaluated
    every 2.5 minutes, so that an hour has 24 slices."""
    def losing(minutes, **namespaces):
        """`namespaces`: (lost, expired, known causes) of each."""
        w = World(minutes).exporter().exporter("b:9190")
        for name, (gone, ended, known) in namespaces.items():
            here = {**JOBS, "lock_namespace": name}
            w.namespace(name, config={"ttl_seconds": 30})
            w.put("redis_lock_recommended_ttl_seconds", gauge(minutes, (0, 60)), redis="main", **here)
            lost(w, *gone, lock_namespace=name)
            w.put("redis_lock_expirations_total", counter(minutes, *ended), redis="main", **here)
            w.put("redis_lock_not_owned_causes_total", counter(minutes, *known), cause="deleted_early", **here)
        return w

    # 3.4 per hour are too few, 5.6 are enough. Four more happened an hour before.
    few, enough, all_time, later = (65, 115, 3 / 64), (0, 115, 3 / 64), (0, 115, 0.5), (65, 115, 0.5)
    w = losing(
        115, lost_before=([(5, 5.5, 4), few], [later], []), expired_before=([later], [(5, 5.5, 4), few], []), few_lost=([enough], [all_time], []), few_expired=([all_time], [enough], []),
        known_before=([later], [later], [(5, 5.5, 1)]), known=([(50, 115, 0.5)], [(50, 115, 0.5)], [(47, 47.5, 1)]), nodes=([(0, 115, 1 / 32)], [all_time], []), redis=([all_time], [(0, 115, 1 / 32)], []),
    )
    # The counts of two nodes and of two Redis are added.
    lost(w, (0, 115, 1 / 32), lock_namespace="nodes", instance="b:9190")
    w.namespace("redis", instance="b:9190", logs=False, redis="second")
    w.put("redis_lock_expirations_total", counter(115, (0, 115, 1 / 32)), **{**SEEN, "lock_namespace": "redis", "instance": "b:9190", "redis": "second"})
    short = "few_lost few_expired nodes redis"
    case("beside", "locks are lost while locks expire: an hour of it", w, {40: [], 80: named({"TtlTooShort/warning": short}), 100: named({"TtlTooShort/warning": short}), 115: named({"TtlTooShort/warning": f"{short} known_before"})}, every=2.5)
    # Four events in an hour make at least 12 slices. Many events at once make fewer, and two bursts
    # in two hours do not count.
    rare, bursts = [(minute, minute + 0.5, 2) for minute in (5, 20, 35, 50)], [(5, 7, 3), (75, 77, 3)]
    case("beside", "locks are lost while locks expire: how often", losing(95, rare=(rare, rare, []), bursts=(bursts, bursts, [])), {40: [], 70: named({"TtlTooShort/warning": "rare"}), 93: named({"TtlTooShort/warning": "rare"})})
