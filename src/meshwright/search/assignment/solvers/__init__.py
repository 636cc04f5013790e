"""Two external solvers, CP-SAT and HiGHS, on the problem as a linear program.

The program is a linear integer program.
"""
