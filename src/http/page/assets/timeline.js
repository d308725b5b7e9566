// Draws the history of a lock: a bar for each hold in the lane of its owner, a tick for each
// renewal (the higher, the more time was left), a mark for each end, an arc from one owner to the
// next, and log lines below.

import { h, svg } from "./dom.js";
import { clock, percent, span, words } from "./format.js";

const LANE = 44;
const BAR = 16;
const TOP = 14;
const AXIS = 26;
// One shape for each kind of event, used in the chart, in its legend and in the list below.
const SHAPES = {
  acquired: "M-6-3h12v6h-12Z", first_seen: "M-6-3h12v6h-12Z", renewed: "M0 6V-4M-2.4-4a2.4 2.4 0 1 0 4.8 0a2.4 2.4 0 1 0-4.8 0",
  last_renewed: "M0 6V-4M-2.4-4a2.4 2.4 0 1 0 4.8 0a2.4 2.4 0 1 0-4.8 0", released: "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0-8 0",
  expired: "M-5-5 5 5M5-5-5 5", taken_over: "M-4-6 5 0-4 6Z", log: "M-5 5 0-5 5 5Z",
};
const OTHER = "M0-6 6 0 0 6-6 0Z";

const shape = (what) => SHAPES[what] ?? OTHER;

export function mark(what) {
  return svg("svg", { class: "mark-icon", viewBox: "-8 -8 16 16", "aria-hidden": "true" }, svg("path", { class: `shape ${what}`, d: shape(what) }));
}

// What a log line was counted as. The reason is added if it differs.
export const logWords = (one) => words(one.event) + (one.reason && one.reason !== one.event ? ` (${words(one.reason)})` : "");

export function timeline(holds, history, now) {
  const frame = h("div", { class: "timeline" });
  return { node: h("figure", null, frame, key()), draw: () => frame.replaceChildren(picture(holds, history, now, frame.clientWidth || 800)) };
}

function key() {
  const item = (name, text) => h("span", null, mark(name), text);
  return h("figcaption", { class: "legend" }, item("renewed", "renewed; the higher, the more time was left"), item("released", "released"),
    item("expired", "expired"), item("taken_over", "taken over"), item("log", "log line"));
}

