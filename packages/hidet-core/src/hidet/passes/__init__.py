"""Graph and program passes and the manager that runs them."""
