"""The controller of a cluster: it orders the requests of all clients for all workers.

In: messages of `wire` from clients. Out: instructions for gangs of workers, and answers.
`controller.py` owns the rest: `admission.py` checks a request, `sessions.py` and
`tenants.py` know whose it is, `slices.py` which devices it has, and `island.py` queues it
for a gang in the order of `fair_order.py`. Begin reading at `controller.py`.
"""
