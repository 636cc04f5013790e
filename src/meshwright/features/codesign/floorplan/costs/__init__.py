"""The proxy cost of Circuit Training: exact, in full and after each move."""
