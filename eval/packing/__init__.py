"""Jobs that share cards: measured pairs, policies on clusters' loads, what schedulers accept."""
