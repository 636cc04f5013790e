"""Collectives by levels, product loops, and gathers one iteration ahead."""
