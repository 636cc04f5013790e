"""The check: outputs of the partitioned program compared with those of the original."""
