"""RedisLockFailureBudgetBurn: a small share of lost locks that continues for hours."""

from .builders import case, lost, usual
from .world import World


def burn():
    ticket = "FailureBudgetBurn/warning lock_namespace=jobs"
    for share, fires in ((0.9, False), (1.2, True)):
        w = usual(200)
        lost(w, (10, 200, share))
        case("not_owned", f"slow burn: {share / (40 + share):.1%} for hours, half the threshold is 2.5 %", w, {50: [], 90: [ticket] if fires else [], 150: [ticket] if fires else [], 200: [ticket] if fires else []})
    # 60 slices are half an hour: from 10.5 to 40.0, and `for` adds 15 minutes.
    w = usual(200, traffic=4, renewals=4)
    lost(w, (10, 130, 0.32))
    case("not_owned", "slow burn: when it begins and ends", w, {54.5: [], 58: [ticket], 130: [ticket], 150: [ticket], 195: []})
    w = usual(240)
    lost(w, (10, 11, 4000), (100, 101, 4000), (190, 191, 4000))
    case("not_owned", "slow burn: three failovers in hours are none", w, {m: [] for m in (12, 30, 60, 110, 150, 200, 215, 240)})
    # 18 failures within hours are fewer than 4 times min_failures, 25 are not.
    for every, fires in ((7, False), (5, True)):
        w = usual(140, traffic=0, renewals=0, config={"not_owned_ratio": 0.5})
        lost(w, *[(10 + every * i, 10.5 + every * i, 1) for i in range(int(126 / every))])
        case("not_owned", f"slow burn: one failure every {every} minutes", w, {60: [], 135: [ticket] if fires else []})
    # 2 % in most slices, and a spike every 30 minutes that raises the ratio of the long window to
    # 3.5 %.
    w = usual(115)
    lost(w, (5, 115, 0.8), *[(10 + 30 * i, 10.5 + 30 * i, 40) for i in range(4)])
    case("not_owned", "slow burn: on the whole, but not in enough slices", w, {60: [], 90: [], 112: []})
    # It was bad for 50 minutes and is over: the window of 6 hours alone is no ticket.
    w = usual(200)
    lost(w, (10, 60, 1.8))
    case("not_owned", "slow burn: what is over for an hour is no ticket", w, {58: [ticket], 100: [ticket], 150: [], 200: []})


def long_burn():
    """Cases of many hours, evaluated every 2.5 minutes: 6 hours then have 144 slices, and 60 slices
    are 2.5 hours."""
    ticket = "FailureBudgetBurn/warning lock_namespace=jobs"

    def hours(name, world, firing):
        case("not_owned", f"slow burn for hours: {name}", world, firing, every=2.5)

    def every_5_minutes(begin, end, amount):
        """Failures in two minutes of five, so that every second slice is bad. The average is 0.4
        times the amount."""
        return [(minute, minute + 2, amount) for minute in range(begin, end, 5)]

    w = usual(585)
    lost(w, (10, 585, 1.25))
    case("not_owned", "slow burn for hours: 3 %", w, {150: [], 170: [], 182.5: [ticket], 575: [ticket]}, every=2.5)
    w = World(185).exporter().exporter("b:9190", redis=False).namespace().namespace(instance="b:9190", redis=None)
    lost(w, (10, 185, 0.7))
    lost(w, (10, 185, 0.7), instance="b:9190")
    hours("3.4 % by the logs of two exporters", w, {182.5: [ticket]})
    w = usual(460)
    lost(w, *every_5_minutes(10, 330, 4), (330, 460, 0.73))
    hours("3.8 % in every second slice, then 1.8 %", w, {250: [], 300: [], 328: [ticket], 372.5: [ticket], 390: [], 450: []})
    # Above the threshold for half an hour, and less than 2.5 % in 6 hours.
    for where, times, other in (("one Redis", 1, None), ("two Redis", 2, {"redis": "second"}), ("a twin that sees a fifth", 1, {"traffic": 4, "renewals": 4})):
        w = usual(450)
        if other:
            w.exporter("b:9190", logs=False).namespace(instance="b:9190", logs=False, **other)
        lost(w, *every_5_minutes(10, 400, 2.25 * times), (400, 450, 1.45 * times))
        hours(f"{where}: 2.2 % in every second slice, then 3.5 %", w, {425: [], 448: []})
    w = usual(605)
    lost(w, (1, 60, 10), (420, 605, 1.25))
    hours("20 % ten hours ago, 3 % for 3 hours", w, {60: [], 600: []})
    w = usual(545)
    lost(w, (1, 60, 10), (420, 540, 4.5))
    hours("20 % nine hours ago, 10 % for 2 hours", w, {60: [], 538: []})
    w = usual(330, traffic=0, renewals=0, config={"min_failures": 0.01})
    lost(w, *[(minute + 1.5, minute + 2, 1 / 64) for minute in range(10, 330, 5)])
    hours("hardly anything, and it fails", w, {300: [], 327.5: [ticket]})
