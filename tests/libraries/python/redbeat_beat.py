"""Celery beat with RedBeat's scheduler, which loses its lock between two ticks."""

import sys
import threading
import time

import redis
from celery import Celery
from witness import REDIS_URL, held, renewal_refused

app = Celery("billing", broker=REDIS_URL.rsplit("/", 1)[0] + "/1")
app.conf.redbeat_redis_url = REDIS_URL
# Long enough for the conductor to read the keys before the next tick ends the program.
app.conf.beat_max_loop_interval = 5
app.conf.beat_schedule = {"book": {"task": "billing.book", "schedule": 3600.0}}
client = redis.Redis.from_url(REDIS_URL)


def take_away():
    while client.get("redbeat::lock") is None:
        time.sleep(0.02)
    held("held")
    renewal_refused("redbeat::lock")
    client.set("redbeat::lock", "f" * 32, px=60000)
    held("taken")


threading.Thread(target=take_away, daemon=True).start()
sys.argv = ["celery", "beat", "--scheduler", "redbeat.RedBeatScheduler", "--loglevel", "INFO", "--pidfile", ""]
app.start(sys.argv[1:])
