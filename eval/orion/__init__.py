"""ORION's and PreNeT's step times beside gpucast's."""
