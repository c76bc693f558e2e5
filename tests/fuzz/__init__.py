"""Damaged models: whatever a file says, hidet runs it right or refuses it with an error of its own."""
