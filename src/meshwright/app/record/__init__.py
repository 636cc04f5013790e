"""The record of a plan: the plain data that explanations, reports and JSON read.

Nothing here imports from another folder of `app`. Begin reading at `plan_record.py`.
"""
