"""The expected annotations of each alert, for the worlds of annotations.py: {world: [(alert, summary, description, dashboard_url, exporter_url)]}.

Alerts are written as in `firing` of a case. The sentences repeat those of the rules on purpose: this finds a template that breaks, and a
number that is not filled in. After changing an annotation, run the tests, read what they got, and copy it here."""

TEXTS = {
    "what alerts about namespaces and Redis say": [
        (
            "Abandoned/critical cluster=east lock_namespace=quit", "Holders give up their locks again and again.",
            "In namespace quit, 30 holders gave up their lock within 15 minutes after failed renewals, and stopped their "
            "work. Its cause was not seen in Redis, which had within 30 minutes: expirations 0, failovers or restarts 4. "
            "First: see whether Redis can be written to, then what became of the work that was stopped.",
            "/d/redis-lock-namespace?var-lock_namespace=quit", "http://a:9190/#/namespace/quit",
        ),
        (
            "AbandonedEvent/warning cluster=east lock_namespace=quit", "A holder gave up its lock.",
            "In namespace quit, 30 holders gave up their lock within 15 minutes after failed renewals. After a failover of Redis "
            "that is to be expected once. First: see that the work which was stopped was done by somebody else.",
            "/d/redis-lock-namespace?var-lock_namespace=quit", "http://a:9190/#/namespace/quit",
        ),
        (
            "AcquireFailing/critical cluster=east lock_namespace=stuck", "Locks cannot be had although nobody holds them.",
            "In namespace stuck, 75% of the attempts of the last 10 minutes to take a lock failed, not counting those that found it taken. "
            "Most frequent reason: failover. First: see whether Redis answers and takes writes from these programs, then whether one "
            "program or all fail.",
            "/d/redis-lock-namespace?var-lock_namespace=stuck", "http://a:9190/#/namespace/stuck",
        ),
        (
            "AcquireFailing/warning cluster=east lock_namespace=bare", "Locks cannot be had although nobody holds them.",
            "In namespace bare, 33.33% of the attempts of the last 10 minutes to take a lock failed, not counting those that found it "
            "taken. Most frequent reason: redis_unavailable. First: see whether Redis answers and takes writes from these programs, "
            "then whether one program or all fail.",
            "/d/redis-lock-namespace?var-lock_namespace=bare", "http://a:9190/#/namespace/bare",
        ),
        (
            "DuplicateTerminalState/critical cluster=east lock_namespace=twice", "Work was finished twice.",
            "In namespace twice, 40 pieces of work got a second final state within 30 minutes: two workers did the same work. "
            "Its cause was not seen in Redis, which had within 30 minutes: expirations 0, failovers or restarts 4. First: "
            "find the work in the incidents and undo or reconcile what was done twice.",
            "/d/redis-lock-namespace?var-lock_namespace=twice", "http://a:9190/#/namespace/twice",
        ),
        (
            "ExpiryRatioHigh/warning cluster=east lock_namespace=expire", "Locks end by expiry instead of release.",
            "In namespace expire, 45.45% of the locks that ended in 30 minutes ran out of TTL. Their holders died or were too slow, "
            "and may have worked on without the lock; many libraries say nothing then. First: compare the hold times with the TTL. "
            "If nobody releases these locks on purpose, the namespace is of style loop.",
            "/d/redis-lock-namespace?var-lock_namespace=expire", "http://a:9190/#/namespace/expire",
        ),
        (
            "FailoverFlapping/warning cluster=east redis=main", "Redis fails over again and again.",
            "Redis main failed over or restarted 4 times within an hour. Each time locks may be lost. First: look at memory, disk "
            "and network of the primary, and at the Sentinels' or the cluster's timeouts.",
            "/d/redis-lock-overview", "http://a:9190/",
        ),
        (
            "FailoverObserved/info cluster=east redis=main", "Redis failed over or restarted.",
            "Redis main changed its primary, or the primary restarted. Locks that were not replicated are lost, and some failures "
            "about now are to be expected. First: nothing, if no other alert follows.",
            "/d/redis-lock-overview", "http://a:9190/",
        ),
        (
            "FenceRegression/critical cluster=east lock_namespace=fence", "A fence counter went backwards.",
            "In namespace fence, fence counters went backwards 1 times in 15 minutes. A delayed holder may pass for the current "
            "one, and current ones may be refused. Usually Redis lost writes (failover, restore, eviction) or somebody deleted the "
            "counter. First: find the highest fence that the protected storage has seen, and set the counter above it before more "
            "work is done.",
            "/d/redis-lock-namespace?var-lock_namespace=fence", "http://a:9190/#/namespace/fence",
        ),
        (
            "HeldTooLong/warning cluster=east lock_namespace=slow redis=main", "A lock is held longer than it should be.",
            "In namespace slow a lock has been held for 20m 0s: its holder hangs and goes on renewing, or the work takes longer "
            "than `max_hold` says. First: list the locks of the namespace, the oldest first, and look at the holder.",
            "/d/redis-lock-namespace?var-lock_namespace=slow", "http://a:9190/#/namespace/slow",
        ),
        (
            "LeaderAbsent/critical cluster=east lock=app:leader lock_namespace=leader redis=main", "Nobody holds a lock that somebody should always hold.",
            "The lock app:leader of namespace leader has been free for 20m 0s: nobody does this loop's work. Redis main can be "
            "reached, so the programs do not try, or fail. First: see whether any replica of the program runs, and what it logs.",
            "/d/redis-lock-namespace?var-lock_namespace=leader", "http://a:9190/#/namespace/leader",
        ),
        (
            "MassRenewalOverdue/critical cluster=east lock_namespace=late", "Most locks are not renewed in time.",
            "In namespace late, 60% of the locks held are past the moment their renewal was due; they will be lost when their TTL "
            "runs out. First: see whether the holders hang (pauses, CPU limits) or cannot reach Redis.",
            "/d/redis-lock-namespace?var-lock_namespace=late", "http://a:9190/#/namespace/late",
        ),
        (
            "NotOwnedRatioHigh/critical cluster=east lock_namespace=lost", "Locks are lost while their holders still work.",
            "In namespace lost, 29.82% of releases and renewals of the last 10 minutes found the lock lost. Two workers may have "
            "done the same work. Likely cause: renewals_stopped. First: open the page of this namespace (exporter_url) and look "
            "whether one program or all of them lose locks.",
            "/d/redis-lock-namespace?var-lock_namespace=lost", "http://a:9190/#/namespace/lost",
        ),
        (
            "OwnerChurnHigh/warning cluster=east lock_namespace=churn", "Locks change hands without being released.",
            "In namespace churn, locks changed owner 200 times in 30 minutes without a release, in more than 10% of the acquisitions. The previous owners let them expire, or their end was not observed. Its cause was not seen in Redis, which had within 30 minutes: changes of owner 196, "
            "expirations 0, failovers or restarts 4. First: see whether holders crash, hang, or work longer than the TTL.",
            "/d/redis-lock-namespace?var-lock_namespace=churn", "http://a:9190/#/namespace/churn",
        ),
        (
            "OwnerChurnHigh/warning cluster=east lock_namespace=relay", "Locks change hands without being released.",
            "In namespace relay, locks changed owner 300 times in 30 minutes without a release: 5.0 times per TTL and lock, where expiration allows one. "
            "Several replicas may work at the same time. Its cause was not seen in Redis, which had within 30 minutes: changes of owner 294, expirations 0, "
            "failovers or restarts 4. First: find the program that overwrites the key of the current owner (`SET` without `NX`).",
            "/d/redis-lock-namespace?var-lock_namespace=relay", "http://a:9190/#/namespace/relay",
        ),
        (
            "RedisDown/critical cluster=east redis=second scope=all", "The Redis that holds the locks cannot be reached.",
            "No exporter has reached Redis second for 5 minutes: 0 of 1 known primaries are connected. Programs most likely "
            "cannot take or renew locks either, and nothing about locks in Redis is known meanwhile. First: see whether Redis "
            "runs and has a primary; then whether only the exporter is cut off.",
            "/d/redis-lock-overview", "http://b:9190/",
        ),
        (
            "ReleasedEarly/warning cluster=east lock_namespace=early", "Locks that should run out are released early.",
            "In namespace early, 20 locks of a loop were deleted within an hour before their TTL ran out: two replicas may work in "
            "the same period. First: look for a program, a script or a person that deletes these keys.",
            "/d/redis-lock-namespace?var-lock_namespace=early", "http://a:9190/#/namespace/early",
        ),
        (
            "RenewalFailureRatioHigh/critical cluster=east lock_namespace=renew", "Holders cannot renew their locks.",
            "In namespace renew, 28.57% of the renewals of the last 10 minutes failed. The program carries on without the lock: "
            "others may do the same work. Most frequent reason: redis_unavailable.  First: see whether Redis answers slowly or "
            "refuses writes, then whether one program or all fail.",
            "/d/redis-lock-namespace?var-lock_namespace=renew", "http://a:9190/#/namespace/renew",
        ),
        (
            "RenewalFailureRatioHigh/warning cluster=east lock_namespace=stop", "Holders cannot renew their locks.",
            "In namespace stop, 28.57% of the renewals of the last 10 minutes failed. The program stops its own work when it loses "
            "the lock. Most frequent reason: failover.  First: see whether Redis answers slowly or refuses writes, then whether one "
            "program or all fail.",
            "/d/redis-lock-namespace?var-lock_namespace=stop", "http://a:9190/#/namespace/stop",
        ),
        (
            "RenewalOverdue/warning cluster=east lock_namespace=late", "Some locks are not renewed in time.",
            "In namespace late, 60% of the locks held are past the moment their renewal was due, and it has been above 10 % for "
            "most of 15 minutes. First: list the locks that are overdue and look at their holders.",
            "/d/redis-lock-namespace?var-lock_namespace=late", "http://a:9190/#/namespace/late",
        ),
        (
            "TakeoverSlow/warning cluster=east lock_namespace=takeover", "Expired locks wait too long for their next holder.",
            "In namespace takeover, 25% of the takeovers of the last hour took longer than `takeover_slo` after the last sign of "
            "life of the holder before. First: see how often the programs try again, and whether enough replicas run.",
            "/d/redis-lock-namespace?var-lock_namespace=takeover", "http://a:9190/#/namespace/takeover",
        ),
        (
            "TtlTooShort/warning cluster=east lock_namespace=short", "The TTL is too short for the work.",
            "In namespace short, 20 locks were lost within an hour because their TTL ran out, and it is shorter than what the "
            "observed hold times and renewals call for (1m 30s), renewed every 30s, which bounds a takeover to 30s. First: raise "
            "the TTL, or renew more often; a longer TTL also makes takeovers after a crash slower.",
            "/d/redis-lock-namespace?var-lock_namespace=short", "http://a:9190/#/namespace/short",
        ),
        (
            "UnlockedWork/critical cluster=east lock_namespace=bare", "Work runs without its distributed lock.",
            "In namespace bare programs could not get a lock and worked all the same: 400 times in 30 minutes. Replicas do not "
            "exclude each other. Locks cannot be had because of: redis_unavailable. First: if double work does damage, run one "
            "replica until locks can be had again.",
            "/d/redis-lock-namespace?var-lock_namespace=bare", "http://a:9190/#/namespace/bare",
        ),
        (
            "WithoutTtl/warning cluster=east lock_namespace=eternal", "Locks have no TTL.",
            "In namespace eternal, at least 2 locks have had no TTL for 10 minutes. If their holder died, nobody will ever get "
            "them. First: find out whether the holder lives before anything is released.",
            "/d/redis-lock-namespace?var-lock_namespace=eternal", "http://a:9190/#/namespace/eternal",
        ),
    ],
    "what alerts that know the past say, with links": [
        (
            "AcquireFailing/critical cluster=east lock_namespace=rate", "Locks cannot be had although nobody holds them.",
            "In namespace rate, 80 attempts to take a lock failed in 10 minutes, against 0.0 before, not counting those that "
            "found it taken. How many went well is not seen here. Most frequent reason: failover. First: see whether Redis "
            "answers and takes writes from these programs, then whether one program or all fail.",
            "https://grafana.example/d/redis-lock-namespace?var-lock_namespace=rate", "https://locks.example/#/namespace/rate",
        ),
        (
            "RenewalFailureRatioHigh/critical cluster=east lock_namespace=rate", "Holders cannot renew their locks.",
            "In namespace rate, 60 renewals failed in 10 minutes, against 2.5 before. How many went well is not seen here. "
            "The program carries on without the lock: others may do the same work. Most frequent reason: redis_unavailable.  "
            "First: see whether Redis answers slowly or refuses writes, then whether one program or all fail.",
            "https://grafana.example/d/redis-lock-namespace?var-lock_namespace=rate", "https://locks.example/#/namespace/rate",
        ),
        (
            "ContentionHigh/warning cluster=east lock_namespace=busy", "Locks are taken most of the time.",
            "In namespace busy, 66.67% of the attempts of the last 30 minutes found the lock taken. First: see whether a few keys "
            "are fought over, and whether holders keep them longer than before.",
            "https://grafana.example/d/redis-lock-namespace?var-lock_namespace=busy", "https://locks.example/#/namespace/busy",
        ),
        (
            "FailureBudgetBurn/warning cluster=east lock_namespace=burn", "Locks are lost slowly but steadily.",
            "In namespace burn, 3.407% of releases and renewals of the last 6 hours found the lock lost: below what pages, "
            "and it does not stop. Its cause was not seen in Redis, which had within 30 minutes: expirations 0, failovers or "
            "restarts 0. First: compare with the last deployment and with the load of Redis.",
            "https://grafana.example/d/redis-lock-namespace?var-lock_namespace=burn", "https://locks.example/#/namespace/burn",
        ),
        (
            "NotOwnedRateHigh/critical cluster=east lock_namespace=rate", "Locks are lost far more often than before.",
            "In namespace rate, 40 locks were found lost in 10 minutes, against 0.0 before. How many operations went well is not "
            "seen here, so this may still be a small share. Its cause was not seen in Redis. First: see what changed (deployment, "
            "load, Redis) when it began.",
            "https://grafana.example/d/redis-lock-namespace?var-lock_namespace=rate", "https://locks.example/#/namespace/rate",
        ),
        (
            "RenewalMarginShrinking/warning cluster=east lock_namespace=margin", "Renewals come later and later.",
            "In namespace margin the slowest tenth of the renewals came with 31.25% of the TTL left, less than three quarters of "
            "what was usual in the last day. Locks are lost when it reaches 0. First: look at pauses and CPU limits of the holders, "
            "and at the latency of Redis.",
            "https://grafana.example/d/redis-lock-namespace?var-lock_namespace=margin", "https://locks.example/#/namespace/margin",
        ),
    ],
    "what alerts about exporters say": [
        (
            "AccessDenied/warning cluster=east command=CLIENT instance=a:9190 job=locks", "Redis refuses access.",
            "The exporter a:9190 may not use CLIENT: something is not seen. First: compare the ACL of the user with what is needed; "
            "`/-/ready` lists what the exporter lacks.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "AccessDenied/warning cluster=east lock_namespace=jobs", "Redis refuses access.",
            "Programs of namespace jobs are refused by Redis, 20 times in 10 minutes. First: compare the ACL of the user with what "
            "is needed; `/-/ready` lists what the exporter lacks.",
            "/d/redis-lock-exporter", "",
        ),
        (
            "ConfigReloadFailed/warning cluster=east instance=a:9190 job=locks", "The exporter refused its configuration.",
            "a:9190 goes on with the configuration it had; the file on disk will not start a new process. First: run "
            "`redis_lock_exporter check --config.file FILE`.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "ExporterAbsent/warning cluster=east instance=c:9190 job=locks missing=target", "One exporter is down.",
            "c:9190 has not been scraped with success for 15 minutes. What its node logs about locks is not counted. First: see "
            "whether it runs.",
            "/d/redis-lock-exporter?var-instance=c:9190", "http://c:9190/",
        ),
        (
            "ExporterAbsent/critical cluster=east job=logs missing=logs", "Nothing reads the logs about locks.",
            "No exporter of job logs reads logs any more: lost locks are not counted. First: see whether the exporters that read "
            "logs run.",
            "/d/redis-lock-exporter", "",
        ),
        (
            "ExporterAbsent/critical cluster=east missing=redis redis=third", "Nothing watches the locks in Redis.",
            "No exporter looks at Redis third any more; logs are still counted, but without a denominator. First: see whether the "
            "exporter with this `redis.name` runs.",
            "/d/redis-lock-exporter", "",
        ),
        (
            "LogSilent/warning cluster=east source=/var/log/none.log", "A log source says nothing.",
            "/var/log/none.log matches no file, or nothing was written there for 6 hours while locks were taken. If that is not "
            "where the programs log, or their level is too high, lost locks are not counted. First: run `redis_lock_exporter check "
            "--logs` on a line of the programs' present log.",
            "/d/redis-lock-exporter", "",
        ),
        (
            "LogTailStalled/warning cluster=east instance=a:9190 job=locks source=/var/log/app.log", "A log is not read any further.",
            "a:9190 reads nothing from /var/log/app.log although there is more. Lost locks are counted late or never. First: read "
            "its log: permissions, a full disk for its state, or no CPU.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "ScanStale/warning cluster=east instance=a:9190 job=locks", "The keyspace was not looked at for too long.",
            "a:9190 has completed no pass over Redis for much longer than usual, or never. Locks without a TTL, overdue renewals "
            "and leaders may be out of date. First: read its log and `/-/ready`: a permission, a slow Redis, or a keyspace that is "
            "too large for `max_redis_share`.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "SeriesLimitHit/warning cluster=east instance=a:9190 job=locks lock_namespace=jobs redis=main", "A table of the exporter is full.",
            "a:9190 left out 150 entries within 15 minutes (locks of namespace jobs): its numbers are too low, or failures count "
            "twice. First: raise `max_tracked_locks`, or make the key template narrower.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "SeriesLimitHit/warning cluster=east instance=a:9190 job=locks table=joined_lines", "A table of the exporter is full.",
            "a:9190 left out 60 entries within 15 minutes (joined_lines): its numbers are too low, or failures count twice. First: "
            "raise `max_tracked_locks`, or make the key template narrower.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "StateNotSaved/warning cluster=east instance=a:9190 job=locks", "The exporter cannot save its state.",
            "a:9190 cannot save offsets and counts. It goes on counting, but a restart would step back to what it saved last. "
            "First: see whether the disk of its state directory is full, read-only or not permitted.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
        (
            "TrackingLost/warning cluster=east instance=a:9190 job=locks", "Redis no longer tells of each change of a lock.",
            "a:9190 sees only what differs between two passes. Ratios are not known, and alerts on ratios are off. First: read its "
            "log and `/-/ready`; usually a permission or a proxy was changed.",
            "/d/redis-lock-exporter?var-instance=a:9190", "http://a:9190/",
        ),
    ],
    "what is said when nothing watches": [
        (
            "ExporterAbsent/critical missing=all", "Nothing watches the locks.",
            "Prometheus has no redis_lock_exporter at all: none is scraped with success. First: see whether it runs, and whether "
            "its target is among those of Prometheus.",
            "/d/redis-lock-exporter", "",
        ),
    ],
    "what alerts say where logs and Redis are seen by different exporters": [
        (
            "NotOwnedRatioHigh/critical cluster=east lock_namespace=lost", "Locks are lost while their holders still work.",
            "In namespace lost, 29.82% of releases and renewals of the last 10 minutes found the lock lost. Two workers may "
            "have done the same work. Its cause was not seen in Redis, which had within 30 minutes: changes of owner 29, "
            "expirations 156, failovers or restarts 1. First: open the page of this namespace (exporter_url) and look whether "
            "one program or all of them lose locks.",
            "/d/redis-lock-namespace?var-lock_namespace=lost", "http://b:9190/#/namespace/lost",
        ),
        (
            "TtlTooShort/warning cluster=east lock_namespace=short", "The TTL is too short for the work.",
            "In namespace short, 20 locks were lost within an hour while locks ran out of TTL, and it is shorter than what "
            "the observed hold times and renewals call for (1m 30s). First: raise the TTL, or renew more often; a longer TTL "
            "also makes takeovers after a crash slower.",
            "/d/redis-lock-namespace?var-lock_namespace=short", "http://b:9190/#/namespace/short",
        ),
    ],
    "what is said of Redis that several exporters see": [
        (
            "NotOwnedRatioHigh/critical cluster=east lock_namespace=lost", "Locks are lost while their holders still work.",
            "In namespace lost, 17.53% of releases and renewals of the last 10 minutes found the lock lost. Two workers may "
            "have done the same work. Its cause was not seen in Redis, which had within 30 minutes: changes of owner 135, "
            "expirations 360, failovers or restarts 2. First: open the page of this namespace (exporter_url) and look whether "
            "one program or all of them lose locks.",
            "/d/redis-lock-namespace?var-lock_namespace=lost", "http://b:9190/#/namespace/lost",
        ),
        (
            "AbandonedEvent/warning cluster=east lock_namespace=lost", "A holder gave up its lock.",
            "In namespace lost, 3 holders gave up their lock within 15 minutes after failed renewals. After a failover of Redis "
            "that is to be expected once. First: see that the work which was stopped was done by somebody else.",
            "/d/redis-lock-namespace?var-lock_namespace=lost", "http://b:9190/#/namespace/lost",
        ),
        *(
            (
                f"AccessDenied/warning cluster=east lock_namespace={name}", "Redis refuses access.",
                f"Programs of namespace {name} are refused by Redis, 60 times in 10 minutes. First: compare the ACL of the user with what "
                "is needed; `/-/ready` lists what the exporter lacks.",
                "/d/redis-lock-exporter", "",
            ) for name in ("renewal_failures", "release_failures", "acquire_failures")
        ),
        (
            "DuplicateTerminalState/warning cluster=east lock_namespace=lost", "Work was finished twice.",
            "In namespace lost, 3 pieces of work got a second final state within 30 minutes: two workers did the same work. "
            "Its cause was not seen in Redis, which had within 30 minutes: changes of owner 135, expirations 360, failovers or restarts 2. First: "
            "find the work in the incidents and undo or reconcile what was done twice.",
            "/d/redis-lock-namespace?var-lock_namespace=lost", "http://b:9190/#/namespace/lost",
        ),
        *(
            (
                f"FenceRegression/{severity} cluster=east lock_namespace={name}", "A fence counter went backwards.",
                f"In namespace {name}, fence counters went backwards 3 times in 15 minutes. A delayed holder may pass for the current "
                "one, and current ones may be refused. Usually Redis lost writes (failover, restore, eviction) or somebody deleted the "
                "counter. First: find the highest fence that the protected storage has seen, and set the counter above it before more "
                "work is done.",
                f"/d/redis-lock-namespace?var-lock_namespace={name}", f"http://b:9190/#/namespace/{name}",
            ) for severity, name in (("critical", "lost"), ("warning", "quiet"))
        ),
        (
            "WithoutTtl/warning cluster=east lock_namespace=lost", "Locks have no TTL.",
            "In namespace lost, at least 3 locks have had no TTL for 10 minutes. If their holder died, nobody will ever get "
            "them. First: find out whether the holder lives before anything is released.",
            "/d/redis-lock-namespace?var-lock_namespace=lost", "http://b:9190/#/namespace/lost",
        ),
    ],
    "what is said of a part of Redis": [
        (
            "RedisDown/critical cluster=east redis=main scope=part", "A part of the Redis that holds the locks cannot be reached.",
            "No exporter has reached all of Redis main for 5 minutes: 2 of 3 known primaries are connected. Programs most "
            "likely cannot take or renew the locks whose keys are on the others, and nothing about those is known meanwhile. "
            "First: find the primary that is missing: see whether it runs or a replica has its place; then whether only the "
            "exporter is cut off.",
            "/d/redis-lock-overview", "http://a:9190/",
        ),
    ],
}
