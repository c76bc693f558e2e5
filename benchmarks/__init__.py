"""Measurements of hidet and its peers. Every claim of speed in this repository comes from here."""
