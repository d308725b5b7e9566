#!/usr/bin/env bash
# Tests the life cycle of the Debian package: install, configure, upgrade, remove, install again,
# purge. scripts/test_deb.sh runs it in a container. /packages contains this file, old.deb, new.deb,
# and the sources of the package.
#
# usage: inside.sh without-systemd     (where no systemd runs: a chroot, an image that is being built)
#        inside.sh with-systemd        (systemd is the first process)
#
# Ends at the first failed check. Checks that depend on time wait for at most 30 s.
set -euo pipefail
export DEBIAN_FRONTEND=noninteractive

checks=0
unit=redis_lock_exporter.service
state=/var/lib/private/redis_lock_exporter
config=/etc/redis_lock_exporter/config.yaml
settings=/etc/default/redis_lock_exporter
log=/var/log/cordum/scheduler.log

title() {
  printf '# %s\n' "$*"
}

failed() {
  printf 'FAILED: %s\n' "$*"
  if [[ -d /run/systemd/system ]]; then
    systemctl --no-pager --full status "$unit" || true
    journalctl --no-pager --lines=40 || true
  fi
  exit 1
}

# is WHAT COMMAND...: the command succeeds.
is() {
  local what=$1
  shift
  "$@" >/tmp/output 2>&1 || failed "$what: $* ($(head -c 2000 /tmp/output))"
  checks=$((checks + 1))
  printf 'ok: %s\n' "$what"
}

# is_not WHAT COMMAND...
is_not() {
  local what=$1
  shift
  ! "$@" >/tmp/output 2>&1 || failed "$what: $* ($(head -c 2000 /tmp/output))"
  checks=$((checks + 1))
  printf 'ok: %s\n' "$what"
}

# same WHAT EXPECTED FOUND
same() {
  [[ $2 == "$3" ]] || failed "$1: $2 was expected, and there is $3"
  checks=$((checks + 1))
  printf 'ok: %s: %s\n' "$1" "$3"
}

# becomes WHAT EXPECTED COMMAND...: the command eventually prints the expected text.
becomes() {
  local what=$1 expected=$2 found deadline=$((SECONDS + 30))
  shift 2
  while true; do
    found=$("$@" 2>/dev/null) || true
    [[ $found != "$expected" ]] || break
    ((SECONDS < deadline)) || failed "$what: $expected was expected, and there is $found"
    sleep 0.1
  done
  checks=$((checks + 1))
  printf 'ok: %s: %s\n' "$what" "$found"
}

# apt ARGUMENT...: runs apt as a user does, without questions.
apt() {
  apt-get --yes --quiet=2 --allow-downgrades "$@" </dev/null >/tmp/apt 2>&1 || failed "apt-get $*: $(cat /tmp/apt)"
}

property() {
  systemctl show --property="$1" --value "${2:-$unit}"
}

# metric SERIES: prints the value of a series.
metric() {
  curl --silent --fail --max-time 5 http://127.0.0.1:9877/metrics | sed -n "s/^$1 //p"
}

lost() {
  metric 'redis_lock_not_owned_total{lock_namespace="workflow",operation="release"}'
}

# lose RUN: writes a log line about a lost lock.
lose() {
  lost_line "$1" >>"$log"
}

lost_line() {
  printf '{"time":"%s","level":"WARN","msg":"distributed run lock release failed","component":"workflow-engine","run_id":"run-%s","error":"lock not owned"}\n' \
    "$(date --utc +%FT%T.%3NZ)" "$1"
}

# says UNIT RUN...: the unit prints to its standard output, which goes to journald, that these locks
# were lost.
says() {
  local unit=$1 run
  shift
  for run in "$@"; do lost_line "$run"; done >/tmp/said
  systemd-run --quiet --wait --collect --unit "$unit" cat /tmp/said
}

# Lists the files that the package left behind, without the package manager's own lists.
leftovers() {
  find / -xdev \( -path /proc -o -path /sys -o -path /packages -o -path /tmp -o -path /var/log/journal \) -prune \
    -o \( -name '*redis_lock*' -o -name '*redis-lock*' \) -print
}

new_version() {
  dpkg-deb --field /packages/new.deb Version
}

