"""Calls, tenants, replicas and trainings on a cluster of processes."""
