// Tests the page in a real browser during a real incident.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";

import { openBrowser } from "./browser.js";
import { World, sleep, until } from "./world.js";

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const EVIL = `<img src=x onerror="window.hacked=1">`;
const EVIL_KEY = `cordum:wf:run:lock:${EVIL}`;
const LOST = 6;
const MANY = 130;

let world;
let browser;
let page;

before(async () => {
  world = await World.start();
  browser = await openBrowser();
  page = await browser.open(world.url);
});

after(async () => {
  await browser?.close();
  world?.stop();
});

const go = (target, hash) => target.goto(`${world.url}${hash}`);
const text = (target, selector) => target.locator(selector).innerText();
const sees = (target, selector, words) => target.locator(selector, { hasText: words }).first().waitFor();

// Returns whether the exporter saw all locks expire.
async function incident() {
  // Some successful work, so that the failure ratio has a denominator.
  for (let number = 0; number < 10; number += 1) {
    const key = `cordum:wf:run:lock:fine-${number}`;
    await world.release(key, await world.acquire(key, 30_000));
  }
  const runs = [...Array.from({ length: LOST - 1 }, (_, number) => `run-${number}`), EVIL];
  const lost = await Promise.all(runs.map((run) => world.lose(run)));
  const locks = await Promise.all(lost.map(({ key }) => world.lock(key)));
  return locks.every(({ holds }) => holds[1].ending === "expired");
}

test("nothing happened yet: the page reports no problem and lists what it observes", async () => {
  await go(page, "#/");
  await sees(page, ".hero h1", /^Observing for \d.* s; nothing wrong so far\. Every log is read and Redis is watched\.$/);
  assert.equal(await page.locator(".findings li").count(), 0);
  assert.equal(await text(page, "#fresh"), "live");
});

test("the incident comes first on the overview", async () => {
  // An exporter that gets no CPU time around a deadline does not know how a lock ended. In that
  // case the incident is repeated.
  for (let left = 5; !(await incident()) && left > 1; left -= 1) {
    await page.context().close();
    world.stop();
    world = await World.start();
    page = await browser.open(world.url);
  }
  await until("causes are found", async () => (await world.ask("incidents")).total === LOST);

  await sees(page, ".hero h1", "Wrong now: workflow.");
  const first = page.locator(".findings > li").first();
  assert.match(await first.innerText(), /^workflow\s*wrong\s*6 locks were lost \(observed for [^)]+\): \d+ % of releases and renewals were rejected, above 5 %\./);
  assert.equal(await first.locator("a.runbook").first().getAttribute("href"), "runbooks/RedisLockNotOwnedRatioHigh");
  const card = page.locator(".card").first();
  assert.match(await card.getAttribute("class"), /critical/);
  assert.match(await card.innerText(), /workflow/);
  assert.match(await card.locator("svg.spark").getAttribute("aria-label"), /6 refused/);
  assert.ok((await card.locator("svg.spark .bar.above").count()) > 0);
});

test("search finds the lock, and the page shows any key as plain text", async () => {
  await go(page, "#/namespace/workflow");
  await page.fill("#search", "onerror");
  await sees(page, "section [role=status]", "1 lock fits.");
  assert.deepEqual(await page.locator(".locks tbody th a").allInnerTexts(), [EVIL_KEY]);
  assert.equal(await page.locator("img").count(), 0);
  await page.click(".locks tbody th a");
  await sees(page, "h1.key", EVIL);
  assert.equal(await text(page, "h1.key"), EVIL_KEY);
  assert.equal(await page.locator("img").count(), 0);
  assert.equal(await page.evaluate(() => window.hacked), undefined);
});

test("the timeline shows the takeover and the verdict of the exporter", async () => {
  const key = "cordum:wf:run:lock:run-1";
  await go(page, `#/lock/${encodeURIComponent(key)}`);
  await page.locator("#verdict").waitFor();
  const told = await world.lock(key);
  const verdict = /^owner \w{8} held [\d.]+ s of a ([\d.]+) s TTL, last renewed ([\d.]+) s before; owner \w{8} took over [\d.]+ s after expiry: expired, renewals stopped$/;
  assert.match(told.verdict, verdict);
  for (const seconds of verdict.exec(told.verdict).slice(1)) assert.ok(Math.abs(seconds - 5) < 0.5, told.verdict);
  assert.equal((await text(page, "#verdict")).toLowerCase(), `${told.verdict}.`.toLowerCase());
  const [second, first] = told.holds;
  assert.notEqual(first.owner, second.owner);
  const drawn = page.locator(".timeline svg");
  assert.deepEqual(await drawn.locator("text.lane").allTextContents(), [first.owner, second.owner]);
  assert.equal(await drawn.locator("rect.hold").count(), 2);
  assert.equal(await drawn.locator("path.shape.expired").count(), 1);
  assert.match(await drawn.locator(".handover text").textContent(), /^\+[\d.]+ s$/);
  assert.match(await drawn.locator(".renewal title").first().textContent(), /renewed at .* with \d+ % of its TTL left/);
  assert.match(await drawn.locator(".log title").first().textContent(), /: not owned, rule cordum\/run-renewal-failed/);
  const events = (await page.locator(".events li").allInnerTexts()).join("\n");
  for (const words of ["acquired", "renewed with", "expired: its TTL ran out", "log line: not owned, rule cordum/run-renewal-failed"]) assert.ok(events.includes(words), `${words} in ${events}`);
});

