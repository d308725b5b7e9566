// A minimal Redis client: one connection, commands in order.

import net from "node:net";

export class Redis {
  static async connect(port) {
    const socket = net.connect(port, "127.0.0.1");
    await new Promise((resolve, reject) => socket.once("connect", resolve).once("error", reject));
    return new Redis(socket);
  }

  constructor(socket) {
    this.socket = socket;
    this.waiting = [];
    this.buffer = Buffer.alloc(0);
    socket.on("data", (data) => {
      this.buffer = Buffer.concat([this.buffer, data]);
      for (let reply = this.take(); reply; reply = this.take()) {
        const { resolve, reject } = this.waiting.shift();
        if (reply.error) reject(new Error(reply.error));
        else resolve(reply.value);
      }
    });
    const fail = (error) => this.waiting.splice(0).forEach(({ reject }) => reject(error ?? new Error("Redis closed the connection")));
    socket.on("error", fail).on("close", () => fail());
  }

  command(...words) {
    const parts = words.map((word) => `$${Buffer.byteLength(String(word))}\r\n${word}\r\n`);
    return new Promise((resolve, reject) => {
      this.waiting.push({ resolve, reject });
      this.socket.write(`*${words.length}\r\n${parts.join("")}`);
    });
  }

  // Takes one complete reply from the buffer. Does not support arrays, because no command used here
  // returns one.
  take() {
    const end = this.buffer.indexOf("\r\n");
    if (end < 0) return null;
    const [kind, line] = [String.fromCharCode(this.buffer[0]), this.buffer.toString("utf8", 1, end)];
    let next = end + 2;
    let value = line;
    if (kind === "$" && line === "-1") value = null;
    else if (kind === "$") {
      const length = Number(line);
      if (this.buffer.length < next + length + 2) return null;
      value = this.buffer.toString("utf8", next, next + length);
      next += length + 2;
    } else if (kind === ":") value = Number(line);
    this.buffer = this.buffer.subarray(next);
    return kind === "-" ? { error: line } : { value };
  }

  close() {
    this.socket.destroy();
  }
}
