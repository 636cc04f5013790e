"""An external solver, HiGHS, on the problem as a linear integer program."""
