"""Rows measured on your own card, compared with the virtual GPU. `measure_on_gpu.py` is one file that runs alone."""
