"""`mw.deploy`: a function, a plan or a pipeline's stage as a folder for another machine.

The targets themselves are in `compile/deploy`. Begin reading at `deploy.py`.
"""
