"""A traced program as layers, each with a product and the vector work around it."""
