"""Gavel's jobs as captures."""
