"""Problems of the ASPLOS 2025 contest on intra-operator parallelism (IOPDDL).

In: a problem file of the contest (`problem_file.py`). Out: a solution in the contest's
form, found by the assignment solver that `autoplan` uses (`search/assignment`). Begin
reading at `command.py`, which is `meshwright iopddl`.
"""
