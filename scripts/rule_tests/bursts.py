"""A burst of failures shorter than 150 s cannot page."""

from .builders import JOBS, case, failed_renewals, lost, released, renewed, usual
from .world import World, counter, growth


def arithmetic():
    """A burst shorter than 150 s cannot page. First from 30 s to 120 s with scrapes every 30 s,
    with failures alone or with everything failing, in every lock namespace that may page, with 1
    and with 10 000 failures per sample. Then up to 149 s with scrapes every 15 s, starting at
    different moments between two scrapes, and the number of bad slices itself."""
    quiet = {minute / 2: [] for minute in range(38, 80, 4)}
    event = "AbandonedEvent/warning lock_namespace=jobs"
    twice = "DuplicateTerminalState/warning lock_namespace=jobs"
    for samples in (1, 2, 3, 4):
        for per_sample in (1, 10000):
            for stops in (False, True):
                end = 20 + samples * 0.5
                w = usual(40, policy="continue")
                burst = (20, end, per_sample)
                lost(w, burst)
                failed_renewals(w, burst)
                w.put("redis_lock_unlocked_work_total", counter(40, burst), **JOBS)
                if stops:
                    released(w, (0, 20, 20), (end, 40, 20))
                    renewed(w, (0, 20, 20), (end, 40, 20))
                case("arithmetic", f"a burst of {samples * 30} s, {per_sample} failures a sample{', nothing succeeds' if stops else ''}", w, quiet)
    most = lambda series, window: f"max(max_over_time(sum_over_time({series}{{CLUSTER}}[{window}])[25m:30s]))"
    few = lambda series, window="5m30s": f"({most(series, window)} >= bool 3) * ({most(series, window)} <= bool 9)"
    losses = ("not_owned_total", {"operation": "release"}), ("renewal_failures_total", {"reason": "redis_unavailable"}), ("unlocked_work_total", {}), ("acquire_failures_total", {"reason": "redis_unavailable"})
    for seconds in (105, 149):
        for phase in (0, 0.1, 0.2, 0.3, 0.45):
            for amount in (7, 100000):
                w = World(45, step=0.25).exporter().namespace(policy="continue", traffic=0, renewals=0)
                for metric, labels in losses:
                    w.put(f"redis_lock_{metric}", growth(45, 20 + phase, seconds, amount, step=0.25), **labels, **JOBS)
                slices = [few(f"lock_namespace:redis_lock_{kind}:slice_bad") for kind in ("not_owned", "renewal_failures", "unlocked_work", "acquire_failures")]
                case("arithmetic", f"{seconds} s from {phase * 60:.0f} s after a scrape on, {amount} failures and nothing else", w, quiet, holds=slices)
    # Only logs: the same after a quiet past.
    for phase in (0, 0.2, 0.45):
        w = World(95, step=0.25).exporter(redis=False).namespace(redis=None, policy="continue")
        for metric, labels in losses:
            w.put(f"redis_lock_{metric}", growth(95, 75 + phase, 149, 100000, step=0.25), **labels, **JOBS)
        slices = [few(f"lock_namespace:redis_lock_{kind}:slice_frequent", "10m") for kind in ("not_owned", "renewal_failures", "acquire_failures")]
        case("arithmetic", f"only logs: 149 s from {phase * 60:.0f} s after a scrape on", w, {minute / 2: [] for minute in range(150, 191, 4)}, holds=slices)
    # Events also cause tickets, and no page.
    w = usual(40, policy="continue")
    w.put("redis_lock_abandonments_total", counter(40, (20, 22.5, 1000)), **JOBS)
    w.put("redis_lock_conflicting_writes_total", counter(40, (20, 22.5, 1000)), kind="duplicate_terminal_state", **JOBS)
    case("arithmetic", "a burst of 150 s of abandonments and double work", w, {m: [event, twice] for m in (21, 23, 25, 27, 30)})
    # Longer bursts can page.
    w = usual(40)
    lost(w, (20, 24, 10000))
    released(w, (0, 20, 20), (24, 40, 20))
    renewed(w, (0, 20, 20), (24, 40, 20))
    case("arithmetic", "a burst of 240 s in which nothing succeeds can page", w, {24: [], 25.5: ["NotOwnedRatioHigh/critical lock_namespace=jobs"]})
