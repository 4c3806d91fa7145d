"""ORION's and PreNeT's step times compared with gpucast's."""
