"""The thread IR: what kernels are made of, from schedules down to code generation."""

from importlib import import_module
from pkgutil import extend_path

# Wheels may continue this package in folders of their own.
__path__ = extend_path(__path__, __name__)


def __getattr__(name: str) -> object:
    # What plug-ins add.
    return import_module("hidet.plugins.attributes").find("hidet.ir", name)
