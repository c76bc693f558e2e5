"""Runs launches with blocks of threads by numpy, and finds what is wrong with their use of memory and barriers.

`run_launch` runs a kernel on arrays. A statement is run for all threads of a block, and of several blocks, at once;
branches whose sides wait for other threads become coroutines. Reported with block, thread and statement: accesses
outside memory or of elements that nothing wrote, data that an asynchronous copy has not delivered yet, data races by
vector clocks, barriers that not all threads come to, and deadlock.
"""
