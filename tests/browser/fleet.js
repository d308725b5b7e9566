// Runs the simulated services of examples/cordum_fleet on the Redis of a world, in real time, for
// screenshots. At first all work succeeds. Later a node freezes for longer than the TTL of its
// locks, so that other nodes take over runs that it still works on.

import { example } from "./world.js";

export class Fleet {
  // Ends with the world.
  constructor(world) {
    this.process = world.run(example("cordum_fleet"), ["run", "--redis", world.redisUrl, "--logs", world.directory, "--speed", 1, "--nodes", 3]);
  }

  freeze() {
    this.process.stdin.write("pauses\n");
  }
}
