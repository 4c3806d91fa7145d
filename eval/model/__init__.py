"""`gpucast model` compared with trainings written by hand."""
