"""Occupancy and kernels' registers beside the profiler's and NVIDIA's tool."""
