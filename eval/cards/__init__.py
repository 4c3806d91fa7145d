"""The cards of data/gpus.json: one table of step times over all of them, and the law of power limits."""
