// Runs examples/lock_by_hand on the Redis of a world. It acquires, renews and releases locks like
// the simulated workers.

import { createInterface } from "node:readline";

import { example } from "./world.js";

export class Locker {
  // Ends with the world.
  constructor(world) {
    this.process = world.run(example("lock_by_hand"), [world.redisUrl]);
    this.waiting = [];
    createInterface({ input: this.process.stdout }).on("line", (line) => this.waiting.shift().resolve(JSON.parse(line)));
    this.process.on("exit", () => this.waiting.forEach(({ reject }) => reject(new Error("the locker has ended"))));
  }

  // Answers arrive in the order of the commands.
  ask(command) {
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      this.process.stdin.write(`${JSON.stringify(command)}\n`);
    });
  }
}
