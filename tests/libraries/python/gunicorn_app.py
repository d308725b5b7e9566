"""A WSGI application under gunicorn whose request loses its lock: gunicorn logs the error."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import redis
from witness import NAME, REDIS_URL, held, release_refused


def application(environ, start_response):
    client = redis.Redis.from_url(REDIS_URL)
    lock = client.lock(NAME, timeout=60)
    assert lock.acquire()
    held("held")
    client.set(NAME, "f" * 32, px=60000)
    held("taken")
    release_refused()
    lock.release()


def main():
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    command = [sys.executable, "-m", "gunicorn", "--no-control-socket", "--bind", f"fd://{listener.fileno()}", "gunicorn_app:application"]
    fds = [int(os.environ[name]) for name in ("WITNESS_OUT", "WITNESS_IN")] + [listener.fileno()]
    server = subprocess.Popen(command, pass_fds=fds, cwd=os.path.dirname(os.path.abspath(__file__)))
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/book")
            except urllib.error.HTTPError as error:
                assert error.code == 500, error
                return
            except urllib.error.URLError:
                time.sleep(0.05)
        raise SystemExit("gunicorn does not answer")
    finally:
        server.terminate()
        server.wait(10)


if __name__ == "__main__":
    main()