without_systemd() {
  title "installed without a running systemd"
  is_not "systemd is not here" test -d /run/systemd/system
  apt install /packages/new.deb
  is "the program runs" redis_lock_exporter --version
  is "its configuration is good" redis_lock_exporter check --config.file "$config"
  is "the user is there" id redis_lock_exporter
  is "the service will be started by the next boot" test -L "/etc/systemd/system/multi-user.target.wants/$unit"
  is_not "the socket will not" test -e /etc/systemd/system/sockets.target.wants/redis_lock_exporter.socket
  is "no file of the package was changed" dpkg --verify redis-lock-exporter
  # shellcheck disable=SC2016 # the shell in the container's shell expands it
  is "bash completes it" bash -c 'source /usr/share/bash-completion/completions/redis_lock_exporter && complete -p redis_lock_exporter'
  is "the rules are where the documentation says" test -s /usr/share/redis_lock_exporter/alerts/redis_lock.rules.yml
  apt purge redis-lock-exporter
  same "purging leaves nothing" "" "$(leftovers)"
  apt install /packages/new.deb
}

first_boot() {
  title "started by the next boot"
  becomes "the service" active systemctl is-active "$unit"
  same "enabled" enabled "$(systemctl is-enabled "$unit")"
  becomes "Redis is watched" 1 metric redis_lock_exporter_redis_up
  apt purge redis-lock-exporter
  same "purging leaves nothing" "" "$(leftovers)"
  is "but the user" id redis_lock_exporter
  userdel redis_lock_exporter
}

installed() {
  title "installed"
  mkdir -p "${log%/*}"
  touch "$log"
  chown root:adm "$log"
  chmod 640 "$log"
  apt install /packages/old.deb
  # Type=notify: the unit becomes active when the exporter reports that it is ready.
  same "the service" active "$(systemctl is-active "$unit")"
  same "at the next boot" enabled "$(systemctl is-enabled "$unit")"
  becomes "Redis is watched" 1 metric redis_lock_exporter_redis_up
  is "healthy" redis_lock_exporter healthcheck
  local pid
  pid=$(property MainPID)
  same "runs as" redis_lock_exporter "$(stat --format=%U "/proc/$pid")"
  is "may read what the group adm may" grep -qE "^Groups:.*\b$(getent group adm | cut -d : -f 3)\b" "/proc/$pid/status"
  is "has no capabilities" grep -qE '^CapBnd:\s+0+$' "/proc/$pid/status"
  is "gets no new privileges" grep -qE '^NoNewPrivs:\s+1$' "/proc/$pid/status"
  is "has a filter of system calls" grep -qE '^Seccomp:\s+2$' "/proc/$pid/status"
  is_not "sees nothing to write to in /etc" nsenter --target "$pid" --mount touch /etc/redis_lock_exporter/written
  is_not "nor in /usr" nsenter --target "$pid" --mount touch /usr/written
  same "the state" "700 redis_lock_exporter" "$(stat --format='%a %U' "$state")"
  same "the settings, where a password may be" "640 root root" "$(stat --format='%a %U %G' "$settings")"
  # With ProcSubset=pid the kernel does not show the boot time.
  local started told
  started=$(date --date "$(property ExecMainStartTimestamp)" +%s)
  told=$(metric process_start_time_seconds)
  is "the start time is correct" test "$((${told%.*} - started))" -ge -2 -a "$((${told%.*} - started))" -le 10
  same "is also at" "$state" "$(readlink -f /var/lib/redis_lock_exporter)"
}

configured() {
  title "configured"
  cat >"$config" <<EOF
# Mine.
redis: {url: "redis://127.0.0.1:6379/0"}
logs: [{path: "${log%/*}/*.log"}]
presets: [cordum]
EOF
  is "reloaded" systemctl reload "$unit"
  becomes "the log is followed" 1 metric 'redis_lock_exporter_log_open_files{.*}'
  lose 1
  becomes "a lost lock is counted" 1 lost
  local good pid
  good=$(cat "$config")
  pid=$(property MainPID)
  echo "nonsense: true" >>"$config"
  systemctl reload "$unit"
  becomes "a configuration with a mistake is refused" 0 metric redis_lock_exporter_config_last_reload_successful
  same "and the process goes on" "$pid" "$(property MainPID)"
  printf '%s\n' "$good" >"$config"
  systemctl reload "$unit"
  becomes "the corrected configuration is loaded" 1 metric redis_lock_exporter_config_last_reload_successful
}

