"""Confirmation: predicted figures compared with those of the real compiler."""
