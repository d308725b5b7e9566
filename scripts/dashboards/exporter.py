"""The dashboard of the exporters: what they see, what they do not see, and what they cost."""

from dashboards import panels
from dashboards.overview import ANNOTATIONS
from dashboards.panels import BAD, GOOD, colored, mapping, steps, target
from dashboards.queries import EXPORTER, RATE

BY = "cluster, job, instance"
NO_EXPORTER = "No exporter is scraped."
NO_REDIS = "No exporter here has a Redis configured."
NO_LOGS = "No exporter here has a log source configured."
PAGE = panels.link("The page of ${__field.labels.instance}", "http://${__field.labels.instance}/#/exporter", new_tab=True)
YES_NO = mapping(p1=f"yes:{GOOD}", p0=f"no:{BAD}")


def gauge(metric):
    return f"redis_lock_exporter_{metric}{{{EXPORTER}}}"


def rate(metric, prefix="redis_lock_exporter_"):
    return f"rate({prefix}{metric}{{{EXPORTER}}}[{RATE}])"


def increase(metric, prefix="redis_lock_exporter_"):
    return f"increase({prefix}{metric}{{{EXPORTER}}}[{RATE}])"


def _first_line():
    ever = f"last_over_time({gauge('build_info')}[1d])"

    def least(number, title, description, metric, no_value):
        return panels.stat(number, title, description, [target(f"min({gauge(metric)})", title)], "short", no_value, steps((1, GOOD), base=BAD), mappings=YES_NO)

    return [
        panels.stat(1, "Exporters scraped", "Exporters that are scraped, and those that were within a day and are not any more.",
                    [target(f"count(up{{{EXPORTER}}} == 1 and on ({BY}) {ever})", "up"),
                     target(f"count(up{{{EXPORTER}}} == 0 and on ({BY}) {ever}) or 0 * count({gauge('build_info')})", "down")],
                    "short", NO_EXPORTER, steps(), named=True, overrides=[panels.override("byName", "down", thresholds=steps((1, BAD)))]),
        least(2, "Redis reached", "Whether every exporter is connected to every primary it knows. If not, what is shown of locks is old; logs are counted all the same.",
              "redis_up", NO_REDIS),
        least(3, "Told of changes", "Whether Redis tells every exporter of each change of a lock. If not, only passes show what changed: short holds are missed, and ratios are "
              "not known.", "tracking_up", NO_REDIS),
        panels.stat(4, "Silent log sources", "Log sources that match no file: nothing can be read there.",
                    [target(f"count({gauge('log_open_files')} == 0) or 0 * count({gauge('log_open_files')})", "silent")], "short", NO_LOGS, steps((1, BAD))),
        least(5, "State saved", "Whether every number shown is on disk. If not, counts would step back at a restart. No state directory counts as no.", "state_durable", NO_EXPORTER),
        least(6, "Configuration", "Whether the last reload of the configuration was accepted.", "config_last_reload_successful", NO_EXPORTER),
    ]


def _table():
    yes_no = colored("color-text", mappings=YES_NO, noValue="not configured")
    numbers = [
        (f"max by ({BY}, version) ({gauge('build_info')})", None, {}),
        (f"1000 * max by ({BY}) ({gauge('start_time_seconds')})", "Started", {"unit": "dateTimeFromNow"}),
        (f"max by ({BY}) ({gauge('redis_up')})", "Redis reached", yes_no),
        (f"max by ({BY}) ({gauge('tracking_up')})", "Told of changes", yes_no),
        (f"sum by ({BY}) ({gauge('log_open_files')})", "Files followed", colored("color-text", thresholds=steps((1, GOOD), base=BAD), noValue="no logs")),
        (f"sum by ({BY}) ({gauge('log_lag_bytes')})", "Not yet read", {"unit": "bytes", "noValue": "no logs"}),
        (f"max by ({BY}) ({gauge('state_durable')})", "State saved", yes_no),
        (f"max by ({BY}) ({gauge('config_last_reload_successful')})", "Configuration", yes_no),
        (f"max by ({BY}) (process_resident_memory_bytes{{{EXPORTER}}} and on ({BY}) {gauge('build_info')})", "Memory", {"unit": "bytes", "noValue": "not known"}),
    ]
    columns = {"instance": ("Instance", {"links": [
        panels.link("Its page", "http://${__value.raw}/#/exporter", new_tab=True), panels.link("What it lacks", "http://${__value.raw}/-/ready", new_tab=True),
        panels.link("Its metrics", "http://${__value.raw}/metrics", new_tab=True)]}), "job": ("Job", {}), "version": ("Version", {})}
    columns |= {f"Value #{chr(ord('A') + index)}": (name, settings) for index, (_, name, settings) in enumerate(numbers) if name}
    return panels.table(7, "Exporters", "One line for each exporter that is scraped. A click on an instance leads to its page, and to `/-/ready`, which says what it lacks.",
                        [target(expr, instant=True) for expr, _, _ in numbers], columns, NO_EXPORTER, sort_by=[("Instance", False)], hidden=["Value #A", "cluster"])


