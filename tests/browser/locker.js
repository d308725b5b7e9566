// The program's own locker (examples/lock_by_hand) on the Redis of a world: locks are taken, renewed and released as its simulated
// workers do it.

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

  // Answers come in the order of the questions.
  ask(command) {
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      this.process.stdin.write(`${JSON.stringify(command)}\n`);
    });
  }
}
