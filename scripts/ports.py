"""Starts servers that cannot choose their own port, such as redis-server and Prometheus.

Nobody can reserve a port for another program. So a server is started on a port that looks free, and
on another one if it exits because another program took the port first. src/util/ports.rs does the
same for Rust, and start_on_free_port of scripts/lib.sh for shell scripts."""

import os
import random
import socket
import time

# Below the range from which Linux takes the ports of outgoing connections and of listeners on port 0. A server that restarts
# therefore finds its port free.
CANDIDATES = range(12_000, 32_000)
ATTEMPTS = 10
# Generous: a busy machine is no reason to fail.
PATIENCE_SECONDS = 120


def free_port():
    """A port of the loopback interface that is free at this moment."""
    for _ in range(100):
        port = random.choice(CANDIDATES)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue
    raise RuntimeError("found no free port")


def is_listening(pid, port):
    """Whether this process listens on the port. A connection does not tell: the port may belong to somebody else."""
    sockets = set()
    for table in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{table}") as lines:
                next(lines)
                for line in lines:
                    fields = line.split()
                    if fields[3] == "0A" and fields[1].endswith(f":{port:04X}"):
                        sockets.add(f"socket:[{fields[9]}]")
        except OSError:
            continue
    try:
        descriptors = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for descriptor in descriptors:
        try:
            if os.readlink(f"/proc/{pid}/fd/{descriptor}") in sockets:
                return True
        except OSError:
            continue
    return False


def listens(process, port):
    """Waits until the process listens on the port. False if it ends instead."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while process.poll() is None:
        if is_listening(process.pid, port):
            return True
        if time.monotonic() > deadline:
            process.kill()
            raise RuntimeError(f"{process.args[0]} does not listen on port {port} within {PATIENCE_SECONDS} s")
        time.sleep(0.02)
    return False


def start_on_free_port(start):
    """Calls start(port), which returns a Popen, until the process listens on the port. Returns the process and the port."""
    for _ in range(ATTEMPTS):
        port = free_port()
        process = start(port)
        if listens(process, port):
            return process, port
    raise RuntimeError(f"{process.args[0]} does not start: it ended with status {process.returncode} on {ATTEMPTS} ports")
