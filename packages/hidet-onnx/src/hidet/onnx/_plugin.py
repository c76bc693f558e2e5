"""Plug-in module of the ONNX front-end: what hidet-onnx offers to the compiler. Imports nothing heavy."""

from __future__ import annotations

HIDET_API = 1
