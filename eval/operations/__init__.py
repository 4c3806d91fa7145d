"""How far single operations are from measured kernels, and the fits of their constants."""
