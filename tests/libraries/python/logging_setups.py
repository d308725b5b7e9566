"""The ways in which Python programs log: the names that SETUP takes."""

import logging
import sys

from witness import SETUP


def logger(name="billing.worker"):
    """A logger as the set-up makes it; it has the methods of logging.Logger that the programs need."""
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
    """Logs an error that was caught, the way the set-up stands for."""
    if SETUP == "message":
        log.error("%s: %s", what, error)
    elif SETUP == "repr":
        log.warning("%s error=%r", what, error)
    else:
        log.exception(what)
