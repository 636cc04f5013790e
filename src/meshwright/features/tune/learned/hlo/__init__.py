"""Encoded HLO modules: decoding of XLA's protobufs, and numbers for opcodes.

In: the bytes of a module or of a tuning record. Out: a decoded message (`hlo_proto.py`),
whose instructions have opcodes with the numbers of TpuGraphs (`opcodes.py`). Begin reading
at `hlo_proto.py`.
"""
