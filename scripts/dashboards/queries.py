"""Selectors and expressions that several panels share. They follow the rules in
alerts/redis_lock.rules.yml: failures from logs are summed over exporters. If two exporters see the
same locks in Redis, the larger value of each `redis` counts."""

# EXPORTER selects series of the exporters, RECORDED selects series of the recording rules. Those
# are summed over jobs and instances, so only cluster and lock namespace can be selected. If no
# target has the label `cluster`, its All matches that, too.
EXPORTER = 'cluster=~"$cluster",job=~"$job",instance=~"$instance"'
NAMESPACE = EXPORTER + ',lock_namespace=~"$lock_namespace"'
RECORDED = 'cluster=~"$cluster",lock_namespace=~"$lock_namespace"'
BY = "cluster, lock_namespace"
ON = f"on ({BY})"

RATE = "$__rate_interval"
RANGE = "$__range"


def recorded(name):
    return f"{name}{{{RECORDED}}}"


NOT_OWNED_RATIO = recorded("lock_namespace:redis_lock_not_owned_per_operation:ratio10m")
NOT_OWNED_THRESHOLD = recorded("lock_namespace:redis_lock_not_owned_ratio:effective")
RENEWAL_RATIO = recorded("lock_namespace:redis_lock_renewal_failures_per_renewal:ratio10m")
RENEWAL_THRESHOLD = recorded("lock_namespace:redis_lock_renewal_failure_ratio:effective")
# One series for each lock namespace as soon as the rules are loaded and an exporter is scraped. A
# zero made from it shows that there is data.
POLICY = recorded("lock_namespace:redis_lock_page:effective")


def firing(*, severity=None, others=RECORDED):
    severity = f'severity="{severity}",' if severity else ""
    return f'ALERTS{{alertstate="firing",component="redis_lock",{severity}{others}}}'


def worst(expression, measure, count=6):
    """Returns the series of `expression` for the lock namespaces with the highest `measure` in the
    displayed time range, the same ones at every step. So a dashboard with 16 lock namespaces stays
    readable."""
    return f"{expression}\nand {ON} topk({count}, max_over_time({measure}[{RANGE}] @ end()))"


def from_logs(metric, *labels, window=RATE, function="rate", where=""):
    """Failures are summed, because every exporter counts different lines."""
    return f"sum by ({', '.join([BY, *labels])}) ({function}({metric}{{{NAMESPACE}{where}}}[{window}]))"


def from_redis(metric, *labels, window=RATE, function="rate", where=""):
    """Of counts from Redis the maximum is taken, because two exporters on one Redis count the same
    changes."""
    by = ", ".join([BY, *labels])
    return f"sum by ({by}) (max by ({by}, redis) ({function}({metric}{{{NAMESPACE}{where}}}[{window}])))"


def quantile(share, histogram, window=RATE):
    """A quantile. The comparison removes NaN, which appears if nothing was observed."""
    return f"histogram_quantile({share}, {from_redis(histogram + '_bucket', 'le', window=window, function='increase')}) >= 0"


def now(metric):
    """A gauge about locks, only from exporters that are connected to Redis. The last values of a
    disconnected exporter are out of date."""
    return f"{metric}{{{NAMESPACE}}} and on (cluster, job, instance) redis_lock_exporter_redis_up{{{EXPORTER}}} == 1"


OLDEST_HOLD = f"time() - min by ({BY}) ({now('redis_lock_oldest_acquired_timestamp_seconds')})"

# How long the lock of each leader was free at its last scrape.
_LAST_HELD = f"redis_lock_last_held_timestamp_seconds{{{NAMESPACE}}}"
LEADER_ABSENCE = f"""min by (cluster, redis, lock_namespace, lock) (
  timestamp({_LAST_HELD}) - {now('redis_lock_last_held_timestamp_seconds')}
)"""
LEADER_LIMIT = recorded("lock_namespace:redis_lock_leader_absent_seconds:effective")
# 0 held, 1 free, 2 free for longer than allowed. A fixed key of style `item` may be free: it has no
# limit and is left out. Without tracking, an exporter scans every 15 s, so a lock counts as free
# only after 20 s.
LEADER_STATE = f"""clamp_max(
  (
    {LEADER_ABSENCE} > bool 20
  )
  + on (cluster, redis, lock_namespace, lock)
  2 * (
    {LEADER_ABSENCE} > bool {ON} group_left () {LEADER_LIMIT}
  ),
  2
)"""

# 3 page, 2 ticket, 1 more lost within the last 2 minutes than the threshold allows, 0 intact, -1
# nothing was released or renewed in 2 minutes, -2 successes are not visible, so there is no ratio.
STATE = f"""max by ({BY}) (
  3 * {firing(severity="critical")}
  or 2 * {firing(severity="warning")}
  or {ON} ({recorded("lock_namespace:redis_lock_not_owned:slice_bad")} == 1)
  or {ON} ({recorded("lock_namespace:redis_lock_renewal_failures:slice_bad")} == 1)
  or {ON} {recorded("lock_namespace:redis_lock_not_owned:slice_bad")}
  or {ON} ({recorded("lock_namespace:redis_lock_operations_complete:min")} - 2)
  or {ON} (0 * {POLICY} - 2)
)"""
