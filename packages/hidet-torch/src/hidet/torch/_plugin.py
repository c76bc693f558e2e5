"""Plug-in module of the PyTorch front-end: what hidet-torch offers to the compiler. Imports nothing heavy."""

HIDET_API = 1
