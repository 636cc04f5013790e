"""The search itself: what is asked, in which order it is tried, and what was found."""
