"""Engines of other libraries, which propose the candidates: optuna and pymoo."""
