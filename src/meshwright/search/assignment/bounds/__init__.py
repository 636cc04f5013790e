"""Lower bounds on the optimum: message passing and Lagrangian relaxation."""