function picture(holds, history, now, width) {
  const ordered = [...holds].reverse();
  const owners = [...new Set(ordered.map((hold) => hold.owner ?? "not readable"))];
  const first = Math.min(...ordered.map((hold) => hold.began_at));
  const last = Math.max(...ordered.map((hold) => hold.ended_at ?? Math.max(now, Math.min(hold.deadline_at ?? now, now + 60))));
  const inside = history.filter((one) => one.at >= first - 0.001);
  const logs = inside.filter((one) => one.what === "log" && one.at <= Math.max(last, now) + 1);
  const end = Math.max(last, ...logs.map((one) => one.at), first + 1);
  const narrow = width < 600;
  const left = narrow ? 8 : 96;
  const right = 16;
  const length = end - first;
  const x = (at) => left + ((at - first) / length) * (width - left - right);
  const laneOf = (owner) => TOP + owners.indexOf(owner ?? "not readable") * LANE + (narrow ? 14 : 0);
  const lanesHeight = TOP + owners.length * LANE - 8 + (narrow ? 14 : 0);
  const height = lanesHeight + (logs.length > 0 ? 34 : 0) + AXIS;
  const parts = [];
  // Drawn last, on top of everything else.
  const handovers = [];

  parts.push(axis(first, end, x, height, width, left, right));
  for (const owner of owners) {
    const y = laneOf(owner);
    parts.push(svg("text", { class: "lane", x: narrow ? left : 14, y: narrow ? y - 3 : y + BAR / 2 + 4 }, owner));
    parts.push(svg("line", { class: "rail", x1: left, x2: width - right, y1: y + BAR / 2, y2: y + BAR / 2 }));
  }

  ordered.forEach((hold, index) => {
    const y = laneOf(hold.owner);
    const ended = hold.ended_at ?? now;
    const [from, to] = [x(hold.began_at), Math.max(x(ended), x(hold.began_at) + 3)];
    const what = hold.ending ? words(hold.ending) : "held now";
    const label = `owner ${hold.owner ?? "not readable"}, ${clock(hold.began_at)}, ${span(ended - hold.began_at)}, ${what}`;
    const tone = `hold tone-${owners.indexOf(hold.owner ?? "not readable") % 5}`;
    parts.push(svg("rect", { class: tone, x: from, y, width: to - from, height: BAR, rx: 4 }, svg("title", null, label)));
    if (!hold.acquisition_seen) parts.push(svg("path", { class: "ragged", d: `M${from} ${y}l3 4l-3 4l3 4l-3 4` }));
    if (hold.deadline_at && hold.deadline_at > ended && hold.ending !== "expired") {
      parts.push(svg("rect", { class: "left", x: to, y: y + 4, width: Math.max(0, Math.min(x(hold.deadline_at), width - right) - to), height: BAR - 8, rx: 2 },
        svg("title", null, `would have lasted until ${clock(hold.deadline_at)}`)));
    }
    if (hold.ending) {
      const mark = svg("path", { class: `shape ${hold.ending}`, d: shape(hold.ending), transform: `translate(${to} ${y + BAR / 2})` });
      parts.push(svg("g", null, svg("title", null, `${what} at ${clock(hold.ended_at)}`), mark));
    }
    const next = ordered[index + 1];
    if (next && next.owner !== hold.owner) handovers.push(arc(to, y + BAR / 2, x(next.began_at), laneOf(next.owner) + BAR / 2, next.began_at - ended, width));
  });

  for (const one of inside.filter((one) => one.what === "renewed" || one.what === "last_renewed")) {
    const y = laneOf(one.owner);
    if (!owners.includes(one.owner ?? "not readable") || one.at > end) continue;
    const margin = one.margin ?? 0.5;
    const tall = 5 + margin * 12;
    const low = one.margin !== null && margin < 0.25;
    const label = one.margin === null ? `renewed at ${clock(one.at)}` : `renewed at ${clock(one.at)} with ${percent(margin)} of its TTL left`;
    parts.push(svg("g", { class: low ? "renewal low" : "renewal" }, svg("title", null, label),
      svg("line", { x1: x(one.at), x2: x(one.at), y1: y + BAR, y2: y + BAR - tall - 2 }), svg("circle", { cx: x(one.at), cy: y + BAR - tall - 2, r: 2.6 })));
  }

  let lastLabel = -Infinity;
  for (const one of [...logs].reverse()) {
    const at = x(one.at);
    const y = lanesHeight + 12;
    const text = logWords(one);
    parts.push(svg("g", { class: "log" }, svg("title", null, `${clock(one.at)}: ${text}, rule ${one.rule}`),
      svg("line", { x1: at, x2: at, y1: TOP - 6, y2: y - 5 }), svg("path", { class: "shape log", d: shape("log"), transform: `translate(${at} ${y})` })));
    const size = text.length * 6.2 + 16;
    const isLate = at + size > width;
    const start = isLate ? at - size : at;
    if (start > lastLabel && start > 0) {
      parts.push(svg("text", { class: "log-label", x: isLate ? at - 9 : at + 9, y: y + 4, "text-anchor": isLate ? "end" : "start" }, text));
      lastLabel = start + size;
    }
  }

  const described = `${ordered.length} holds by ${owners.length} owners from ${clock(first)} to ${clock(end)}; the list below has every event.`;
  return svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": described }, svg("title", null, described), parts, handovers);
}

// Draws an arc from the end of one owner's hold to the start of the next owner's hold, with the
// time in between.
function arc(x1, y1, x2, y2, gap, width) {
  const bend = Math.max(10, Math.abs(x2 - x1) / 2);
  const text = gap > 0.05 ? `+${span(gap)}` : "at once";
  const size = text.length * 6.4;
  const isLate = Math.max(x1, x2) + 10 + size > width;
  const label = svg("text", { class: "gap", x: isLate ? Math.min(x1, x2) - 10 : Math.max(x1, x2) + 10, y: (y1 + y2) / 2 + 4, "text-anchor": isLate ? "end" : "start" }, text);
  return svg("g", { class: "handover" }, svg("path", { d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}` }), label);
}

function axis(first, end, x, height, width, left, right) {
  const steps = [0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
  const wanted = Math.max(2, Math.floor((width - left - right) / 110));
  const step = steps.find((candidate) => (end - first) / candidate <= wanted) ?? 604800;
  const ticks = [];
  for (let at = Math.ceil(first / step) * step; at <= end; at += step) {
    const place = x(at);
    const isNearEdge = place > width - 36;
    ticks.push(svg("line", { class: "grid", x1: place, x2: place, y1: 4, y2: height - AXIS + 4 }));
    ticks.push(svg("text", { class: "tick", x: place, y: height - 8, "text-anchor": isNearEdge ? "end" : place < left + 30 ? "start" : "middle" }, clock(at)));
  }
  return svg("g", { class: "axis" }, ticks);
}
