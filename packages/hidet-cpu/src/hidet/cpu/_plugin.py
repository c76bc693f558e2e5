"""Plug-in module of the CPU target: what hidet-cpu offers to the compiler. Imports nothing heavy."""

HIDET_API = 1
