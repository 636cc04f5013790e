"""Learning: graph networks, ranking losses, PPO and their training, for any model.

It knows nothing of programs and machines; a feature brings its own columns, network and
file format. In: graphs, scores, times and rewards as arrays. Out: parameters, and curves of
their training. JAX is imported where a module needs it; only `adamw` needs optax. Begin
reading at `graphs.py`.

    graphs     graphs as padded arrays of scaled features; sums over edges
    layers     affine maps, SAGE convolutions, standardised vectors
    losses     losses that train a ranking
    ranking    measures of a ranking
    training   epochs over examples: learning rate, curve, checkpoints, an early end
    segments   steps on whole graphs, or on a few segments of large ones
    ppo        a policy, and its training from rewards
    optimizers AdamW by optax, and Adam for policies
    arrays     files of arrays, and trees of parameters in them
"""
