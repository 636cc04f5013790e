"""Eviction rules of caches, each as a compiled loop over the requests of a trace.

A rule takes the objects asked for, their sizes and the bytes of the cache, and fills in
which requests are hits. Every rule treats a request alike: an object in the cache is a
hit; another one is stored, unless it cannot fit, after others were evicted to make room.
The size of a stored object is that of the request that stored it. `rings.py` has the
doubly linked lists that the rules keep; `one_queue.py` is the simplest rule to read.
"""
