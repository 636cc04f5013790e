"""Tactics that let collectives run beside computation; begin reading at `overlap.py`."""
