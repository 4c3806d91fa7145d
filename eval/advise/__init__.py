"""What `gpucast advise` answers, compared with a brute-force search over the same choices."""
