"""CPU profiles beside the virtual GPU, for the same jobs."""
