"""Integer programs solved, and plans simulated."""
