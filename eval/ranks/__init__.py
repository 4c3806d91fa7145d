"""Times of jobs of several cards, compared with published measurements."""
