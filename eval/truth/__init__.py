"""Rows measured on a card of your own, beside the virtual GPU. `measure_on_gpu.py` is one file that runs alone."""
