"""A quantile, as most programs have it."""

import math


def quantile(values, part):
    """Interpolated between the two nearest."""
    ordered = sorted(values)
    place = part * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
