"""The expected annotations of each alert, for the worlds of annotations.py:
{world: [(alert, summary, description, dashboard_url, exporter_url)]}.

Alerts are written as in `firing` of a case. The sentences repeat those of the rules on purpose: this
detects a template that breaks, and a number that is not filled in. After a change of an annotation,
run the tests, read what they got, and copy it here."""

TEXTS = {
    "texts about lock namespaces and Redis": [
        (
            "Abandoned/critical cluster=east lock_namespace=quit",
            "Holders repeatedly give up their locks.",
            "In lock namespace quit, 30 holders gave up their lock in 15 minutes after failed "
            "renewals, and stopped their work. The cause is unknown; events in Redis in 30 "
            "minutes: expirations 0, failovers or restarts 4. First: check whether Redis "
            "accepts writes, then what happened to the stopped work.",
            "/d/redis-lock-namespace?var-lock_namespace=quit", "http://a:9190/#/namespace/quit",
        ),
        (
            "AbandonedEvent/warning cluster=east lock_namespace=quit", "A holder gave up its lock.",
            "In lock namespace quit, 30 holders gave up their lock in 15 minutes after failed "
            "renewals. This is normal once after a failover of Redis. First: check that another "
            "worker did the stopped work.",
            "/d/redis-lock-namespace?var-lock_namespace=quit", "http://a:9190/#/namespace/quit",
        ),
        (
            "AcquireFailing/critical cluster=east lock_namespace=stuck",
            "Locks cannot be acquired although nobody holds them.",
            "In lock namespace stuck, 75% of the attempts to acquire a lock in the last 10 "
            "minutes failed. Attempts that found the lock taken do not count. Most frequent "
            "reason: failover. First: check whether Redis answers and accepts writes from these "
            "programs, then whether one program or all programs fail.",
            "/d/redis-lock-namespace?var-lock_namespace=stuck", "http://a:9190/#/namespace/stuck",
        ),
        (
            "AcquireFailing/warning cluster=east lock_namespace=bare",
            "Locks cannot be acquired although nobody holds them.",
            "In lock namespace bare, 33.33% of the attempts to acquire a lock in the last 10 "
            "minutes failed. Attempts that found the lock taken do not count. Most frequent "
            "reason: redis_unavailable. First: check whether Redis answers and accepts writes "
            "from these programs, then whether one program or all programs fail.",
            "/d/redis-lock-namespace?var-lock_namespace=bare", "http://a:9190/#/namespace/bare",
        ),
        (
            "DuplicateTerminalState/critical cluster=east lock_namespace=twice",
            "Work was finished twice.",
            "In lock namespace twice, 40 pieces of work got a second final state in 30 minutes: "
            "two workers did the same work. The cause is unknown; events in Redis in 30 "
            "minutes: expirations 0, failovers or restarts 4. First: find the work in the list "
            "of incidents, and undo or reconcile its duplicate effects.",
            "/d/redis-lock-namespace?var-lock_namespace=twice", "http://a:9190/#/namespace/twice",
        ),
        (
            "ExpiryRatioHigh/warning cluster=east lock_namespace=expire",
            "Locks expire instead of being released.",
            "In lock namespace expire, 45.45% of the holds that ended in 30 minutes expired. "
            "The holders died or were too slow. They may have continued without the lock; many "
            "libraries do not log this. First: compare the hold times with the TTL. If the "
            "programs let these locks expire on purpose, set `style: loop`.",
            "/d/redis-lock-namespace?var-lock_namespace=expire", "http://a:9190/#/namespace/expire",
        ),
        (
            "FailoverFlapping/warning cluster=east redis=main", "Redis fails over repeatedly.",
            "Redis main failed over or restarted 4 times in an hour. Locks may be lost each "
            "time. First: check memory, disk and network of the primary, and the timeouts of "
            "Sentinel or of the cluster.",
            "/d/redis-lock-overview", "http://a:9190/",
        ),
        (
            "FailoverObserved/info cluster=east redis=main", "Redis failed over or restarted.",
            "Redis main has another primary, or its primary restarted. Locks that were not "
            "replicated are lost. Some failures at this time are normal. First: do nothing if "
            "no other alert follows.",
            "/d/redis-lock-overview", "http://a:9190/",
        ),
        (
            "FenceRegression/critical cluster=east lock_namespace=fence",
            "A fence counter went backwards.",
            "In lock namespace fence, fence counters went backwards 1 times in 15 minutes. "
            "Storage that checks fences may accept a delayed holder and reject the current one. "
            "Usual reasons: Redis lost writes (failover, restore, eviction), or someone deleted "
            "the counter. First: find the highest fence that the protected storage has "
            "recorded, and set the counter above it before more work runs.",
            "/d/redis-lock-namespace?var-lock_namespace=fence", "http://a:9190/#/namespace/fence",
        ),
        (
            "HeldTooLong/warning cluster=east lock_namespace=slow redis=main",
            "A lock is held for too long.",
            "In lock namespace slow, a lock has been held for 20m 0s. Its holder hangs but "
            "still renews, or the work takes longer than `max_hold`. First: list the locks of "
            "the lock namespace, the longest hold first, and check the holder.",
            "/d/redis-lock-namespace?var-lock_namespace=slow", "http://a:9190/#/namespace/slow",
        ),
        (
            "LeaderAbsent/critical cluster=east lock=app:leader lock_namespace=leader redis=main",
            "Nobody holds a lock that should always be held.",
            "Nobody has held the lock app:leader of lock namespace leader for 20m 0s: the work "
            "of this loop does not run. Redis main is reachable, so the programs do not try to "
            "acquire the lock, or they fail. First: check whether a replica of the program "
            "runs, and what it logs.",
            "/d/redis-lock-namespace?var-lock_namespace=leader", "http://a:9190/#/namespace/leader",
        ),
        (
            "MassRenewalOverdue/critical cluster=east lock_namespace=late",
            "Most locks are not renewed in time.",
            "In lock namespace late, the renewal of 60% of the held locks is overdue. These "
            "locks will be lost when their TTL runs out. First: check whether the holders hang "
            "(pauses, CPU limits) or cannot reach Redis.",
            "/d/redis-lock-namespace?var-lock_namespace=late", "http://a:9190/#/namespace/late",
        ),
        (
            "NotOwnedRatioHigh/critical cluster=east lock_namespace=lost",
            "Holders lose their locks while they still work.",
            "In lock namespace lost, 29.82% of the releases and renewals in the last 10 minutes "
            "found that the lock was lost. Two workers may have done the same work. Likely "
            "cause: renewals_stopped. First: open the page of this lock namespace "
            "(exporter_url) and check whether one program or all programs lose locks.",
            "/d/redis-lock-namespace?var-lock_namespace=lost", "http://a:9190/#/namespace/lost",
        ),
        (
            "OwnerChurnHigh/warning cluster=east lock_namespace=churn",
            "Locks change their owner without a release.",
            "In lock namespace churn, locks changed their owner 200 times in 30 minutes without "
            "a release, in more than 10% of the acquisitions. The previous owners let them "
            "expire, or their end was not observed. The cause is unknown; events in Redis in 30 "
            "minutes: expirations 0, failovers or restarts 4, owner changes 196. First: check "
            "whether holders crash, hang, or work longer than the TTL.",
            "/d/redis-lock-namespace?var-lock_namespace=churn", "http://a:9190/#/namespace/churn",
        ),
        (
            "OwnerChurnHigh/warning cluster=east lock_namespace=relay",
            "Locks change their owner without a release.",
            "In lock namespace relay, locks changed their owner 300 times in 30 minutes without "
            "a release: 5.0 times per TTL and lock, where expiration allows one. Several "
            "replicas may work at the same time. The cause is unknown; events in Redis in 30 "
            "minutes: expirations 0, failovers or restarts 4, owner changes 294. First: find "
            "the program that overwrites the key of the current owner (`SET` without `NX`).",
            "/d/redis-lock-namespace?var-lock_namespace=relay", "http://a:9190/#/namespace/relay",
        ),
        (
            "RedisDown/critical cluster=east redis=second scope=all",
            "The Redis with the locks is unreachable.",
            "No exporter has reached Redis second for 5 minutes: 0 of 1 known primaries are "
            "connected. Most likely programs cannot acquire or renew locks either. Until Redis "
            "is back, nothing is known about its locks. First: check whether Redis runs and has "
            "a primary, then whether only the exporter cannot reach it.",
            "/d/redis-lock-overview", "http://b:9190/",
        ),
        (
            "ReleasedEarly/warning cluster=east lock_namespace=early",
            "Locks of a loop are released early.",
            "In lock namespace early, 20 locks of a loop were deleted in the last hour before "
            "their TTL ran out. Two replicas may work in the same period. First: find the "
            "program, script or person that deletes these keys.",
            "/d/redis-lock-namespace?var-lock_namespace=early", "http://a:9190/#/namespace/early",
        ),
        (
            "RenewalFailureRatioHigh/critical cluster=east lock_namespace=renew",
            "Holders cannot renew their locks.",
            "In lock namespace renew, 28.57% of the renewals in the last 10 minutes failed. The "
            "program continues without the lock: other workers may do the same work. Most "
            "frequent reason: redis_unavailable. First: check whether Redis answers slowly or "
            "rejects writes, then whether one program or all programs fail.",
            "/d/redis-lock-namespace?var-lock_namespace=renew", "http://a:9190/#/namespace/renew",
        ),
        (
            "RenewalFailureRatioHigh/warning cluster=east lock_namespace=stop",
            "Holders cannot renew their locks.",
            "In lock namespace stop, 28.57% of the renewals in the last 10 minutes failed. The "
            "program stops its work when it loses the lock. Most frequent reason: failover. "
            "First: check whether Redis answers slowly or rejects writes, then whether one "
            "program or all programs fail.",
            "/d/redis-lock-namespace?var-lock_namespace=stop", "http://a:9190/#/namespace/stop",
        ),
        (
            "RenewalOverdue/warning cluster=east lock_namespace=late",
            "Some locks are not renewed in time.",
            "In lock namespace late, the renewal of 60% of the held locks is overdue. The share "
            "was above 10% for most of the last 15 minutes. First: list the overdue locks and "
            "check their holders.",
            "/d/redis-lock-namespace?var-lock_namespace=late", "http://a:9190/#/namespace/late",
        ),
        (
            "TakeoverSlow/warning cluster=east lock_namespace=takeover",
            "Expired locks get a new owner too late.",
            "In lock namespace takeover, 25% of the takeovers in the last hour came later than "
            "`takeover_slo` after the last sign of life of the previous owner. First: check how "
            "often the programs try again, and whether enough replicas run.",
            "/d/redis-lock-namespace?var-lock_namespace=takeover",
            "http://a:9190/#/namespace/takeover",
        ),
        (
            "TtlTooShort/warning cluster=east lock_namespace=short",
            "The TTL is too short for the work.",
            "In lock namespace short, 20 locks were lost in an hour because their TTL ran out. "
            "The observed hold times and renewals require a longer TTL: 1m 30s, renewed every "
            "30s. With the current TTL, a takeover takes at most 30s. First: raise the TTL, or "
            "renew more often. A longer TTL also makes takeovers after a crash slower.",
            "/d/redis-lock-namespace?var-lock_namespace=short", "http://a:9190/#/namespace/short",
        ),
        (
            "UnlockedWork/critical cluster=east lock_namespace=bare",
            "Work runs without its distributed lock.",
            "In lock namespace bare, programs could not acquire a lock and did the work without "
            "it 400 times in 30 minutes. Replicas do not exclude each other. Most frequent "
            "reason: redis_unavailable. First: if duplicate work does damage, run one replica "
            "until locks can be acquired again.",
            "/d/redis-lock-namespace?var-lock_namespace=bare", "http://a:9190/#/namespace/bare",
        ),
        (
            "WithoutTtl/warning cluster=east lock_namespace=eternal", "Locks have no TTL.",
            "In lock namespace eternal, at least 2 locks have had no TTL for 10 minutes. If a "
            "holder died, nobody can acquire its lock. First: check whether the holder is alive "
            "before you release a lock.",
            "/d/redis-lock-namespace?var-lock_namespace=eternal",
            "http://a:9190/#/namespace/eternal",
        ),
    ],
    "texts of alerts that compare with the past, with links": [
        (
            "AcquireFailing/critical cluster=east lock_namespace=rate",
            "Locks cannot be acquired although nobody holds them.",
            "In lock namespace rate, 80 attempts to acquire a lock failed in 10 minutes; the "
            "median before was 0.0. The number of successful attempts is unknown. Attempts that "
            "found the lock taken do not count. Most frequent reason: failover. First: check "
            "whether Redis answers and accepts writes from these programs, then whether one "
            "program or all programs fail.",
            "https://grafana.example/d/redis-lock-namespace?var-lock_namespace=rate",
            "https://locks.example/#/namespace/rate",
        ),
        (
            "RenewalFailureRatioHigh/critical cluster=east lock_namespace=rate",
            "Holders cannot renew their locks.",
            "In lock namespace rate, 60 renewals failed in 10 minutes; the median before was "
            "2.5. The number of successful renewals is unknown. The program continues without "
            "the lock: other workers may do the same work. Most frequent reason: "
            "redis_unavailable. First: check whether Redis answers slowly or rejects writes, "
            "then whether one program or all programs fail.",
            "https://grafana.example/d/redis-lock-namespace?var-lock_namespace=rate",
            "https://locks.example/#/namespace/rate",
        ),
        (
            "ContentionHigh/warning cluster=east lock_namespace=busy",
            "Many attempts to acquire a lock find it taken.",
            "In lock namespace busy, 66.67% of the attempts to acquire a lock in the last 30 "
            "minutes found it taken. First: check whether the programs compete for a few keys, "
            "and whether holders keep them longer than before.",
            "https://grafana.example/d/redis-lock-namespace?var-lock_namespace=busy",
            "https://locks.example/#/namespace/busy",
        ),
        (
            "FailureBudgetBurn/warning cluster=east lock_namespace=burn",
            "A small share of locks is lost continuously.",
            "In lock namespace burn, 3.407% of the releases and renewals in the last 6 hours "
            "found that the lock was lost. This is below the limit for a page, but it "
            "continues. The cause is unknown; events in Redis in 30 minutes: expirations 0, "
            "failovers or restarts 0. First: check what changed: deployments, the load of "
            "Redis.",
            "https://grafana.example/d/redis-lock-namespace?var-lock_namespace=burn",
            "https://locks.example/#/namespace/burn",
        ),
        (
            "NotOwnedRateHigh/critical cluster=east lock_namespace=rate",
            "Locks are lost much more often than before.",
            "In lock namespace rate, programs reported 40 lost locks in 10 minutes; the median "
            "before was 0.0. The number of successful operations is unknown, so the share may "
            "be small. The cause is unknown. First: check what changed when this began: "
            "deployments, load, Redis.",
            "https://grafana.example/d/redis-lock-namespace?var-lock_namespace=rate",
            "https://locks.example/#/namespace/rate",
        ),
        (
            "RenewalMarginShrinking/warning cluster=east lock_namespace=margin",
            "Renewals come later than usual.",
            "In lock namespace margin, the slowest tenth of the renewals came with 31.25% of "
            "the TTL left. This is less than three quarters of the median of the last day. "
            "Locks are lost when it reaches 0. First: check pauses and CPU limits of the "
            "holders, and the latency of Redis.",
            "https://grafana.example/d/redis-lock-namespace?var-lock_namespace=margin",
            "https://locks.example/#/namespace/margin",
        ),
    ],
    "texts about exporters": [
        (
            "AccessDenied/warning cluster=east command=CLIENT instance=a:9190 job=locks",
            "Redis denies access.",
            "The exporter a:9190 may not run CLIENT, so it does not observe everything. First: "
            "compare the ACL of the user with the required permissions. `/-/ready` lists what "
            "the exporter needs.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "AccessDenied/warning cluster=east lock_namespace=jobs", "Redis denies access.",
            "Redis rejected operations of programs in lock namespace jobs 20 times in 10 "
            "minutes. First: compare the ACL of the user with the required permissions. "
            "`/-/ready` lists what the exporter needs.",
            "/d/redis-lock-exporter", "",
        ),
        (
            "ConfigReloadFailed/warning cluster=east instance=a:9190 job=locks",
            "The exporter rejected its configuration.",
            "a:9190 continues with its old configuration. It cannot start with the file on "
            "disk. First: run `redis_lock_exporter check --config.file FILE`.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "ExporterAbsent/warning cluster=east instance=c:9190 job=locks missing=target",
            "One exporter is down.",
            "Prometheus could not scrape c:9190 for 15 minutes. What the programs on its node "
            "log about locks is not counted. First: check whether the exporter runs.",
            "/d/redis-lock-exporter?var-instance=c:9190", "http://c:9190/",
        ),
        (
            "ExporterAbsent/critical cluster=east job=logs missing=logs",
            "No exporter reads the logs about locks.",
            "No exporter of job logs reads logs any more: lost locks are not counted. First: "
            "check whether the exporters that read logs run.",
            "/d/redis-lock-exporter", "",
        ),
        (
            "ExporterAbsent/critical cluster=east missing=redis redis=third",
            "No exporter watches the locks in Redis.",
            "No exporter watches Redis third any more. Logs are still counted, but there are no "
            "ratios. First: check whether the exporter with this `redis.name` runs.",
            "/d/redis-lock-exporter", "",
        ),
        (
            "LogSilent/warning cluster=east source=/var/log/none.log",
            "A log source has no new lines.",
            "/var/log/none.log matches no file, or nothing was written to it for 6 hours while "
            "locks were acquired. If the programs log elsewhere, or if their log level is too "
            "high, lost locks are not counted. First: run `redis_lock_exporter check --logs` on "
            "a current line of the programs' log.",
            "/d/redis-lock-exporter", "",
        ),
        (
            "LogTailStalled/warning cluster=east instance=a:9190 job=locks source=/var/log/app.log",
            "A log is no longer read.",
            "a:9190 reads nothing from /var/log/app.log, although there is more to read. Lost "
            "locks are counted late or never. First: read its log. Usual reasons: permissions, "
            "a full disk for its state, or no CPU time.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "ScanStale/warning cluster=east instance=a:9190 job=locks",
            "The last pass over the keyspace is too old.",
            "a:9190 has not completed a pass over Redis for much longer than usual, or never. "
            "Locks without a TTL, overdue renewals and leaders may be out of date. First: read "
            "its log and `/-/ready`. Usual reasons: a missing permission, a slow Redis, or a "
            "keyspace that is too large for `max_redis_share`.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "SeriesLimitHit/warning cluster=east instance=a:9190 job=locks lock_namespace=jobs redis=main",
            "A table of the exporter is full.",
            "a:9190 dropped 150 entries in 15 minutes (locks of lock namespace jobs). Its "
            "numbers are too low, or failures count twice. First: raise `max_tracked_locks`, or "
            "make the key template narrower.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "SeriesLimitHit/warning cluster=east instance=a:9190 job=locks table=joined_lines",
            "A table of the exporter is full.",
            "a:9190 dropped 60 entries in 15 minutes (joined_lines). Its numbers are too low, "
            "or failures count twice. First: raise `max_tracked_locks`, or make the key "
            "template narrower.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "StateNotSaved/warning cluster=east instance=a:9190 job=locks",
            "The exporter cannot save its state.",
            "a:9190 cannot save positions and counts. It continues to count, but a restart "
            "would go back to the last saved numbers. First: check whether the disk of its "
            "state directory is full or read-only, and check the permissions.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "TrackingLost/warning cluster=east instance=a:9190 job=locks",
            "Redis no longer announces the changes of locks.",
            "a:9190 observes only differences between two passes. Ratios are unknown, and "
            "alerts on ratios cannot fire. First: read its log and `/-/ready`. Usually a "
            "permission or a proxy changed.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
    ],
    "text if no exporter runs": [
        (
            "ExporterAbsent/critical missing=all", "No exporter watches the locks.",
            "Prometheus cannot scrape any redis_lock_exporter. First: check whether the "
            "exporter runs, and whether it is a target of Prometheus.",
            "/d/redis-lock-exporter", "",
        ),
    ],
    "texts if different exporters read the logs and watch Redis": [
        (
            "NotOwnedRatioHigh/critical cluster=east lock_namespace=lost",
            "Holders lose their locks while they still work.",
            "In lock namespace lost, 29.82% of the releases and renewals in the last 10 minutes "
            "found that the lock was lost. Two workers may have done the same work. The cause "
            "is unknown; events in Redis in 30 minutes: expirations 156, failovers or restarts "
            "1, owner changes 29. First: open the page of this lock namespace (exporter_url) "
            "and check whether one program or all programs lose locks.",
            "/d/redis-lock-namespace?var-lock_namespace=lost", "http://b:9190/#/namespace/lost",
        ),
        (
            "TtlTooShort/warning cluster=east lock_namespace=short",
            "The TTL is too short for the work.",
            "In lock namespace short, 20 locks were lost in an hour while locks expired. The "
            "observed hold times and renewals require a longer TTL: 1m 30s. First: raise the "
            "TTL, or renew more often. A longer TTL also makes takeovers after a crash slower.",
            "/d/redis-lock-namespace?var-lock_namespace=short", "http://b:9190/#/namespace/short",
        ),
    ],
    "texts if several exporters watch Redis": [
        (
            "NotOwnedRatioHigh/critical cluster=east lock_namespace=lost",
            "Holders lose their locks while they still work.",
            "In lock namespace lost, 17.53% of the releases and renewals in the last 10 minutes "
            "found that the lock was lost. Two workers may have done the same work. The cause "
            "is unknown; events in Redis in 30 minutes: expirations 360, failovers or restarts "
            "2, owner changes 135. First: open the page of this lock namespace (exporter_url) "
            "and check whether one program or all programs lose locks.",
            "/d/redis-lock-namespace?var-lock_namespace=lost", "http://b:9190/#/namespace/lost",
        ),
        (
            "AbandonedEvent/warning cluster=east lock_namespace=lost", "A holder gave up its lock.",
            "In lock namespace lost, 3 holders gave up their lock in 15 minutes after failed "
            "renewals. This is normal once after a failover of Redis. First: check that another "
            "worker did the stopped work.",
            "/d/redis-lock-namespace?var-lock_namespace=lost", "http://b:9190/#/namespace/lost",
        ),
        (
            "AccessDenied/warning cluster=east lock_namespace=renewal_failures",
            "Redis denies access.",
            "Redis rejected operations of programs in lock namespace renewal_failures 60 times "
            "in 10 minutes. First: compare the ACL of the user with the required permissions. "
            "`/-/ready` lists what the exporter needs.",
            "/d/redis-lock-exporter", "",
        ),
        (
            "AccessDenied/warning cluster=east lock_namespace=release_failures",
            "Redis denies access.",
            "Redis rejected operations of programs in lock namespace release_failures 60 times "
            "in 10 minutes. First: compare the ACL of the user with the required permissions. "
            "`/-/ready` lists what the exporter needs.",
            "/d/redis-lock-exporter", "",
        ),
        (
            "AccessDenied/warning cluster=east lock_namespace=acquire_failures",
            "Redis denies access.",
            "Redis rejected operations of programs in lock namespace acquire_failures 60 times "
            "in 10 minutes. First: compare the ACL of the user with the required permissions. "
            "`/-/ready` lists what the exporter needs.",
            "/d/redis-lock-exporter", "",
        ),
        (
            "DuplicateTerminalState/warning cluster=east lock_namespace=lost",
            "Work was finished twice.",
            "In lock namespace lost, 3 pieces of work got a second final state in 30 minutes: "
            "two workers did the same work. The cause is unknown; events in Redis in 30 "
            "minutes: expirations 360, failovers or restarts 2, owner changes 135. First: find "
            "the work in the list of incidents, and undo or reconcile its duplicate effects.",
            "/d/redis-lock-namespace?var-lock_namespace=lost", "http://b:9190/#/namespace/lost",
        ),
        (
            "FenceRegression/critical cluster=east lock_namespace=lost",
            "A fence counter went backwards.",
            "In lock namespace lost, fence counters went backwards 3 times in 15 minutes. "
            "Storage that checks fences may accept a delayed holder and reject the current one. "
            "Usual reasons: Redis lost writes (failover, restore, eviction), or someone deleted "
            "the counter. First: find the highest fence that the protected storage has "
            "recorded, and set the counter above it before more work runs.",
            "/d/redis-lock-namespace?var-lock_namespace=lost", "http://b:9190/#/namespace/lost",
        ),
        (
            "FenceRegression/warning cluster=east lock_namespace=quiet",
            "A fence counter went backwards.",
            "In lock namespace quiet, fence counters went backwards 3 times in 15 minutes. "
            "Storage that checks fences may accept a delayed holder and reject the current one. "
            "Usual reasons: Redis lost writes (failover, restore, eviction), or someone deleted "
            "the counter. First: find the highest fence that the protected storage has "
            "recorded, and set the counter above it before more work runs.",
            "/d/redis-lock-namespace?var-lock_namespace=quiet", "http://b:9190/#/namespace/quiet",
        ),
        (
            "WithoutTtl/warning cluster=east lock_namespace=lost", "Locks have no TTL.",
            "In lock namespace lost, at least 3 locks have had no TTL for 10 minutes. If a "
            "holder died, nobody can acquire its lock. First: check whether the holder is alive "
            "before you release a lock.",
            "/d/redis-lock-namespace?var-lock_namespace=lost", "http://b:9190/#/namespace/lost",
        ),
    ],
    "texts about a part of Redis": [
        (
            "RedisDown/critical cluster=east redis=main scope=part",
            "A part of the Redis with the locks is unreachable.",
            "No exporter has reached all of Redis main for 5 minutes: 2 of 3 known primaries "
            "are connected. Most likely programs cannot acquire or renew locks on the other "
            "primaries. Nothing is known about those locks. First: find the missing primary. "
            "Check whether it runs or a replica replaced it, then whether only the exporter "
            "cannot reach it.",
            "/d/redis-lock-overview", "http://a:9190/",
        ),
    ],
}
