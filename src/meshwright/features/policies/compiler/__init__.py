"""Decisions of a stock clang, taken outside of it: a callback, a file, a search.

In: C or C++ sources and the flags of their compilation. Out: objects, and for each unit a
replay file with the inlining that makes its text smallest. Begin reading at
`compiler.py`, which compiles one file; `tuning/search.py` searches.
"""
