"""Data pipelines with any number of workers, beside `gpucast time`."""
