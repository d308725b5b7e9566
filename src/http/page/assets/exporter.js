// The exporter itself: its sources and their state, whether its numbers are saved, and the
// configuration in effect.

import { ask } from "./ask.js";
import { h, levelIcon, replace } from "./dom.js";
import { bytes, clock, number, percent, span } from "./format.js";
import { figure, findingList } from "./overview.js";

export function exporter() {
  const health = h("div", null, h("p", { class: "muted" }, "Asking the exporter …"));
  const config = h("div", null);
  const node = h("div", null, h("h1", null, "Exporter"), health,
    h("section", { "aria-labelledby": "config-heading" }, h("h2", { id: "config-heading" }, "Configuration in effect"),
      h("p", { class: "muted" }, "With presets and flags. Secrets are not shown, only where they come from."), config));
  let shownConfig = "";

  async function load(loadedAt) {
    if (String(loadedAt) === shownConfig) return;
    try {
      const answer = await ask("api/v1/config");
      shownConfig = String(loadedAt);
      replace(config, tree(answer, "configuration"));
    } catch (error) {
      replace(config, h("p", null, `The configuration cannot be shown: ${error.message}.`));
    }
  }

  return {
    title: "Exporter",
    node,
    update(overview) {
      replace(health, sources(overview));
      load(overview.exporter.config_loaded_at);
    },
  };
}

function sources(overview) {
  const { redis, logs, exporter } = overview;
  const own = overview.findings.filter((finding) => finding.lock_namespace === null);
  const now = overview.now;
  const ago = (at) => (at === null ? "never" : `${span(now - at)} ago`);
  return [
    own.length > 0 ? findingList(own, false) : h("p", { class: "fine" }, levelIcon("well"), "Everything that is configured is read, and nothing is missing."),
    h("h2", null, "Redis"),
    redis === null ? h("p", null, "No Redis is configured: only the logs are read. Expiries, owners and causes are not known.")
      : [h("dl", { class: "numbers wide" },
          figure("name", redis.name),
          figure("connected", `${redis.nodes_up} of ${redis.nodes} primaries`, !redis.up && "critical"),
          figure("changes are", redis.tracking ? "pushed" : "found by passes", !redis.tracking && "blind"),
          figure("last pass over all keys", redis.scan_last_success_at === null ? `first one runs, ${percent(redis.scan_progress ?? 0)}` : ago(redis.scan_last_success_at)),
          figure("a pass takes", span(redis.scan_duration_seconds)),
          figure("keys, locks among them", `${number(redis.scan_keys)}, ${number(redis.scan_lock_keys)}`),
          figure("failovers and restarts seen", number(redis.failovers)),
          figure("failed connects", number(redis.connect_errors)),
          figure("time that Redis spent on us", span(redis.busy_seconds))),
        redis.complaints.length > 0 && h("ul", null, redis.complaints.map((complaint) => h("li", null, complaint)))],
    h("h2", null, "Logs"),
    logs.length === 0 ? h("p", null, "No logs are read: refused releases and renewals are not seen.")
      : h("table", { class: "sources" },
          h("thead", null, h("tr", null, ["source", "open files", "unread", "last line", "lines", "about locks", "read errors"].map((text) => h("th", { scope: "col" }, text)))),
          h("tbody", null, logs.map((log) => {
            const cell = (label, value) => h("td", { "data-label": label }, value);
            return h("tr", null, h("th", { scope: "row" }, h("code", null, log.source)), cell("open files", number(log.open_files)), cell("unread", bytes(log.lag_bytes)),
              cell("last line", ago(log.last_read_at)), cell("lines", number(log.lines)), cell("about locks", number(log.events)), cell("read errors", number(log.read_errors)));
          }))),
    h("h2", null, "Process"),
    h("dl", { class: "numbers wide" },
      figure("version", exporter.version), figure("revision", exporter.revision),
      figure("started", `${clock(exporter.started_at)}, ${ago(exporter.started_at)}`),
      figure("numbers from", overview.taken_at === null ? "none yet" : ago(overview.taken_at)),
      figure("state", !exporter.state_enabled ? "kept in memory only" : exporter.state_durable ? "saved" : "not saved", exporter.state_enabled && !exporter.state_durable && "warning"),
      figure("last save", exporter.state_enabled ? ago(exporter.state_saved_at) : "–"),
      figure("failed saves", number(exporter.state_save_errors)),
      figure("configuration loaded", `${clock(exporter.config_loaded_at)}${exporter.config_reload_ok ? "" : ", refused since"}`, !exporter.config_reload_ok && "warning")),
  ];
}

// Shows nested values as nested lists. Objects can be opened and closed.
function tree(value, name) {
  if (value === null) return h("span", { class: "muted" }, "not set");
  if (typeof value !== "object") return h("code", null, String(value));
  const entries = Object.entries(value);
  if (entries.length === 0) return h("span", { class: "muted" }, "none");
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return h("code", null, value.join(", "));
  const title = (key, one) => (Array.isArray(value) ? one?.lock_namespace ?? one?.path ?? key : key.replaceAll("_", " "));
  const row = ([key, one]) => {
    const isLarge = one !== null && typeof one === "object" && !(Array.isArray(one) && one.every((inner) => typeof inner !== "object")) && Object.keys(one).length > 0;
    if (!isLarge) return h("div", { class: "pair" }, h("dt", null, title(key, one)), h("dd", null, tree(one, key)));
    return h("div", { class: "pair large" }, h("dt", null), h("dd", null, h("details", { open: key === "redis" || key === "logs" }, h("summary", null, title(key, one)), tree(one, key))));
  };
  return h("dl", { class: "tree", "aria-label": name }, entries.map(row));
}
