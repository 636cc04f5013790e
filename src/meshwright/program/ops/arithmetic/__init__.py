"""Rules of ops that compute: elementwise, products, convolutions, reductions, and more."""