upgraded() {
  title "upgraded"
  local before
  before=$(property MainPID)
  apt install /packages/new.deb
  same "version" "$(new_version)" "$(dpkg-query --show --showformat='${Version}' redis-lock-exporter)"
  is_not "another process" test "$(property MainPID)" = "$before"
  same "the service" active "$(systemctl is-active "$unit")"
  is "what was changed in the configuration is kept" grep -q "^# Mine" "$config"
  is "what was not is the new one" cmp "$settings" /packages/default
  becomes "counted before the upgrade" 1 lost
  lose 2
  becomes "and after it" 2 lost

  title "upgraded with a configuration that the new version rejects"
  before=$(property MainPID)
  cp "$config" /tmp/config.yaml
  echo "nonsense: true" >>"$config"
  apt install --reinstall /packages/new.deb
  is "the upgrade reports the rejected configuration" grep -q "does not take $config" /tmp/apt
  same "the old process goes on" "$before" "$(property MainPID)"
  cp /tmp/config.yaml "$config"

  title "upgraded after the user and the package changed the same file"
  apt install /packages/old.deb
  echo '# Mine, too.' >>"$settings"
  # Without questions: uses the default answer, like unattended upgrades.
  apt install -o Dpkg::Options::=--force-confdef /packages/new.deb
  is "the user's file is kept" grep -q "^# Mine, too" "$settings"
  is "the package's file is next to it" cmp "$settings.dpkg-dist" /packages/default
  becomes "counted so far" 2 lost

  title "upgraded after the user disabled and stopped the service"
  systemctl disable --quiet --now "$unit"
  apt install --reinstall /packages/new.deb
  same "at the next boot" disabled "$(systemctl is-enabled "$unit" || true)"
  same "now" inactive "$(systemctl is-active "$unit" || true)"
  systemctl enable --quiet --now "$unit"
}

# Prints the name of every running journalctl. The image has no pgrep.
journal_readers() {
  grep --no-filename --line-regexp journalctl /proc/[0-9]*/comm 2>/dev/null || true
}

# The test does not write this: journald stores the output of a unit.
from_journal() {
  title "reading the journal"
  cp "$config" /tmp/config.yaml
  cat >"$config" <<EOF
# Mine.
redis: {url: "redis://127.0.0.1:6379/0"}
logs: [{path: "${log%/*}/*.log"}, {journal: {units: [engine]}, name: journal}]
presets: [cordum]
EOF
  says engine 90
  is "reloaded" systemctl reload "$unit"
  becomes "journalctl runs" 1 metric 'redis_lock_exporter_log_open_files{source="journal"}'
  becomes "as one process" journalctl journal_readers
  same "earlier journal entries are not counted" 2 "$(lost)"
  says engine 91 92
  becomes "new journal entries of a unit are counted" 4 lost
  says other 93
  says engine 94
  becomes "but not what another one says" 5 lost
  local pid
  pid=$(property MainPID)
  systemctl stop "$unit"
  same "journalctl ends with it" "" "$(journal_readers)"
  says engine 95 96
  systemctl start "$unit"
  says engine 97
  becomes "nothing is lost over a restart" 8 lost
  kill -KILL "$(property MainPID)"
  says engine 98
  becomes "nor over a kill" 9 lost
  sleep 3
  same "and nothing is counted twice" 9 "$(lost)"
  is_not "it was another process" test "$(property MainPID)" = "$pid"
  same "entries of the journal" 7 "$(metric 'redis_lock_exporter_log_events_total{source="journal"}')"
  same "read errors" 0 "$(metric 'redis_lock_exporter_log_read_errors_total{source="journal"}')"
  cp /tmp/config.yaml "$config"
  is "reloaded" systemctl reload "$unit"
  becomes "and journalctl ends" "" metric 'redis_lock_exporter_log_open_files{source="journal"}'
}

in_trouble() {
  title "failures"
  mkdir -p "/run/systemd/system/$unit.d"
  # Like the setting in the unit, but shorter.
  printf '[Service]\nWatchdogSec=2s\nRestartSec=100ms\n' >"/run/systemd/system/$unit.d/sooner.conf"
  systemctl daemon-reload
  systemctl restart "$unit"
  same "restarts by itself so far" 0 "$(property NRestarts)"
  kill -KILL "$(property MainPID)"
  becomes "started again when killed" 1 property NRestarts
  becomes "the service" active systemctl is-active "$unit"
  becomes "counted so far" 9 lost
  kill -STOP "$(property MainPID)"
  becomes "systemd restarts a hanging exporter" 2 property NRestarts
  becomes "the service" active systemctl is-active "$unit"
  becomes "counted so far" 9 lost
  is "the journal names the watchdog" grep -q "Watchdog timeout" <(journalctl --unit "$unit" --no-pager)
  rm -r "/run/systemd/system/$unit.d"
  systemctl daemon-reload
  systemctl restart "$unit"
}

