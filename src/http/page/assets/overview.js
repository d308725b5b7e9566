// The overview: what is wrong now, then every lock namespace with its last hour.

import { badge, h, levelIcon, levelWord, replace, runbookLink, svg, toNamespace } from "./dom.js";
import { number, percent, span } from "./format.js";

const ORDER = ["critical", "blind", "warning", "well"];

export function overview() {
  const hero = h("section", { class: "hero", "aria-live": "polite" }, h("h1", null, "Asking the exporter …"));
  const findings = h("section", { "aria-label": "Wrong now" });
  const cards = h("section", { "aria-label": "Lock namespaces" });
  const node = h("div", null, hero, findings, cards);
  return {
    title: "Overview",
    node,
    update(overview) {
      replace(hero, headline(overview));
      replace(findings, findingList(overview.findings, true));
      replace(cards, namespaces(overview));
    },
  };
}

function headline(overview) {
  const { level, summary } = overview;
  return [levelIcon(level), h("h1", { class: level }, summary)];
}

// Findings, worst first, grouped by lock namespace. `withNames` adds the name of each lock
// namespace.
export function findingList(findings, withNames) {
  if (findings.length === 0) return null;
  const groups = new Map();
  for (const finding of findings) groups.set(finding.lock_namespace, [...(groups.get(finding.lock_namespace) ?? []), finding]);
  const subject = (name) => (name === null ? h("a", { class: "subject", id: "found-exporter", href: "#/exporter" }, "exporter")
    : h("a", { class: "subject", id: `found-${name}`, href: toNamespace(name) }, name));
  const line = (finding) => h("li", { class: finding.level }, levelIcon(finding.level), h("span", { class: "unseen" }, levelWord(finding.level)),
    h("span", { class: "text" }, finding.text), runbookLink(finding.runbook));
  const group = ([name, found]) => h("li", { class: found[0].level }, withNames && subject(name), h("ul", null, found.map(line)));
  return h("ul", { class: "findings" }, [...groups].map(group));
}

function namespaces(overview) {
  const rank = (one) => ORDER.indexOf(one.level);
  // Sorted by level. Equal levels keep the order of the configuration.
  const sorted = [...overview.namespaces].sort((left, right) => rank(left) - rank(right));
  const isQuiet = (one) => one.findings.length === 0 && !hasHappened(one);
  const quiet = sorted.filter(isQuiet);
  const busy = sorted.filter((one) => !isQuiet(one));
  const link = (one) => h("a", { href: toNamespace(one.lock_namespace), id: `quiet-${one.lock_namespace}` }, one.lock_namespace);
  return [
    h("div", { class: "heading" }, h("h2", null, "Lock namespaces"), busy.length > 0 && legend()),
    h("ul", { class: "cards" }, busy.map((one) => card(one, overview))),
    quiet.length > 0 && h("div", { class: "quiet" }, h("h3", null, quiet.every((one) => one.level === "well") ? "Quiet: nothing held, nothing happened in the last hour" : "Nothing was seen of these in the last hour"),
      h("ul", null, quiet.map((one) => h("li", null, link(one))))),
  ];
}

function legend() {
  const item = (name, text) => h("span", null, h("span", { class: `mark ${name}`, "aria-hidden": "true" }), text);
  return h("p", { class: "legend" }, h("span", null, "last hour:"), item("operations", "operations"), item("refused", "share refused"),
    item("unobserved", "not observed"));
}

function hasHappened(one) {
  return (one.keyspace?.held ?? 0) > 0 || Object.values(one.lately["1h"]).some((count) => count > 0);
}

