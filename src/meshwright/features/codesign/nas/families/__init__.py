"""Families of models: depth, width and resolution scaled together for several latencies.

Begin reading at `scaling.py`; `surfaces.py` smooths measured points, `law.py` fits the law.
"""