with_a_mistake() {
  title "started with a configuration that it rejects"
  cp "$config" /tmp/config.yaml
  echo "nonsense: true" >>"$config"
  is_not "the service does not start" systemctl restart "$unit"
  same "the exit code is correct" 64 "$(property ExecMainStatus)"
  # The state would be auto-restart if systemd tried again.
  same "and is not started again and again" failed "$(property SubState)"
  cp /tmp/config.yaml "$config"
  is "the corrected configuration starts" systemctl start "$unit"
}

by_socket() {
  title "started by socket activation"
  same "the socket" disabled "$(systemctl is-enabled redis_lock_exporter.socket || true)"
  cp "$settings" /tmp/settings
  echo 'ARGS="--web.systemd-socket"' >>"$settings"
  systemctl stop "$unit"
  is "enabled" systemctl enable --quiet --now redis_lock_exporter.socket
  same "the service" inactive "$(systemctl is-active "$unit" || true)"
  # The first request waits for the service that it starts.
  becomes "counted so far" 9 lost
  # The exporter answers before it is ready.
  becomes "the service" active systemctl is-active "$unit"
  local pid refused=0 asked=0
  pid=$(property MainPID)
  systemctl restart --no-block "$unit"
  while [[ $(property MainPID) == "$pid" || $(property MainPID) == 0 || $(systemctl is-active "$unit") != active ]]; do
    asked=$((asked + 1))
    curl --silent --fail --max-time 20 --output /dev/null http://127.0.0.1:9877/metrics || refused=$((refused + 1))
  done
  is "requests were sent during a restart" test "$asked" -gt 0
  same "and refused" 0 "$refused"
  cp /tmp/settings "$settings"
  systemctl disable --quiet --now redis_lock_exporter.socket "$unit"
  systemctl enable --quiet --now "$unit"
  becomes "the service, without the socket" active systemctl is-active "$unit"
}

removed() {
  title "removed"
  apt remove redis-lock-exporter
  same "the service" inactive "$(systemctl is-active "$unit" || true)"
  is_not "the program is gone" test -e /usr/bin/redis_lock_exporter
  is_not "the unit is gone" systemctl cat "$unit"
  is "the configuration is kept" grep -q "^# Mine" "$config"
  is "the state is kept" test -s "$state/state.json"
  lose 3

  title "installed again"
  apt install /packages/new.deb
  becomes "what was counted, and what was written meanwhile" 10 lost
  is "the configuration is kept" grep -q "^# Mine" "$config"

  title "purged"
  apt purge redis-lock-exporter
  same "what is left" "" "$(leftovers)"
  is_not "systemd knows nothing of it" systemctl cat "$unit"
}

by_hand() {
  title "unit and program copied manually, without a user"
  userdel redis_lock_exporter
  dpkg-deb --extract /packages/new.deb /tmp/unpacked
  install /tmp/unpacked/usr/bin/redis_lock_exporter /usr/bin/
  cp "/packages/$unit" /etc/systemd/system/
  install -D -m 644 /packages/config.yaml "$config"
  systemctl daemon-reload
  is "started" systemctl start "$unit"
  becomes "Redis is watched" 1 metric redis_lock_exporter_redis_up
  is_not "no such user in /etc/passwd" grep -q redis_lock_exporter /etc/passwd
  is_not "the process does not run as root" grep -qE '^Uid:\s+0\s' "/proc/$(property MainPID)/status"
  is "the state is saved" test -s "$state/state.json"
  is "stopped" systemctl stop "$unit"
}

case $1 in
  without-systemd)
    without_systemd
    ;;
  with-systemd)
    first_boot
    installed
    configured
    upgraded
    from_journal
    in_trouble
    with_a_mistake
    by_socket
    removed
    by_hand
    title "during the whole test"
    same "errors in the log but those that were asked for" "" \
      "$(journalctl --unit "$unit" --no-pager --output=cat | grep ' ERROR ' | grep -vE 'configuration refused|cannot start with this configuration' || true)"
    ;;
esac
printf 'passed: %s\n' "$checks"
