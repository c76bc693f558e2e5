"""Running compiled graphs; imports neither passes nor schedules."""

from importlib import import_module


def __getattr__(name: str) -> object:
    # What plug-ins add.
    return import_module("hidet.plugins.attributes").find("hidet.runtime", name)
