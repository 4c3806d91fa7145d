"""Scripts that measure themselves on the virtual clock, beside `gpucast time`."""
