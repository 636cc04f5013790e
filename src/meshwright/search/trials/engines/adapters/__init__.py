"""Engines of other packages: optuna's samplers and pymoo's algorithms."""
