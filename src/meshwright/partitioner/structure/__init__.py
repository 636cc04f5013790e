"""What a program is made of, as tactics ask for it: parameters, activations, products."""
