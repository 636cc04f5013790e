"""A cache for the objects of a process, with the policies of the simulator.

In: keys, values and sizes, from threads and tasks. Out: values, and figures of the cache.
Begin reading at `cache.py`; `shard.py` is what one lock protects, `orders.py` and
`rules.py` are what it evicts.
"""
