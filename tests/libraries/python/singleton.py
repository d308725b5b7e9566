"""celery-singleton refuses a second task with the same arguments."""

from celery import Celery
from celery_singleton import Singleton
from celery_singleton.exceptions import DuplicateTaskError
from logging_setups import logger, report
from witness import NAME, REDIS_URL, SETUP, busy, held

app = Celery("billing", broker=REDIS_URL.rsplit("/", 1)[0] + "/1", backend=REDIS_URL)
app.conf.singleton_raise_on_duplicate = True
log = logger()


@app.task(name="billing.book", base=Singleton)
def book(number):
    return number


book.delay(NAME)
held("held")
if SETUP == "uncaught":
    busy()
    book.delay(NAME)
else:
    try:
        book.delay(NAME)
    except DuplicateTaskError as error:
        busy()
        report(log, "could not queue the invoice", error)
