"""Whole projects: the commands that record, tune, train and build them.

Begin reading at `build.py`, which runs a build through the program in `..driving`.
"""
