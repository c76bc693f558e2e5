"""Schedules for NVIDIA's GPUs: products and attention on matrix units."""
