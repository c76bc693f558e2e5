"""Schedules of the CPU target, one pattern a file."""
