"""Trainers of vision, speech, graphs and reinforcement learning."""

VISION = []
