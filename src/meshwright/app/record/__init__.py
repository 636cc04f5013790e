"""The record of a plan: what explanations, reports and confirmations read.

Nothing here imports from another folder of `app`. Begin reading at `plan_record.py`.
"""
