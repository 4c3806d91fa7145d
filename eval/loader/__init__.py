"""Data pipelines with any number of workers, compared with `gpucast time`."""
