"""What hidet tells of its passes, through Python's `logging`: `hidet.logging.setConsoleLevel(hidet.logging.DEBUG)`."""

from __future__ import annotations

import logging
from logging import CRITICAL, DEBUG, ERROR, INFO, WARNING

logger = logging.getLogger("hidet")
"""At DEBUG it has every pass that changes a graph or a program, with its time."""
stderr_handler = logging.StreamHandler()
stderr_handler.setFormatter(logging.Formatter("%(name)s: %(levelname)s: %(message)s"))


def setConsoleLevel(level: int) -> None:
    """Show what is at least as important on standard error."""
    logger.setLevel(level)
    stderr_handler.setLevel(level)
    if stderr_handler not in logger.handlers:
        logger.addHandler(stderr_handler)


__all__ = ["CRITICAL", "DEBUG", "ERROR", "INFO", "WARNING", "logger", "setConsoleLevel", "stderr_handler"]
