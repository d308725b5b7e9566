// The program's own simulated services (examples/cordum_fleet) on the Redis of a world, at the speed of real life, for pictures: work
// that goes well, and from a moment on a node that freezes for longer than its locks live, so that runs are taken over while it
// still works on them.

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
