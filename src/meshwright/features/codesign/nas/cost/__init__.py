"""Costs of a model on a machine: seconds by block, energy, money and carbon.

Begin reading at `latency.py`. All figures are those of `predict`.
"""
