"""Compute definitions: what operators mean, and their numpy evaluation."""
