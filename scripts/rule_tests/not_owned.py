"""RedisLockNotOwnedRatioHigh: lost locks as a share of releases and renewals."""

from .builders import NOT_OWNED, case, lost, released, renewed, usual
from .world import World


def not_owned():
    w = usual(60)
    # What a healthy deployment shows, and some noise far below every limit.
    lost(w, (5, 5.5, 1), (30, 30.5, 2))
    case("not_owned", "a healthy hour with single events", w, {5.5: [], 8: [], 30.5: [], 33: [], 60: []})

    w = usual(60)
    lost(w, (10, 25, 40))
    released(w, (0, 10, 20), (25, 60, 20))
    renewed(w, (0, 10, 20), (25, 60, 20))
    # Bad slices from 10.5 on, the tenth at 15.0. After the end at 25, the last condition needs
    # failures within 10 minutes and holds until 34.5. keep_firing_for adds 10.
    case("not_owned", "everything fails: after 4.5 minutes, and resolved 20 minutes after the end", w,
         {14.5: [], 15: [NOT_OWNED], 36: [NOT_OWNED], 44: [NOT_OWNED], 46: [], 60: []})

    w = usual(40)
    lost(w, (10, 40, 17))
    case("not_owned", "30 percent fail: after 7 minutes", w, {17: [], 18: [NOT_OWNED], 40: [NOT_OWNED]})

    for share, fires in ((1.6, False), (3, True)):
        w = usual(45)
        lost(w, (10, 45, share))
        case("not_owned", f"{share / (40 + share):.1%} fail, the threshold is 5 %", w, {17: [], 20: [NOT_OWNED] if fires else [], 45: [NOT_OWNED] if fires else []})

    w = usual(45, config={"not_owned_ratio": 0.2})
    lost(w, (10, 45, 8))
    w.namespace("strictly", config={"not_owned_ratio": 0.01})
    lost(w, (10, 45, 1), lock_namespace="strictly")
    case("not_owned", "thresholds of the configuration: 17 % of 20 % allowed, 2.4 % of 1 %", w,
         {17: [], 20: ["NotOwnedRatioHigh/critical lock_namespace=strictly"], 45: ["NotOwnedRatioHigh/critical lock_namespace=strictly"]})

    w = usual(45, severity="ticket")
    lost(w, (10, 45, 17))
    case("not_owned", "a namespace for tickets", w, {17: [], 18: ["NotOwnedRatioHigh/warning lock_namespace=jobs"]})

    # Low traffic: nothing succeeds, one failure every two minutes. The fifth within 10 minutes
    # decides, not the first.
    for failures, fires in ((4, False), (6, True)):
        w = usual(60, traffic=0, renewals=0)
        lost(w, *[(10 + 2 * i, 10.5 + 2 * i, 1) for i in range(failures)])
        case("not_owned", f"a tiny namespace fails completely: {failures} failures", w,
             {17: [], 20: [NOT_OWNED] if fires else [], 22: [NOT_OWNED] if fires else [], 24: [NOT_OWNED] if fires else [], 60: []})
    w = usual(60, traffic=0, renewals=0, config={"min_failures": 2})
    lost(w, *[(10 + 1.5 * i, 10.5 + 1.5 * i, 1) for i in range(4)])
    case("not_owned", "a tiny namespace with min_failures 2", w, {14: [], 17: [NOT_OWNED]})
    # Quick condition: at least five failures within 5 minutes, one each minute. Four are too few
    # for every condition.
    for failures, fires in ((4, False), (7, True)):
        w = usual(60, traffic=0, renewals=0)
        lost(w, *[(10 + i, 10.5 + i, 1) for i in range(failures)])
        case("not_owned", f"{failures} failures within 5 minutes and nothing else", w, {14.5: [], 16.5: [NOT_OWNED] if fires else [], 25: [NOT_OWNED] if fires else []})
    # The quick condition needs half of all operations; 5.5 minutes do not contain 15 bad slices.
    for share, fires in ((30, False), (60, True)):
        w = usual(50)
        lost(w, (10, 15.5, share))
        case("not_owned", f"{share / (40 + share):.0%} fail for 5.5 minutes", w, {14.5: [], 15.5: [NOT_OWNED] if fires else [], 18: [NOT_OWNED] if fires else [], 50: []})
    # The steady condition needs 15 bad slices.
    w = usual(50)
    lost(w, (10, 15, 12))
    case("not_owned", "23 percent fail for 5 minutes: 14 slices are no page", w, {14.5: [], 17: [], 18: [], 20: [], 50: []})
    w = usual(50)
    lost(w, (10, 17, 12))
    case("not_owned", "23 percent fail for 7 minutes: 15 slices are one", w, {17: [], 18: [NOT_OWNED], 20: [NOT_OWNED]})
    # Failovers of 60 s, 90 s and 120 s, with retries that make 20 failures of each lost lock.
    for length in (1, 1.5, 2):
        w = usual(60)
        lost(w, (20, 20 + length, 800))
        case("not_owned", f"a failover of {length * 60:.0f} s with a retry storm", w, {m: [] for m in (20.5, 21, 22, 23, 24, 25, 26, 30, 40, 60)})
    w = usual(60)
    lost(w, (10, 11, 800), (25, 26, 800))
    case("not_owned", "two failovers within half an hour", w, {m: [] for m in (11, 13, 26, 27, 28, 29, 35, 45)})
    w = usual(70)
    lost(w, *[(10 + 5 * i, 11 + 5 * i, 800) for i in range(6)])
    # A burst of 60 s makes 4 to 6 bad slices (the burst, plus 2 minutes with or without one
    # sample). The fourth or fifth burst brings the twentieth slice.
    case("not_owned", "bursts of 60 s every 5 minutes are an incident", w, {22: [], 25: [], 33: [NOT_OWNED], 40: [NOT_OWNED], 47: [NOT_OWNED], 60: []})
    w = usual(70)
    lost(w, *[(10 + 8 * i, 10.5 + 8 * i, 800) for i in range(4)])
    case("not_owned", "four single moments within half an hour are none", w, {m: [] for m in (11, 19, 27, 35, 36, 37, 40, 50)})
    # The recurrent condition also needs a mean above the threshold and enough failures.
    w = usual(70)
    lost(w, *[(10 + 5 * i, 11 + 5 * i, 18) for i in range(6)])
    case("not_owned", "small bursts every 5 minutes, 8 % on the whole where 10 % are twice the threshold", w, {30: [], 40: [], 45: []})
    w = usual(70, traffic=0, renewals=0)
    lost(w, *[(10 + 6.5 * i, 10.5 + 6.5 * i, 1) for i in range(4)])
    case("not_owned", "four failures within half an hour and nothing else", w, {30: [], 32: [], 35: [], 40: []})
    w = usual(70, traffic=0, renewals=0)
    lost(w, *[(10 + 3 * i, 10.5 + 3 * i, 1) for i in range(10)])
    case("not_owned", "a failure every 3 minutes and nothing else", w, {19: [], 34: [NOT_OWNED], 45: [NOT_OWNED]})

    # Which exporter sees what.
    w = World(40).exporter(redis=False).namespace(redis=None)
    lost(w, (10, 40, 40))
    case("not_owned", "only logs are read: no ratio, and no past for the rate", w, {20: [], 40: []})
    w = usual(40, source="scan")
    lost(w, (10, 40, 40))
    case("not_owned", "only passes: successes are a lower bound, no ratio", w, {20: [], 40: []})
    w = World(40).exporter(logs=False).namespace(logs=False)
    case("not_owned", "only the keyspace: nothing is lost", w, {20: [], 40: []})
    w = World(40).exporter().exporter("b:9190", job="logs", redis=False).namespace()
    w.namespace(instance="b:9190", job="logs", redis=None)
    lost(w, (10, 40, 17), instance="b:9190", job="logs")
    case("not_owned", "logs and keyspace are watched by different jobs", w, {17: [], 18: [NOT_OWNED]})
    # 3.0 of 40 + 3.0 is 7 %. If the keyspace were added twice it would be 3.6 %, and the same with
    # one log left out.
    w = World(40).exporter().exporter("b:9190").namespace().namespace(instance="b:9190")
    lost(w, (10, 40, 1.5))
    lost(w, (10, 40, 1.5), instance="b:9190")
    case("not_owned", "two exporters: logs are added up, the keyspace is not", w, {16: [], 20: [NOT_OWNED]})
    # 3.0 of 80 + 3.0 is 3.6 %. With only the larger Redis it would be 7 %.
    w = World(40).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", redis="second", logs=False)
    lost(w, (10, 40, 3))
    case("not_owned", "two Redis: their successes are added up", w, {20: [], 40: []})
    w = World(40).exporter().exporter("b:9190").namespace().namespace(instance="b:9190", redis="second", logs=False, source="scan")
    lost(w, (10, 40, 40))
    case("not_owned", "two Redis, one without all changes: no ratio", w, {20: [], 40: []})
    w = World(40).exporter().exporter("b:9190").namespace(source="scan").namespace(instance="b:9190", logs=False)
    lost(w, (10, 40, 17))
    case("not_owned", "two exporters on one Redis, one sees all changes", w, {17: [], 18: [NOT_OWNED]})
    w = World(40).exporter(cluster="east").exporter("b:9190", cluster="west").namespace(cluster="east").namespace(instance="b:9190", cluster="west")
    lost(w, (10, 40, 3), cluster="east")
    case("not_owned", "two clusters with the same namespace", w, {16: [], 20: ["NotOwnedRatioHigh/critical lock_namespace=jobs cluster=east"]})
    w = usual(40).namespace("calm").namespace("other", severity="ticket", redis=None)
    lost(w, (10, 40, 17))
    case("not_owned", "one of many namespaces", w, {17: [], 18: [NOT_OWNED]})

    # Interruptions.
    w = usual(50)
    lost(w, (0, 50, 1))
    w.reset(20, "_total")
    case("not_owned", "counters begin again: no failure", w, {20: [], 21: [], 25: [], 30: [], 50: []})
    w = usual(50)
    lost(w, (10, 50, 17))
    w.gone(16, 17.5)
    case("not_owned", "a gap of 90 s in an incident: later, not never", w, {18: [], 21: [NOT_OWNED], 50: [NOT_OWNED]})
    w = usual(50)
    lost(w, (0, 50, 40))
    case("not_owned", "Prometheus starts in the middle of an incident", w, {0.5: [], 1: [], 4: [], 8.5: [NOT_OWNED], 30: [NOT_OWNED], 50: [NOT_OWNED, "FailureBudgetBurn/warning lock_namespace=jobs"]})
    w = usual(60)
    lost(w, (10, 60, 17))
    w.gone(25)
    # keep_firing_for lasts until the absence of the exporter is known: 10 minutes and one sample.
    case("not_owned", "the exporter dies in an incident", w,
         {24: [NOT_OWNED], 34: [NOT_OWNED], 35: ["ExporterAbsent/critical missing=all"], 60: ["ExporterAbsent/critical missing=all"]})
