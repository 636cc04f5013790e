"""The record of a plan: what explanations, reports and confirmations read.

Nothing here imports another room of `app`. Begin reading at `plan_record.py`.
"""