def _logs():
    source = "{{source}}, {{instance}}"
    return [
        (8, [
            (8, panels.time_series(8, "Log lag", "Bytes that were written and not yet read. Returns to 0; while it does not, the failures shown are late.",
                                   [target(gauge("log_lag_bytes"), source)], "bytes", NO_LOGS, links=[PAGE])),
            (8, panels.time_series(9, "Log throughput", "Bytes read per second. None where the program usually writes: the log moved, or the program is silent.",
                                   [target(rate("log_bytes_total"), source)], "Bps", NO_LOGS, links=[PAGE])),
            (8, panels.time_series(10, "Silence: since the last byte", "How long ago something was last read from each source. A source that never had anything has no line.",
                                   [target(f"time() - {gauge('log_last_read_timestamp_seconds')}", source)], "s", "Nothing was ever read, or no log source is configured.", links=[PAGE])),
        ]),
        (8, [
            (8, panels.time_series(11, "Lines and lock events", "Lines read per second, and those that said something about a lock.",
                                   [target(rate("log_lines_total"), "lines, " + source), target(rate("log_events_total"), "lock events, " + source)], "ops", NO_LOGS)),
            (8, panels.time_series(12, "Files", "Files that are followed: 0 is a blind source. Rotations are normal; what was written just before a truncation is lost.",
                                   [target(gauge("log_open_files"), "followed, " + source), target(increase("log_rotations_total"), "rotations, " + source),
                                    target(increase("log_truncations_total"), "truncations, " + source)], "short", NO_LOGS)),
            (8, panels.time_series(13, "Trouble with logs", "Failed attempts to list, open or read files, and lines that were too long to be searched whole. Both should be 0.",
                                   [target(increase("log_read_errors_total"), "read errors, " + source), target(increase("log_oversized_lines_total"), "too long, " + source)],
                                   "short", NO_LOGS, stacked=True, calcs=("sum",))),
        ]),
    ]


def _redis():
    instance = "{{instance}}"
    return [
        (8, [
            (8, panels.time_series(14, "Age of the last pass", "How long ago an exporter last completed a pass over the keys. Passes come every 5 minutes where Redis tells of changes, otherwise every 15 s.",
                                   [target(f"time() - {gauge('scan_last_success_timestamp_seconds')}", instance)], "s", "No pass was completed yet, or no Redis is configured.", links=[PAGE])),
            (8, panels.time_series(15, "Duration of a pass", "How long the last complete pass took, with its pauses, and passes that failed.",
                                   [target(gauge("scan_duration_seconds"), instance), target(increase("scan_failures_total"), "failed, " + instance)], "s",
                                   "No pass was completed yet, or no Redis is configured.", overrides=[panels.override("byFrameRefID", "B", unit="short", custom_axisPlacement="right")])),
            (8, panels.time_series(16, "Keys that a pass came by", "All keys of Redis, and those of locks among them.",
                                   [target(gauge("scan_keys"), "keys, " + instance), target(gauge("scan_lock_keys"), "locks, " + instance)], "short",
                                   "No pass was completed yet, or no Redis is configured.")),
        ]),
        (8, [
            (8, panels.time_series(17, "Connections and tracking", "Primaries that are connected and that are known, and whether all tell of changes (1) or not (0).",
                                   [target(gauge("redis_nodes_up"), "connected, " + instance), target(gauge("redis_nodes"), "known, " + instance),
                                    target(gauge("tracking_up"), "tells of changes, " + instance)], "short", NO_REDIS)),
            (8, panels.time_series(18, "Trouble with Redis", "Failovers seen, connections made and those that failed, reads of keys that failed, flushes of all keys, and keys that Redis evicted.",
                                   [target(increase("redis_failovers_total"), "failovers, " + instance), target(increase("redis_connects_total"), "connects, " + instance),
                                    target(increase("redis_connect_errors_total"), "connects failed, " + instance), target(increase("redis_read_errors_total"), "reads failed, " + instance),
                                    target(increase("tracking_flushes_total"), "flushes, " + instance), target(increase("redis_evicted_keys_total"), "evicted keys, " + instance)],
                                   "short", NO_REDIS, stacked=True, calcs=("sum",))),
            (8, panels.time_series(19, "Not permitted", "1 for each command that the exporter's user may not use. `/-/ready` says what is not seen because of it.",
                                   [target(f"max by (command) ({gauge('redis_permission_denied')})", "{{command}}")], "short", NO_REDIS)),
        ]),
        (8, [
            (8, panels.time_series(20, "Cost to Redis: commands", "Commands sent per second by kind, of all exporters together. All of them only read.",
                                   [target(f"sum by (command) ({rate('redis_commands_total')}) > 0", "{{command}}")], "ops", NO_REDIS, stacked=True)),
            (8, panels.time_series(21, "Cost to Redis: time", "Share of the time that Redis took to answer an exporter. `max_redis_share` limits it for passes.",
                                   [target(rate("redis_busy_seconds_total"), instance)], "percentunit", NO_REDIS, links=[PAGE])),
            (8, panels.time_series(22, "Changes that Redis told of", "Changed keys per second, whether or not they are locks.",
                                   [target(rate("tracking_pushes_total"), instance)], "ops", NO_REDIS, links=[PAGE])),
        ]),
    ]


