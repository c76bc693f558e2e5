"""An example plug-in for hidet: the target `example-c`, which prints C and compiles it with the `cc` on the PATH."""
