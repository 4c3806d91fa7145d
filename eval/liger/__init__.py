"""Published rows of Liger-Kernel's benchmarks, and gpucast's predictions for them."""