test("incidents show a cause, an explanation and a runbook that the exporter serves", async () => {
  await go(page, "#/incidents");
  await sees(page, "[role=status]", `${LOST} remembered`);
  const all = await page.locator(".incidents li").allInnerTexts();
  assert.equal(all.length, LOST);
  assert.ok(all.every((one) => one.includes("expired, renewals stopped") && one.includes("took over")), all.join("\n"));
  assert.ok(all.some((one) => one.includes(EVIL)));
  await page.selectOption("#namespace", "scheduler");
  await sees(page, "[role=status]", "No lost lock is remembered.");
  await go(page, "#/incidents");
  await page.locator(".incidents a.runbook").first().click();
  await sees(page, "h1", "RedisLockRenewalFailureRatioHigh");
  await page.locator("a", { hasText: "Overview" }).first().click();
  await sees(page, ".hero h1", "Wrong now");
});

test("the exporter sorts and pages hundreds of locks", async () => {
  const key = (number) => `lock:tenant:acme:resource-${String(number).padStart(3, "0")}`;
  await Promise.all(Array.from({ length: MANY }, (_, number) => world.redis.command("SET", key(number), "x", "EX", 600 + number)));
  // The third lock changes its owner twice.
  for (const token of ["y", "z"]) {
    const before = await until("an owner", async () => (await world.lock(key(3))).now?.owner);
    await world.redis.command("SET", key(3), token, "EX", 900);
    await until("another owner", async () => { const { now } = await world.lock(key(3)); return now && now.owner !== before; });
  }
  await until("all are seen", async () => (await world.ask("locks?lock_namespace=resource")).total === MANY);
  await go(page, "#/namespace/resource?sort=key");
  await sees(page, "section [role=status]", `${MANY} locks are held, 1 to 50 of them here.`);
  const shown = () => page.locator(".locks tbody th a").allInnerTexts();
  assert.deepEqual((await shown()).slice(0, 2), [key(0), key(1)]);
  await page.click("#last");
  await sees(page, "section [role=status]", "101 to 130 of them here");
  assert.equal((await shown()).at(-1), key(MANY - 1));
  assert.match(page.url(), /offset=100/);
  await page.selectOption("#sort", "changes");
  await sees(page, "section [role=status]", "1 to 50 of them here");
  assert.equal((await shown())[0], key(3));
  assert.match(await page.locator(".locks tbody tr").first().innerText(), /\b2$/);
  await page.selectOption("#sort", "ttl");
  await page.locator(".locks tbody tr", { hasText: key(0) }).first().waitFor();
  assert.equal((await shown())[0], key(0));
});

test("the main workflow works with the keyboard alone", async () => {
  await go(page, "#/");
  await page.locator("#card-workflow").waitFor();
  const tabTo = async (wanted) => {
    for (let steps = 0; steps < 60; steps += 1) {
      if ((await page.evaluate(() => document.activeElement?.id ?? "")) === wanted) return;
      await page.keyboard.press("Tab");
    }
    assert.fail(`Tab does not reach ${wanted}`);
  };
  await tabTo("card-workflow");
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  assert.notEqual(outline, "none", "the focus must be visible");
  await page.keyboard.press("Enter");
  await sees(page, "h1", "workflow");
  await page.locator(".locks tbody tr").first().waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("run-2");
  await sees(page, "section [role=status]", "1 lock fits.");
  await tabTo("lock-cordum:wf:run:lock:run-2");
  // An updated element keeps the focus.
  await page.waitForResponse((response) => response.url().includes("/api/v1/locks?"));
  await until("the focus stays", () => page.evaluate(() => document.activeElement?.id === "lock-cordum:wf:run:lock:run-2"));
  await page.keyboard.press("Enter");
  await sees(page, "#verdict", "took over");
  assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
});

test("the exporter page shows its sources and no secret", async () => {
  await go(page, "#/exporter");
  await sees(page, "main", "Everything that is configured is read");
  await sees(page, ".tree", "addresses");
  await page.evaluate(() => document.querySelectorAll("details").forEach((node) => { node.open = true; }));
  const shown = await text(page, "main");
  for (const words of ["1 of 1 primaries", "pushed", "/*.log", "saved", "127.0.0.1:", "hidden", "cordum:wf:run:lock:{run_id}"]) {
    assert.ok(shown.includes(words), `${words} in ${shown}`);
  }
  assert.ok(!(await page.content()).includes(world.password));
});

