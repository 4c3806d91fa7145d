"""`gpucast model`: what a known model needs, by a script that is written here and run on the virtual GPU."""
