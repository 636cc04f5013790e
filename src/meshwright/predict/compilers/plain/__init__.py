"""A compiler for machines without a modelled one: it only fuses, as XLA does."""
