"""Mappings of a product to a design: folds, tiles, loop orders, cycles and bytes."""
