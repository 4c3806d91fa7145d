"""CPU profiles compared with the virtual GPU, for the same jobs."""