const VIEWS = {
  overview: ["#/", ".card"],
  namespace: ["#/namespace/workflow", ".locks tbody tr"],
  lock: ["#/lock/cordum%3Awf%3Arun%3Alock%3Arun-1", ".timeline svg"],
  incidents: ["#/incidents", ".incidents li"],
  exporter: ["#/exporter", ".tree dt"],
  runbook: ["runbooks/RedisLockNotOwnedRatioHigh", "h2"],
  runbooks: ["runbooks/", "table"],
};

for (const [width, height] of [[1280, 900], [390, 844]]) {
  for (const colorScheme of ["dark", "light"]) {
    test(`the page has no serious accessibility problem and fits the window: ${width} px, ${colorScheme}`, async () => {
      const other = await browser.open(world.url, { viewport: { width, height }, colorScheme });
      for (const [name, [route, selector]] of Object.entries(VIEWS)) {
        await go(other, route);
        await other.locator(selector).first().waitFor();
        const wide = await other.evaluate(() => document.documentElement.scrollWidth - window.innerWidth);
        assert.ok(wide <= 0, `${name} is ${wide} px too wide`);
        // Runs outside the page's content security policy, like a browser extension.
        await other.evaluate(AXE);
        const { violations } = await other.evaluate(() => window.axe.run(document, { resultTypes: ["violations"] }));
        const bad = violations.filter((one) => ["serious", "critical"].includes(one.impact));
        const details = bad.map((one) => `${one.id}: ${one.nodes.map((node) => `${node.target} ${node.failureSummary}`).join("; ")}`);
        assert.deepEqual(details, [], `${name} at ${width} px, ${colorScheme}`);
      }
      await other.context().close();
    });
  }
}

test("the page sends no requests while the window is hidden", async () => {
  await go(page, "#/");
  await page.locator(".card").first().waitFor();
  const hide = (hidden) => page.evaluate((value) => {
    Object.defineProperty(document, "hidden", { configurable: true, get: () => value });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);
  await hide(true);
  await page.waitForLoadState("networkidle");
  let asked = 0;
  const count = () => { asked += 1; };
  page.on("request", count);
  await sleep(6000);
  assert.equal(asked, 0);
  await hide(false);
  await until("asked again", () => asked > 0);
  page.off("request", count);
});

test("the page reports an exporter that does not answer and never shows it as well", async () => {
  const other = await browser.open(world.url, { tolerant: true });
  await go(other, "#/");
  await sees(other, "#fresh", "live");
  world.exporter.kill("SIGSTOP");
  try {
    await sees(other, "#stale", "The exporter has not answered for");
    assert.match(await text(other, "#stale"), /What is shown is from \d\d:\d\d:\d\d and may be wrong by now\./);
    assert.equal(await text(other, "#fresh"), "not current");
    assert.ok(await other.evaluate(() => document.body.classList.contains("is-stale")));
  } finally {
    world.exporter.kill("SIGCONT");
  }
  await sees(other, "#fresh", "live");
  await other.locator("#stale").waitFor({ state: "hidden" });
  await other.context().close();
});

test("the first finding is a Redis that is down", async () => {
  await go(page, "#/");
  world.server.kill("SIGKILL");
  await sees(page, ".findings li", "Redis main is not reachable");
  assert.match(await page.locator(".findings li").first().getAttribute("class"), /critical/);
  assert.equal(await page.locator(".card.well").count(), 0, "no namespace with locks in Redis may be shown as well");
});

test("an exporter that reads only logs reports what it cannot observe", async () => {
  const logsOnly = await World.start({ watched: false });
  try {
    const other = await browser.open(logsOnly.url);
    await sees(other, ".hero h1", "; nothing wrong so far. Every log is read. Redis is not watched here, so expirations and causes are not observed.");
    logsOnly.log("workflow-engine", "run lock renewal failed", { run_id: "run-1", error: "lock not owned" });
    await sees(other, ".findings li", /1 lock was lost \(observed for [^)]+\); the number of successful operations is unknown\./);
    await other.goto(`${logsOnly.url}#/namespace/workflow`);
    await sees(other, "[role=status]", "Its keys are not watched in Redis here");
    await sees(other, ".incidents li", "What happened to the lock was not seen in Redis.");
    await other.goto(`${logsOnly.url}#/exporter`);
    await sees(other, "main", "No Redis is configured: only the logs are read.");
    await other.context().close();
  } finally {
    logsOnly.stop();
  }
});

test("nothing was logged to the console, no request failed, and no other site was contacted", () => {
  assert.deepEqual(browser.complaints, []);
  // Each page sends requests only to the exporter that served it.
  const foreign = browser.requests.filter(({ url, origin }) => !url.startsWith(`${origin}/`));
  assert.deepEqual(foreign, []);
  assert.ok(browser.requests.length > 10);
});
