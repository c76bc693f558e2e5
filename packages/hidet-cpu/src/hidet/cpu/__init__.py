"""hidet's CPU target: thread IR to LLVM, schedules and thread pool."""
