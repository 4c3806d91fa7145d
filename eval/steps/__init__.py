"""How far whole steps are from measured ones, and what was fitted on them."""
