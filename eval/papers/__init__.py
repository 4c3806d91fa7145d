"""The xMem paper's measures, for gpucast and for other estimators on the same rows."""
