"""Packings of buffers into one memory: solved instances, heights, nodes and seconds."""
