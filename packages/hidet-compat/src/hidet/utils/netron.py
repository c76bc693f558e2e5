"""`hidet.utils.netron`: graphs for the viewer Netron."""

from hidet.compat.netron import dump

__all__ = ["dump"]
