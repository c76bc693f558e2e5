"""Program passes, one a file: thread-IR module in, module out."""
