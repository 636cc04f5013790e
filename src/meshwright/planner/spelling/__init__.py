"""Found plans as people would write them: short lists of tactics."""
