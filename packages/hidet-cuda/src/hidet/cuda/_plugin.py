"""Plug-in module of the CUDA target: what hidet-cuda offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

HIDET_API = 1
