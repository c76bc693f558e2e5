"""Programs for tasks, and choices among them."""
