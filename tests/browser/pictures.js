// Makes docs/images/page-*.png from a real run: `node pictures.js [MINUTES]`. A longer run shows
// more of the last hour in the charts. The failure begins four minutes before the end.

import { mkdirSync, writeFileSync } from "node:fs";
import path from "node:path";

import { openBrowser } from "./browser.js";
import { Fleet } from "./fleet.js";
import { World, sleep, until } from "./world.js";

const IMAGES = process.env.IMAGES;
const TROUBLE_MINUTES = 4;

const minutes = Number(process.argv[2] ?? 20);
const world = await World.start();
const browser = await openBrowser();
try {
  const fleet = new Fleet(world);
  process.stderr.write(`the exporter is at ${world.url}\n`);
  if (process.env.WORLD_FILE) writeFileSync(process.env.WORLD_FILE, world.url);
  await sleep(Math.max(0, minutes - TROUBLE_MINUTES) * 60_000);
  fleet.freeze();
  await sleep(Math.min(minutes, TROUBLE_MINUTES) * 60_000);
  await until("incidents", async () => (await world.ask("incidents")).total > 0);
  mkdirSync(IMAGES, { recursive: true });
  await take();
} finally {
  await browser.close();
  world.stop();
}

async function take() {
  const { incidents } = await world.ask("incidents?limit=1000");
  // Old enough that the next owner has renewed the lock, recent enough that the lock is still held.
  const lost = incidents.find((one) => one.verdict?.includes("took over") && Date.now() / 1000 - one.at > 12) ?? incidents[0];
  const lock = `#/lock/${encodeURIComponent(lost.lock)}`;
  await shoot("overview", "#/", ".card", { height: 860 });
  await shoot("namespace", "#/namespace/workflow?sort=held", ".locks tbody tr", { height: 1000 });
  await shoot("lock", lock, ".timeline svg", { height: 860 });
  await shoot("overview-light", "#/", ".card", { height: 860, colorScheme: "light" });
  await shoot("phone", "#/", ".card", { width: 390, height: 844, scale: 2 });
  await shoot("phone-lock", lock, ".timeline svg", { width: 390, height: 844, scale: 2, colorScheme: "light" });
}

async function shoot(name, route, selector, { width = 1280, height, colorScheme = "dark", scale = 1 }) {
  const page = await browser.open(`${world.url}${route}`, { viewport: { width, height }, colorScheme, scale });
  await page.locator(selector).first().waitFor();
  await page.waitForLoadState("networkidle");
  await page.screenshot({ path: path.join(IMAGES, `page-${name}.png`) });
  await page.context().close();
}
