"""CP-SAT and HiGHS on the linearised problem."""
