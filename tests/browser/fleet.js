// Programs that lock as Cordum's do, for pictures: work that goes well, and from a moment on a workflow engine whose renewals
// stop, so that runs are taken over while it still works on them.

import { randomInt } from "node:crypto";

import { sleep } from "./world.js";

const between = (least, most) => least + Math.random() * (most - least);
const id = () => Array.from({ length: 8 }, () => randomInt(16).toString(16)).join("");

export class Fleet {
  constructor(world) {
    this.world = world;
    this.isFrozen = false;
    this.stopped = false;
    this.loops = [
      ...Array.from({ length: 14 }, () => this.#repeat(() => this.#work("cordum:wf:run:lock:run-", 30_000, 10_000, [6_000, 42_000], true), [300, 4000])),
      ...Array.from({ length: 9 }, () => this.#repeat(() => this.#work("cordum:scheduler:job:job-", 60_000, 20_000, [4_000, 50_000]), [500, 5000])),
      ...Array.from({ length: 3 }, () => this.#repeat(() => this.#work("cordum:scheduler:job:approve-", 10_000, null, [700, 4_000]), [1000, 6000])),
      ...Array.from({ length: 2 }, () => this.#repeat(() => this.#work("cordum:wf:run:admission:org-", 10_000, null, [150, 900]), [400, 2500])),
      this.#repeat(() => this.#work("lock:tenant:acme:report-", 120_000, null, [15_000, 70_000]), [2_000, 9_000]),
      this.#repeat(() => this.#work("saga:checkout-", 120_000, null, [1_000, 6_000], false, ":lock"), [8_000, 20_000]),
      this.#repeat(() => this.#lead("cordum:reconciler:default", 60_000), [2_000, 4_000]),
      this.#repeat(() => this.#lead("cordum:replayer:pending", 60_000), [2_000, 4_000]),
      this.#repeat(() => this.#lead("cordum:workflow-engine:reconciler:default", 10_000), [500, 1500]),
      this.#repeat(() => this.#lead("cordum:wf:delay:poller", 10_000), [500, 1500]),
    ];
  }

  async stop() {
    this.stopped = true;
    await Promise.allSettled(this.loops);
  }

  // From now on, or no longer, the engine stands still for longer than its locks last.
  freeze(isFrozen) {
    this.isFrozen = isFrozen;
  }

  async #pause(milliseconds) {
    const end = Date.now() + milliseconds;
    while (!this.stopped && Date.now() < end) await sleep(Math.min(250, end - Date.now()));
  }

  async #repeat(work, rest) {
    await this.#pause(between(0, 8000));
    while (!this.stopped) {
      await work();
      await this.#pause(between(...rest));
    }
  }

  async #lead(key, ttl) {
    await this.world.acquire(key, ttl);
  }

  async #work(prefix, ttl, every, hold, mayFreeze = false, suffix = "") {
    const name = id();
    const key = `${prefix}${name}${suffix}`;
    const token = await this.world.acquire(key, ttl);
    if (!token) return;
    const end = Date.now() + between(...hold);
    while (!this.stopped && Date.now() < end) {
      await this.#pause(Math.min(every ? every * between(0.97, 1.06) : Infinity, end - Date.now()));
      if (mayFreeze && this.isFrozen && Math.random() < 0.6) return this.#freeze(key, token, ttl, `run-${name}`);
      if (every && Date.now() < end) await this.world.renew(key, token, ttl);
    }
    await this.world.release(key, token);
  }

  // Another replica polls the run and takes it over; the first one finds out when it wakes up.
  async #freeze(key, token, ttl, run) {
    const deadline = Date.now() + ttl + 8_000;
    let other = null;
    while (!this.stopped && !other && Date.now() < deadline) {
      await this.#pause(between(900, 2200));
      other = await this.world.acquire(key, ttl);
    }
    await this.#pause(between(1_000, 5_000));
    if (!(await this.world.renew(key, token, ttl))) {
      this.world.log("workflow-engine", "run lock renewal failed", { run_id: run, error: "lock not owned" });
    }
    for (let round = 0; other && round < 3 && !this.stopped; round += 1) {
      await this.#pause(9_800);
      await this.world.renew(key, other, ttl);
    }
    if (other) await this.world.release(key, other);
  }
}