function card(one, overview) {
  const { lock_namespace: name, keyspace, lately } = one;
  const minutes = lately["5m"];
  const { now } = overview;
  const oldest = keyspace?.oldest_acquired;
  // A loop lock is held until it expires, so the card shows its terms.
  const second = one.style === "loop" ? figure("terms, 5 min", number(keyspace ? minutes.expirations : null))
    : figure("share refused", percent(keyspace?.not_owned_ratio), minutes.not_owned > 0 && one.level);
  return h("li", { class: `card ${one.level}` },
    h("div", { class: "card-head" }, h("h3", null, h("a", { href: toNamespace(name), id: `card-${name}` }, name)), badge(one.level)),
    spark(one, overview),
    h("dl", { class: "numbers" },
      figure("lost, 5 min", number(minutes.not_owned), minutes.not_owned > 0 && one.level),
      second,
      figure("held now", number(keyspace?.held)),
      figure("oldest", oldest ? span(now - oldest) : "–")));
}

export function figure(label, value, level) {
  return h("div", null, h("dt", null, label), h("dd", { class: level || null }, value));
}

// Draws a line for the operations, scaled to the height of the chart, and a bar for each step with
// refused operations. The height of a bar shows their share. Its color shows whether the share is
// above the threshold of the lock namespace. Time that was not observed has only a baseline.
export function spark(one, overview, tall) {
  const { not_owned: lost } = one.line;
  const step = overview.line_step_seconds;
  const count = lost.length;
  const observed = one.line.observed_seconds;
  // The step in which the observation began and the last step are incomplete.
  const whole = observed.slice(0, -1).findIndex((seconds) => seconds >= step);
  const first = whole < 0 ? Math.max(0, count - 1) : whole;
  const operations = one.style === "loop" ? terms(one, step, first) : one.line.operations;
  const [width, height] = [count * 4, tall ? 120 : 44];
  const most = Math.max(1, ...operations);
  const x = (index) => index * 4 + 2;
  const y = (value) => height - 2 - (value / most) * (height - 8);
  const points = operations.slice(0, -1).map((value, index) => `${x(index)},${y(value).toFixed(1)}`).slice(first);
  const threshold = one.not_owned_ratio_threshold ?? 0.05;
  const bars = lost.map((value, index) => {
    if (value === 0) return null;
    const share = value / (value + operations[index]);
    const tallness = Math.max(6, Math.sqrt(share) * (height - 4));
    const kind = share > threshold ? "bar above" : "bar";
    return svg("rect", { class: kind, x: x(index) - 1.6, y: (height - tallness).toFixed(1), width: 3.2, height: tallness.toFixed(1), rx: 1 });
  });
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const minutes = Math.round(one.observed_seconds["1h"] / 60);
  const unobserved = observed.map((seconds, index) => index > first && seconds === 0
    && svg("line", { class: "unobserved", x1: x(index) - 2, x2: x(index) + 2, y1: height - 2, y2: height - 2 }));
  const happened = total(one.line.operations) + (one.style === "loop" ? total(one.line.expirations) : 0);
  const label = `${minutes} observed minutes of the last hour: ${number(happened)} operations, ${number(total(lost))} refused.`;
  return svg("svg", { class: tall ? "spark tall" : "spark", viewBox: `0 0 ${width || 480} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("title", null, label),
    first > 0 && svg("line", { class: "unobserved", x1: 2, x2: x(Math.min(first, count - 1)), y1: height - 2, y2: height - 2 }),
    points.length > 1 && svg("path", { class: "area", d: `M${x(first)},${height - 2} L${points.join(" L")} L${x(count - 2)},${height - 2} Z` }),
    svg("polyline", { class: "line", points: points.join(" ") }),
    unobserved,
    bars);
}

// If a term is longer than a step, only every second or third step has an end. The line therefore
// shows the mean over several terms.
function terms(one, step, first) {
  const ended = one.line.operations.map((value, index) => value + one.line.expirations[index]);
  const width = Math.ceil((one.ttl_seconds ?? step) / step) * 4;
  const mean = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
  return ended.map((_, index) => (index < first ? 0 : mean(ended.slice(Math.max(first, index - width + 1), index + 1))));
}
