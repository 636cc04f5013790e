"""`mw.deploy`: a function, a plan or a pipeline's stage as a folder that runs without JAX.

In: a function, its arguments, and the name of a target. Out: a folder with the model, a
loader in Python and a README, and a `Deployment` that records how far the results are
from JAX's. Begin reading at `deploy.py`,
then `write_deployment.py`. All targets read the `SourceModel` of
`source/model.py`; `targets.py` lists the targets.
"""
