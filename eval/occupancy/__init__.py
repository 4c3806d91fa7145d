"""Occupancy and kernels' registers compared with the profiler's and NVIDIA's tool."""
