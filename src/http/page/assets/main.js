// Chooses the view for the route, polls the overview, and shows how old the numbers are.
//
// Each view is a function that returns { title, node, update(overview), close() }; the last two are
// optional. The view builds its node once. `update` is called with each new overview. The page does
// not poll while its window is hidden.

import { ask, setClock } from "./ask.js";
import { h, replace } from "./dom.js";
import { clock, span } from "./format.js";
import { overview } from "./overview.js";
import { namespace } from "./namespace.js";
import { lock } from "./lock.js";
import { incidents } from "./incidents.js";
import { exporter } from "./exporter.js";

const EVERY_MS = 5000;
// Older numbers are shown as not current.
const STALE_MS = 15000;

const main = document.getElementById("main");
const fresh = document.getElementById("fresh");
const stale = document.getElementById("stale");

let view = null;
let route = null;
let latest = null;
// Time of the last overview by the browser's clock, and the error of the last poll.
let answeredAt = 0;
let failure = "";
let timer = 0;

const routes = [
  [/^\/?$/, "", () => overview()],
  [/^\/namespace\/([^?]+)(?:\?(.*))?$/, "", (name, query) => namespace(decodeURIComponent(name), new URLSearchParams(query ?? ""))],
  [/^\/lock\/(.+)$/, "", (key) => lock(decodeURIComponent(key))],
  [/^\/incidents(?:\?(.*))?$/, "#/incidents", (query) => incidents(new URLSearchParams(query ?? ""))],
  [/^\/exporter$/, "#/exporter", () => exporter()],
];

function open() {
  const path = location.hash.replace(/^#/, "");
  // Not a route but an anchor, such as that of the link that skips to the content.
  if (path && !path.startsWith("/")) return;
  view?.close?.();
  view = null;
  const isFirst = route === null;
  route = path;
  let made;
  let current = "#/";
  for (const [pattern, link, make] of routes) {
    const found = pattern.exec(path);
    if (!found) continue;
    try {
      made = make(...found.slice(1));
      current = link || "#/";
    } catch {
      made = undefined;
    }
    break;
  }
  made ??= unknown(path);
  view = made;
  document.title = `${made.title} · redis_lock_exporter`;
  for (const link of document.querySelectorAll(".top nav a")) {
    if (link.getAttribute("href") === current) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  replace(main, made.node);
  if (latest) made.update?.(latest);
  if (!isFirst) {
    window.scrollTo(0, 0);
    main.focus({ preventScroll: true });
  }
}

function unknown(path) {
  const node = h("section", null, h("h1", null, "There is no such page"), h("p", null, "Nothing is at ", h("code", null, path), "."),
    h("p", null, h("a", { href: "#/" }, "To the overview")));
  return { title: "not found", node };
}

async function poll() {
  clearTimeout(timer);
  if (document.hidden) return;
  try {
    latest = await ask("api/v1/overview");
    setClock(latest.now);
    answeredAt = Date.now();
    failure = "";
    const { version, revision } = latest.exporter;
    document.getElementById("build").textContent = revision === "unknown" ? `version ${version}` : `version ${version} (${revision})`;
    view?.update?.(latest);
  } catch (error) {
    failure = error.message;
  }
  showFreshness();
  clearTimeout(timer);
  timer = setTimeout(poll, EVERY_MS);
}

// Marks old numbers as not current, even if the last response was good.
function showFreshness() {
  const age = Date.now() - answeredAt;
  const isStale = answeredAt > 0 && (age > STALE_MS || failure !== "");
  const neverAnswered = answeredAt === 0 && failure !== "";
  document.body.classList.toggle("is-stale", isStale || neverAnswered);
  fresh.textContent = answeredAt === 0 ? "" : isStale ? "not current" : "live";
  fresh.classList.toggle("old", isStale);
  const why = failure ? ` (${failure})` : "";
  const text = neverAnswered ? `The exporter does not answer${why}. Nothing is known.`
    : `The exporter has not answered for ${span(age / 1000)}${why}. What is shown is from ${clock(answeredAt / 1000)} and may be wrong by now.`;
  const isShown = isStale || neverAnswered;
  if (stale.hidden === isShown) stale.hidden = !isShown;
  if (isShown && stale.textContent !== text) stale.textContent = text;
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) clearTimeout(timer);
  else poll();
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target instanceof HTMLInputElement || event.target instanceof HTMLSelectElement;
  const search = document.getElementById("search");
  if (event.key === "/" && !isTyping && search) {
    event.preventDefault();
    search.focus();
  }
});
window.addEventListener("hashchange", open);
setInterval(showFreshness, 1000);
open();
poll();
