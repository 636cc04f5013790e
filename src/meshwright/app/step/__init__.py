"""A partitioned function's arguments, and its stages for one signature of them."""
