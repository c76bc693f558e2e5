"""What a target must provide."""
