"""Placement of macros one by one, by a policy that is learned from the exact cost."""
