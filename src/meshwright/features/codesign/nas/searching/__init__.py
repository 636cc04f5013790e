"""Search of a space of models: trained shortly, priced on a machine, kept as a front.

In: a space, and a function from a candidate to its figures, such as `Trained`. Out: the
models that no other dominates, a page about them, a folder for each. Begin reading at
`search.py`.
"""
