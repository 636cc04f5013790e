"""Arguments of a partitioned function; what is traced and compiled for their signature."""
