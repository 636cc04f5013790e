"""What the planner can choose: strategies of nodes, for each class of equal nodes."""
