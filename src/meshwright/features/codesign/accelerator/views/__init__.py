"""Pictures of an evaluation, and its page."""
