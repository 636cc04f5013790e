"""A step written for one replica, which many replicas run (TF-Replicator's model).

P. Buchlovsky et al., "TF-Replicator: Distributed Machine Learning for Researchers", arXiv
1902.00465, 2019. Begin reading at `replicator.py`. Synchronous replicas (`lockstep.py`) are
one program: `jax.vmap` of the step over replicas, partitioned over devices. Asynchronous
replicas (`asynchronous.py`) send gradients to a parameter server (`server.py`).
"""
