"""The optional rules on Cordum's own metrics (cordum.rules.yml)."""

from .builders import case
from .world import World, counter, gauge


def cordum():
    own = {"job": "cordum", "instance": "s:9090"}

    def add(name, values_by_series, firing):
        w = World(250)
        for metric, labels, values in values_by_series:
            w.put(metric, values, **labels, **own)
        case("cordum", name, w, firing, rules="cordum.rules.yml")

    wait = "cordum_scheduler_scheduler_job_lock_wait_seconds"
    # The p99 of a bucket from 0.025 to 0.05 is 0.04975, from 0.05 to 0.1 it is 0.0995, and from 0.1
    # to 0.25 it is 0.2485.
    for name, later, per_step, fires in (("0.25", 0.25, 10, True), ("0.1", 0.1, 10, False), ("0.25, few", 0.25, 0.5, False)):
        series = [(wait + "_bucket", {"le": le}, counter(250, (0, 200, per_step if float(le) >= 0.05 else 0), (200, 250, per_step if float(le) >= later else 0)))
                  for le in ("0.025", "0.05", "0.1", "0.25", "1", "+Inf")]
        series.append((wait + "_count", {}, counter(250, (0, 250, per_step))))
        add(f"waits of up to {name} s after 0.05 s", series, {199: [], 214: [], 245: ["CordumWaitGrowing/warning job=cordum"] if fires else []})
    for before, after, fires in ((1, 8, True), (1, 3, False), (6, 10, False)):
        add(f"from {before} stale jobs to {after}", [("cordum_scheduler_scheduler_stale_jobs", {"state": "running"}, gauge(250, (0, before), (200, after)))],
            {199: [], 212: [], 248: ["CordumStaleJobsGrowing/warning job=cordum"] if fires else []})
    for before, after, fires in ((0, 1, True), (0, 0.125, False), (0.5, 0.75, False)):
        add(f"from {before * 60:.0f} replays in half an hour to {after * 60:.0f}", [("cordum_scheduler_scheduler_orphan_replayed_total", {"topic": "t"}, counter(250, (0, 200, before), (200, 250, after)))],
            {199: [], 235: [], 249: ["CordumReplaysGrowing/warning job=cordum"] if fires else []})
    add("a burst of replays", [("cordum_scheduler_scheduler_orphan_replayed_total", {"topic": "t"}, counter(250, (200, 201, 100)))], {m: [] for m in (205, 229, 232, 240, 249)})


