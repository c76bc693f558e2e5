"""What scripts written for hidet 0.6 call, and the compiler has no use for. Modules of hidet have it as attributes.

option.py        settings that nothing reads
pass_context.py  `hidet.graph.PassContext`
files.py         saved models
operators.py     operators of `hidet.ops`
names.py         names in other modules than those that have them now
"""
