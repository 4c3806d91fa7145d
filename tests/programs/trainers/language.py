"""Trainers of language models."""

LANGUAGE = []
