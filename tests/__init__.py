"""Tests that span the wheels."""
