"""Approximate 8-bit multipliers: their errors, networks that run on them, and a router.

In: a network, labelled inputs, and tables of products. Out: the multiplier of each layer,
and the accuracy, power and area of the chip. Begin reading at `multiplier.py`, then
`route.py`.

    multiplier  a table of 256 x 256 products, and its error statistics
    library     truncated, broken-array and logarithmic multipliers, with figures by rule
    folder      multipliers from files
    dots        sums of table products, bit-exact
    products    convolutions and matrix products as batches of sums over k
    quantised   a captured network whose products are computed through tables
    chip        power, area and time of a chip whose arrays have different multipliers
    router      the learned router, an engine of `search.trials`
    route       the search, and its result
"""
