"""Learned."""
