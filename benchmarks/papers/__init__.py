"""Published figures of other systems, computed by ours."""
