"""src/time/gemm.cc again, for the search of constants. Reported figures are the command's. With numba a search takes minutes, without it hours."""

import math

import numpy

try:
    from numba import njit
except ImportError:

    def njit(function):
        return function


def turned(tiles):
    return numpy.array(list(dict.fromkeys(tile for a, b in tiles for tile in ((a, b), (b, a)))), float)


TENSOR = turned([(256, 128), (128, 128), (256, 64), (128, 64), (64, 64), (64, 32), (32, 32)])
NVJET = turned(
    [(64, n) for n in (8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256)]
    + [(128, n) for n in (8, 16, 24, 32, 48, 96, 128, 160, 192, 256, 320)]
    + [(192, 96), (192, 192), (256, 32), (256, 96)]
)
PLAIN = numpy.array([(128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32), (32, 64), (32, 32)], float)
BATCHED = numpy.array([(64, 64), (128, 32), (32, 128), (64, 128)], float)
TURING_BATCHED = numpy.array([(64, 64), (32, 128), (64, 128), (128, 128)], float)
PARTS = numpy.array([1, 2, 3, 4, 6, 8, 12, 16, 32], float)
FROM_MEMORY = ("warm_inputs", "warm_weights", "dram_fraction", "l2_bytes_per_cycle", "store_bytes_per_cycle")
OF_TILES = ("k_overhead", "later_overhead", "edge", "least_k_cycles", "feed_bytes_per_cycle", "tile_cycles", "latency_cycles", "resident")
OF_SUMS = ("split_cycles", "least_part", "wave_smoothing", "overlap", "throttle", "throttle_ns")
OF_K = ("whole_products", "whole_k", "short_k")
LARGEST_OF_SHORT_K = 128 * 64
NAMES = (*FROM_MEMORY, *OF_TILES, *OF_SUMS, *OF_K)


def throttle(gpu, precision, c):
    """Slowdown of a long product: with more FLOP/s per watt, the clock falls further."""
    peak = gpu["peak_flop_per_s"].get(precision, gpu["peak_flop_per_s"]["fp32"])
    return min(c["throttle"] * peak / 1e12 / gpu["power_w"], c["most_throttle"])


def tiles_of(gpu, c, tensor, batched):
    if tensor:
        return NVJET if 9 <= float(gpu["compute_capability"]) < 12 else TENSOR
    only = (c["batched_tile_m"], c["batched_tile_n"])
    if not batched:
        return PLAIN
    several = TURING_BATCHED if float(gpu["compute_capability"]) == 7.5 else BATCHED
    return numpy.array([only], float) if only[0] * only[1] > 1 else several


@njit
def cold(size, warm, l2):
    return size * (1 - min(max(2 - size / (warm * l2), 0.0), 1.0))


