"""The program that builds call instead of a compiler.

In: the arguments of a compiler, and settings. Out: the object that the build wants, made
with recorded or learned decisions, or a unit of a corpus. It runs for every file of a
build: these modules import the standard library only. Begin reading at `main.py`.
"""
