// What is wrong now, then every namespace with its last hour.

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

// Worst first. With names where they are not known from the context.
export function findingList(findings, withNames) {
  if (findings.length === 0) return null;
  const item = (finding) => {
    const name = finding.lock_namespace;
    const subject = withNames && (name === null ? h("a", { class: "subject", href: "#/exporter" }, "exporter")
      : h("a", { class: "subject", href: toNamespace(name) }, name));
    return h("li", { class: finding.level }, levelIcon(finding.level), h("span", { class: "unseen" }, levelWord(finding.level)),
      h("div", null, subject, h("span", { class: "text" }, finding.text)), runbookLink(finding.runbook));
  };
  return h("ul", { class: "findings" }, findings.map(item));
}

function namespaces(overview) {
  const rank = (one) => ORDER.indexOf(one.level);
  const sorted = [...overview.namespaces].sort((left, right) => rank(left) - rank(right) || activity(right) - activity(left));
  const isQuiet = (one) => one.level === "well" && activity(one) === 0;
  const quiet = sorted.filter(isQuiet);
  const busy = sorted.filter((one) => !isQuiet(one));
  const link = (one) => h("a", { href: toNamespace(one.lock_namespace), id: `quiet-${one.lock_namespace}` }, one.lock_namespace);
  return [
    h("div", { class: "heading" }, h("h2", null, "Lock namespaces"), busy.length > 0 && legend()),
    h("ul", { class: "cards" }, busy.map((one) => card(one, overview.line_step_seconds))),
    quiet.length > 0 && h("div", { class: "quiet" }, h("h3", null, "Quiet: nothing held, nothing happened in the last hour"),
      h("ul", null, quiet.map((one) => h("li", null, link(one))))),
  ];
}

function legend() {
  const mark = (name) => h("span", { class: `mark ${name}`, "aria-hidden": "true" });
  return h("p", { class: "legend" }, "last hour: ", mark("operations"), "releases and renewals, ", mark("refused"), "refused share");
}

function activity(one) {
  const hour = one.lately["1h"];
  const happened = hour.acquisitions + hour.renewals + hour.releases + hour.expirations + hour.not_owned + hour.renewal_failures;
  return happened + (one.keyspace?.held ?? 0);
}

function card(one, step) {
  const { lock_namespace: name, keyspace, lately } = one;
  const minutes = lately["5m"];
  const ratio = keyspace?.not_owned_ratio;
  const now = Date.now() / 1000;
  const oldest = keyspace?.oldest_acquired;
  return h("li", { class: `card ${one.level}` },
    h("div", { class: "card-head" }, h("h3", null, h("a", { href: toNamespace(name), id: `card-${name}` }, name)), badge(one.level)),
    spark(one, step),
    h("dl", { class: "numbers" },
      figure("lost, 5 min", number(minutes.not_owned), minutes.not_owned > 0 && one.level),
      figure("refused share", percent(ratio), minutes.not_owned > 0 && one.level),
      figure("held now", number(keyspace?.held)),
      figure("oldest", oldest ? span(now - oldest) : "–")));
}

export function figure(label, value, level) {
  return h("div", null, h("dt", null, label), h("dd", { class: level || null }, value));
}

// A line for the operations, scaled to its own height, and a bar wherever operations were refused: its height is the share of
// them, its colour says whether that is above the namespace's own threshold.
export function spark(one, step, tall) {
  const { operations, not_owned: lost } = one.line;
  const count = operations.length;
  const [width, height] = [count * 4, tall ? 120 : 44];
  const most = Math.max(1, ...operations);
  const x = (index) => index * 4 + 2;
  const y = (value) => height - 2 - (value / most) * (height - 8);
  const points = operations.map((value, index) => `${x(index)},${y(value).toFixed(1)}`);
  const threshold = one.not_owned_ratio_threshold ?? 0.05;
  const bars = lost.map((value, index) => {
    if (value === 0) return null;
    const share = value / (value + operations[index]);
    const tallness = Math.max(6, Math.sqrt(share) * (height - 4));
    const kind = share > threshold ? "bar above" : "bar";
    return svg("rect", { class: kind, x: x(index) - 1.6, y: (height - tallness).toFixed(1), width: 3.2, height: tallness.toFixed(1), rx: 1 });
  });
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const minutes = Math.round((count * step) / 60);
  const label = `The last ${minutes} minutes: ${number(total(operations))} releases and renewals, ${number(total(lost))} refused.`;
  return svg("svg", { class: tall ? "spark tall" : "spark", viewBox: `0 0 ${width || 480} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
    svg("title", null, label),
    svg("path", { class: "area", d: count ? `M${x(0)},${height} L${points.join(" L")} L${x(count - 1)},${height} Z` : "" }),
    svg("polyline", { class: "line", points: points.join(" ") }),
    bars);
}
