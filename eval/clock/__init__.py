"""Scripts that measure themselves on the virtual clock, compared with `gpucast time`."""
