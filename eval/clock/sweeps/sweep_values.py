"""What the sweeps share: the values to measure, and how they are printed."""

import argparse
import json


def sweep(measure, *values):
    """Prints {value: milliseconds by measure(value)}: of all values in one process, or of --only one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", type=int, choices=values)
    only = parser.parse_args().only
    print(json.dumps({value: measure(value) for value in (values if only is None else [only])}), flush=True)
