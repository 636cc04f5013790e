"""Designs as TOML machines: read, checked, written."""
