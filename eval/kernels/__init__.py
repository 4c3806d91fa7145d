"""Whether the interpreter of PTX understands the kernels of real programs."""
