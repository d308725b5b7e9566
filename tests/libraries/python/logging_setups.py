"""The logging setups of Python programs: the values of SETUP."""

import logging
import sys

from witness import SETUP


def logger(name="billing.worker"):
    """Returns the logger of the setup, with the methods of logging.Logger that the programs need."""
    if SETUP == "structlog-json":
        import structlog

        structlog.configure(
            processors=[
                structlog.stdlib.add_log_level,
                structlog.processors.TimeStamper(fmt="iso"),
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(),
            ],
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        return structlog.get_logger()
    if SETUP == "structlog-dict":
        import structlog

        structlog.configure(
            processors=[
                structlog.stdlib.add_log_level,
                structlog.processors.TimeStamper(fmt="iso"),
                structlog.processors.dict_tracebacks,
                structlog.processors.JSONRenderer(),
            ],
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        return structlog.get_logger()
    if SETUP == "structlog-console":
        import structlog

        structlog.configure(
            processors=[
                structlog.stdlib.add_log_level,
                structlog.processors.TimeStamper(fmt="iso"),
                structlog.dev.ConsoleRenderer(colors=True, exception_formatter=structlog.dev.plain_traceback),
            ],
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        return structlog.get_logger()
    handler = logging.StreamHandler(sys.stderr)
    if SETUP == "json":
        from pythonjsonlogger.json import JsonFormatter

        handler.setFormatter(JsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    else:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    return logging.getLogger(name)


def report(log, what, error):
    """Logs a caught error in the way of the setup."""
    if SETUP == "message":
        log.error("%s: %s", what, error)
    elif SETUP == "repr":
        log.warning("%s error=%r", what, error)
    else:
        log.exception(what)
