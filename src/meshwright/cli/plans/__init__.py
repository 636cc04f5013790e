"""Texts of `meshwright plan` about searches and about several machines."""
