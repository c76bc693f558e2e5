"""The kit for front-ends: what importers of foreign models share.

    handlers.py   handlers of plug-ins, beside a front-end's own table

Nothing here knows a framework.
"""

from hidet.frontend.handlers import Handler, Rows, plugin_handlers

__all__ = ["Handler", "Rows", "plugin_handlers"]
