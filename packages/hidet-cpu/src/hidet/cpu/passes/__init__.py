"""Program passes of the CPU target."""
