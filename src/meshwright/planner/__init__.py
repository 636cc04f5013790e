"""The planner: from a program and a machine to the best plan that a search finds.

In: a captured program, a machine, and what the user asked for (`driver/request.py`).
Out: candidates, which are meshes with lists of tactics (partitioning decisions), and
the best of them. Begin reading at `driver/search.py`. The folders, in the order in
which a search uses them:

    driver           the order of a search, and the state that it keeps
    candidates       meshes and expert strategies to try, proposals, the objective
    strategies       the choices of each op: which of its dims each mesh axis splits
    prices           seconds to compute an op and to reshard a value; one collective is
                     priced by `predict/links/collective.py`
    integer_program  variables and costs of one mesh, which `builder.py` there builds
    solve            the integer program's solution within a memory limit
    spelling         a found plan, written as a short list of tactics
    recompute        which residuals to save, and which to recompute
    columns          propagation and prices over flat arrays, for fast searches
    tree             tree search over shardings of inputs
    overlap          `overlap`, a tactic that runs collectives beside products
    tactics          `auto`, a tactic that searches
"""
