"""django-redis: `cache.lock()` inside a view, with Django's own logging of failed requests."""

import django
from django.conf import settings
from witness import NAME, REDIS_URL, SCENARIO, busy, held, release_refused, renewal_refused

settings.configure(
    SECRET_KEY="only for this test",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": REDIS_URL}},
    LOGGING={
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": {"format": "[{asctime}] {levelname} {name}: {message}", "style": "{"}},
        "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "plain"}},
        "root": {"handlers": ["console"], "level": "INFO"},
    },
)
django.setup()

from django.core.cache import cache  # noqa: E402
from django.http import HttpResponse  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import path  # noqa: E402

raw = cache.client.get_client(write=True)
key = cache.make_key(NAME)


def lost():
    lock = cache.lock(NAME, timeout=60)
    assert lock.acquire()
    held("held")
    raw.set(key, "f" * 32, px=60000)
    held("taken")
    return lock


def book(request):
    if SCENARIO == "release":
        lost().release()
    elif SCENARIO == "extend":
        lost().extend(10)
    elif SCENARIO == "wait":
        raw.set(key, "f" * 32, px=60000)
        with cache.lock(NAME, timeout=60, blocking_timeout=0.2):
            pass
    return HttpResponse("booked")


urlpatterns = [path("book", book)]

answer = Client(raise_request_exception=False).get("/book")
assert answer.status_code == 500, answer
{"release": release_refused, "extend": renewal_refused, "wait": busy}[SCENARIO]()
