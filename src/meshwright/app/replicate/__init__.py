"""A step written for one replica, run by many: TF-Replicator's programming model.

P. Buchlovsky et al., "TF-Replicator: Distributed Machine Learning for Researchers",
arXiv 1902.00465, 2019. Begin reading at `replicator.py`. In lockstep (`lockstep.py`) a
step is `jax.vmap` over replicas, partitioned over devices. Asynchronous replicas
(`asynchronous.py`) exchange gradients with a parameter server (`server.py`).
"""