def cordum_limits():
    """Each number and duration of the three trends, from both sides. `waits`, `stale` and `replays`
    make series from periods (begin, end, level)."""
    def series(metric, labels, values, instance="s:9090"):
        return metric, {"job": "cordum", "instance": instance, **labels}, values

    def waits(minutes, *periods, per_sample=10, **where):
        bounds = ("0.025", "0.05", "0.1", "0.12", "0.25", "1", "+Inf")
        name = "cordum_scheduler_scheduler_job_lock_wait_seconds"
        buckets = [series(f"{name}_bucket", {"le": le}, counter(minutes, *[(begin, end, per_sample if float(le) >= bound else 0) for begin, end, bound in periods]), **where) for le in bounds]
        return [*buckets, series(f"{name}_count", {}, counter(minutes, *[(begin, end, per_sample) for begin, end, _ in periods]), **where)]

    def stale(minutes, *periods, state="running", **where):
        return [series("cordum_scheduler_scheduler_stale_jobs", {"state": state}, gauge(minutes, (0, 0), *[(begin, value) for begin, _, value in periods]), **where)]

    def replays(minutes, *periods, topic="t", **where):
        """Levels are replays per half hour."""
        return [series("cordum_scheduler_scheduler_orphan_replayed_total", {"topic": topic}, counter(minutes, *[(begin, end, level / 60) for begin, end, level in periods]), **where)]

    def add(name, every, parts, firing):
        w = World(max(firing) + 1)
        for metric, labels, values in parts:
            w.put(metric, values, **labels)
        case("cordum", name, w, firing, rules="cordum.rules.yml", every=every)

    # For each trend: its alert; the usual level, more than twice that level, and less than twice;
    # below and above the floor; minutes until the level counts, `for`, and minutes until it no
    # longer counts.
    for kind, alert, low, high, less, below, above, begins, lasts, ends in (
        (waits, "CordumWaitGrowing", 0.1, 0.25, 0.12, 0.1, 0.12, 1, 15, 30),
        (stale, "CordumStaleJobsGrowing", 8, 18, 14, 4.5, 5.5, 19, 15, 11),
        (replays, "CordumReplaysGrowing", 15, 37.5, 26.25, 9.375, 11.25, 10, 35, 20),
    ):
        fires = [f"{alert}/warning job=cordum"]
        word = alert.removeprefix("Cordum").removesuffix("Growing").lower()
        nothing = 0.025 if kind is waits else 0
        # From nothing to a level that soon reaches the floor.
        sudden = {waits: 0.25, stale: 8, replays: 30}[kind]
        fired, ended = 100 + begins + lasts, 200 + ends + 15
        add(f"{word}: when it begins and ends", 0.5, kind(250, (0, 100, nothing), (100, 200, sudden), (200, 250, nothing)),
            {fired - 4: [], fired + 3: fires, ended - 4: fires, ended + 3: []})
        add(f"{word}: twice the usual", 2.5, kind(230, (0, 150, low), (150, 230, high)), {150: [], 225: fires})
        add(f"{word}: less than twice the usual", 2.5, kind(230, (0, 150, low), (150, 230, less)), {150: [], 225: []})
        add(f"{word}: below the floor", 2.5, kind(230, (0, 150, nothing), (150, 230, below)), {150: [], 225: []})
        add(f"{word}: above the floor", 2.5, kind(230, (0, 150, nothing), (150, 230, above)), {150: [], 225: fires})
        # The usual level is the median.
        add(f"{word}: a third of the past was as bad", 2.5, kind(310, (0, 60, high), (60, 240, low), (240, 310, high)), {235: [], 305: fires})
        add(f"{word}: three fifths of the past were as bad", 2.5, kind(310, (0, 150, high), (150, 240, low), (240, 310, high)), {235: [], 305: []})
        # The past is one day that ends an hour ago, not half a day and not two days.
        add(f"{word}: more than half of 20 hours were as bad", 5, kind(1300, (0, 700, high), (700, 1230, low), (1230, 1300, high)), {1225: [], 1300: []})
        add(f"{word}: more than half of 36 hours were as bad, less than half of a day", 5, kind(2200, (0, 1250, high), (1250, 2130, low), (2130, 2200, high)), {2125: [], 2200: fires})
        add(f"{word}: a past of an hour and a half", 2.5, kind(117.5, (0, 40, low), (40, 117.5, high)), {60: [], 115: fires})
        add(f"{word}: a past of ten minutes, not of forty", 2.5, kind(70, (0, 20, low), (20, 70, high)), {55: [], 70: []})

    # What is added over replicas.
    fires = ["CordumWaitGrowing/warning job=cordum"]
    add("waits: of two replicas, the one with little to do is slow", 2.5, waits(200, (0, 200, 0.05), per_sample=19) + waits(200, (0, 150, 0.05), (150, 200, 0.25), per_sample=1, instance="r:9090"), {150: [], 195: fires})
    add("waits: two replicas have 30 in half an hour each", 2.5, [part for instance in ("s:9090", "r:9090") for part in waits(200, (0, 150, 0.05), (150, 200, 0.25), per_sample=0.5, instance=instance)], {150: [], 195: fires})
    add("replays: 6 in half an hour of each of two topics", 2.5, replays(230, (150, 230, 5.625)) + replays(230, (150, 230, 5.625), topic="u"), {150: [], 225: ["CordumReplaysGrowing/warning job=cordum"]})
    add("stale jobs: 4 of each of two states", 2.5, stale(230, (150, 230, 4)) + stale(230, (150, 230, 4), state="queued"), {150: [], 225: ["CordumStaleJobsGrowing/warning job=cordum"]})
    add("stale jobs: two replicas count the same 4", 2.5, stale(230, (150, 230, 4)) + stale(230, (150, 230, 4), instance="r:9090"), {150: [], 225: []})
    # Several jobs at the same time: one grows, one was always so, and one waits too rarely.
    def of_job(job, parts):
        return [(metric, {**labels, "job": job}, values) for metric, labels, values in parts]

    add("jobs beside each other", 2.5, [part for job, before, after, per_sample in (("grows", 0, 1, 10), ("always", 1, 1, 10), ("seldom", 0, 1, 0.5)) for part in of_job(job, [
        *waits(230, (0, 150, (0.05, 0.25)[before]), (150, 230, (0.05, 0.25)[after]), per_sample=per_sample), *stale(230, (0, 150, 8 * before), (150, 230, 8 * after)), *replays(230, (0, 150, 30 * before), (150, 230, 30 * after)),
    ])], {150: [], 225: [f"Cordum{word}Growing/warning job={job}" for word, jobs in (("Wait", "grows"), ("StaleJobs", "grows seldom"), ("Replays", "grows seldom")) for job in jobs.split()]})
    add("stale jobs: one of two replicas counts them", 2.5, stale(230, (150, 230, 8)) + stale(230, (0, 230, 0), instance="r:9090"), {150: [], 225: ["CordumStaleJobsGrowing/warning job=cordum"]})