def _process():
    instance = "{{instance}}"
    own = f"and on ({BY}) {gauge('build_info')}"
    drops = [("tracking_skipped_reads_total", "reads skipped"), ("tracking_overflows_total", "queue overflowed")]
    return [
        (8, [
            (8, panels.time_series(23, "Drops", "What was left out because a limit was reached: changed keys that were not read, full queues, entries that left a full table, locks that found no place. Counts are too low "
                                   "then. Should be 0; old final states make room for new ones on a busy system.",
                                   [*(target(increase(metric), f"{name}, {instance}") for metric, name in drops),
                                    target(increase("table_evictions_total"), "{{table}}, {{instance}}"),
                                    target(f"sum by ({BY}) ({increase('untracked_locks_total', 'redis_lock_')})", "untracked locks, {{instance}}")],
                                   "short", NO_EXPORTER, stacked=True, calcs=("sum",))),
            (8, panels.time_series(24, "State saves", "Times per second that the state was saved, and failures. Nothing is saved while nothing changes.",
                                   [target(rate("state_saves_total"), "saved, " + instance), target(rate("state_save_errors_total"), "failed, " + instance)], "ops", NO_EXPORTER,
                                   overrides=[panels.override("byFrameRefID", "B", color=panels.fixed(BAD))])),
            (8, panels.time_series(25, "Age of the saved state", "Since the state was last saved, and files of state that were damaged and set aside: counting began anew after each.",
                                   [target(f"time() - {gauge('state_last_save_timestamp_seconds')}", instance), target(increase("state_set_aside_total"), "set aside, " + instance)], "s",
                                   "No state directory is configured.", overrides=[panels.override("byFrameRefID", "B", unit="short", custom_axisPlacement="right", color=panels.fixed(BAD))])),
        ]),
        (8, [
            (8, panels.time_series(26, "Memory", "Resident memory of each exporter: some 30 MB, and about 200 bytes for each lock held.",
                                   [target(f"process_resident_memory_bytes{{{EXPORTER}}} {own}", instance)], "bytes", NO_EXPORTER, links=[PAGE])),
            (8, panels.time_series(27, "CPU", "Processor cores in use by each exporter; a small part of one is usual.", [target(f"{rate('process_cpu_seconds_total', '')} {own}", instance)], "short", NO_EXPORTER, decimals=3, links=[PAGE])),
            (8, panels.time_series(28, "File descriptors", "Open file descriptors as a share of the limit: one for each file that is followed and each connection.",
                                   [target(f"process_open_fds{{{EXPORTER}}} / process_max_fds{{{EXPORTER}}} {own}", instance)], "percentunit",
                                   "There is no limit, or no exporter is scraped.", links=[PAGE])),
        ]),
    ]


def dashboard():
    rows = [(4, [(4, panel) for panel in _first_line()]), (7, [(24, _table())]), panels.row(100, "Logs"), *_logs(), panels.row(101, "Redis"), *_redis(),
            panels.row(102, "The process"), *_process()]
    # Alerts about lock namespaces belong to the other dashboards.
    annotations = [note for note in ANNOTATIONS if note["name"] not in ("Pages", "Tickets")]
    return panels.dashboard("exporter", "Exporter", "Do the exporters see everything, and what do they cost?", rows, annotations, with_namespace=False)