@njit
def busy_and_memory(sizes, slower, tiles, parts, c, rate, dram, sms, clock, l2, may_split, largest, k_step, times):
    """For each product: the time of its tiles (`times[:, 0]`), of its memory, and of both and the sums of parts, of the fastest tiling."""
    warm_in, warm_weights, dram_part, l2_bytes, store = c[0], c[1], c[2], c[3], c[4]
    k_overhead, later, edge, least_k, feed, tile_cycles, latency, resident = c[5], c[6], c[7], c[8], c[9], c[10], c[11], c[12]
    split_cycles, least_part, smoothing, overlap, throttled, throttle_ns = c[13], c[14], c[15], c[16], c[17], c[18]
    whole_products, whole_k, short_k = c[19], c[20], c[21]
    cycle = 1e9 / clock
    l2_ns, store_ns = cycle / (l2_bytes * sms), cycle / (store * sms)
    power = math.log(2) / math.log1p(overlap)
    for i in range(len(sizes)):
        batch, m, n, k, e = sizes[i, 0], sizes[i, 1], sizes[i, 2], sizes[i, 3], sizes[i, 4]
        a, b, out = batch * m * k * e, batch * k * n * e, batch * m * n * sizes[i, 5]
        cold_in = cold(a, warm_in, l2) + cold(b, warm_in if batch > 1 else warm_weights, l2)
        cold_out = cold(out, warm_in, l2)
        memory = 1e9 * (cold_in + cold_out) / (dram * dram_part) + (a + b - cold_in) * l2_ns + (out - cold_out) * store_ns
        whole = batch * m * n * k < whole_products and k <= whole_k and min(m, n) > 1
        largest_here = min(largest, LARGEST_OF_SHORT_K) if k < short_k else largest
        best = 1e300
        for t in range(len(tiles)):
            tile_m, tile_n = tiles[t, 0], tiles[t, 1]
            mostly_empty = (tile_m > 64 and tile_m > 2 * m) or (tile_n > 64 and tile_n > 2 * n)
            if tile_m * tile_n > largest_here or (mostly_empty and len(tiles) > 1):
                continue
            one = batch * math.ceil(m / tile_m) * math.ceil(n / tile_n)
            multiply = 1e9 * 2 * tile_m * tile_n / rate * sms * (1 + edge * (128 / tile_m + 128 / tile_n - 1.5))
            k_ns = max(multiply, (tile_m + tile_n) * e / feed * cycle, least_k * cycle)
            held = min(max(math.floor(resident * 128 * 128 / (tile_m * tile_n)), 1.0), 4.0)
            for part in parts:
                if part > 1 and (not may_split or whole or k / part < least_part):
                    break
                waves = one * part / sms
                taken = (1 - smoothing) * math.ceil(waves) + smoothing * max(waves, 1.0)
                steps = math.ceil(k / part / k_step) * k_step
                busy = taken * (k_ns * (steps + k_overhead * later) + tile_cycles * cycle) + k_ns * k_overhead * (1 - later)
                chain = math.ceil(math.ceil(waves) / held) * (latency * steps + tile_cycles) * cycle
                ns = slower[i] * max(busy, chain)
                ns *= 1 + throttled * ns / (ns + throttle_ns)
                sums = split_cycles * cycle + part * batch * m * n * 8 * l2_ns if part > 1 else 0.0
                longer, shorter = max(ns, memory), min(ns, memory)
                if longer + sums >= best:
                    continue
                both = longer * (1 + (shorter / longer) ** power) ** (1 / power) + sums
                if both < best:
                    best = both
                    times[i, 0], times[i, 1], times[i, 2] = ns + sums, memory, both


def gemm_ns(rows, gpu, c, tensor, batched):
    """c: the constants of card_rates.h, and `rate`, `dram`: FLOP/s and bytes/s that the card sustains."""
    e = rows["element"].astype(float)
    m, n, k = rows["m"], rows["n"], rows["k"]
    sizes = numpy.stack([rows["batch"], m, n, k, e, numpy.where(e == 1, 2, e)], 1)
    sms, clock = gpu["multiprocessors"], gpu["clock_khz"] * 1e3
    slower, linear = numpy.ones(len(m)), not tensor and not batched and bool(rows["b_transposed"][0])
    if linear:
        slower *= c["transposed"]
    if tensor:
        a_row, b_row = numpy.where(rows["a_transposed"], m, k), numpy.where(rows["b_transposed"], k, n)
        together = 16 / e  # elements that a thread reads at a time
        for _ in range(4):
            whole = (a_row % together == 0) & (b_row % together == 0) & (n % together == 0)
            together = numpy.where(whole | (together <= 1), together, together / 2)
        by_element = c["rate"] / clock / sms / (together * c["unaligned_flop_per_cycle"])
        slower = numpy.where(together * e < 16, numpy.maximum(1, by_element), 1)
    if batched and not tensor:
        c = {**c, "latency_cycles": max(c["latency_cycles"], c["batched_latency_cycles"])}
    times = numpy.zeros((len(m), 3))
    busy_and_memory(
        sizes,
        slower,
        tiles_of(gpu, c, tensor, batched),
        PARTS,
        numpy.array([c[name] for name in NAMES]),
        c["rate"],
        c["dram"],
        float(sms),
        clock,
        gpu["l2_bytes"] / c["l2_copies"],
        tensor or not batched,
        c["largest_tile"] if linear else 1e300,
        32.0 if tensor else 8.0,
        times,
    )
    busy, memory, both = times.T
    if tensor:  # two dimensions of a few numbers
        thin = ((m <= 8).astype(int) + (n <= 8) + (k <= 8) >= 2) & (memory * c["thin_passes"] < busy)
        both = numpy.where(thin, memory * c["thin_passes"], both)
    return c["floor_cycles"] / clock * 1e9 + both
