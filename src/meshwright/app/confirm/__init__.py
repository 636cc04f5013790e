"""Confirmation: predicted figures of a step compared with the real compiler's figures."""
