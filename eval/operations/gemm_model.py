"""src/time/gemm.cc again, on arrays, for the search of constants. Reported figures are the command's."""

import numpy

TENSOR = numpy.array([(256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64), (64, 32), (32, 64)], float)
PLAIN = numpy.array([(128, 128), (128, 64), (64, 128), (64, 64), (128, 32), (32, 128), (64, 32), (32, 64), (32, 32)], float)
BATCHED = numpy.array([(64, 64), (128, 32), (32, 128), (64, 128)], float)
PARTS = numpy.array([1, 2, 3, 4, 6, 8, 12, 16, 32], float)


def throttle(gpu, precision, c):
    """Slowdown of a long product: with more FLOP/s per watt, the clock falls further."""
    peak = gpu["peak_flop_per_s"].get(precision, gpu["peak_flop_per_s"]["fp32"])
    return min(c["throttle"] * peak / 1e12 / gpu["power_w"], c["most_throttle"])


def gemm_ns(rows, gpu, c, tensor, batched):
    """c: the constants of card_rates.h, and `rate`, `dram`: FLOP/s and bytes/s that the card sustains."""
    cycle = 1e6 / gpu["clock_khz"]
    sms, l2 = gpu["multiprocessors"], gpu["l2_bytes"] / c["l2_copies"]
    l2_bytes_per_ns = c["l2_bytes_per_cycle"] * sms / cycle
    one = numpy.array([[c["batched_tile_m"], c["batched_tile_n"]]])
    tiles = (
        TENSOR
        if tensor
        else PLAIN[PLAIN.prod(1) <= (c["largest_tile"] if rows["b_transposed"][0] else 1e9)]
        if not batched
        else one
        if one.prod() > 1
        else BATCHED
    )
    parts = (PARTS if tensor or not batched else PARTS[:1])[None, None, :]
    element = rows["element"][:, None, None]
    batch, m, n, k = (rows[name][:, None, None] for name in ("batch", "m", "n", "k"))
    a, b = tiles[:, 0][None, :, None], tiles[:, 1][None, :, None]
    waves = batch * numpy.ceil(m / a) * numpy.ceil(n / b) * parts / sms
    s = c["wave_smoothing"]
    taken = (1 - s) * numpy.ceil(waves) + s * numpy.maximum(waves, 1)
    k_ns = numpy.maximum(1e9 * 2 * a * b / c["rate"] * sms * (1 + c["edge"] * (128 / a + 128 / b - 1.5)), c["least_k_cycles"] * cycle)
    clusters = 2 if float(gpu["compute_capability"]) >= 9 else 1
    k_ns = numpy.maximum(k_ns, (a + b) * element / (c["feed_bytes_per_cycle"] * clusters) * cycle)
    step = 32 if tensor else 8
    steps = numpy.ceil(k / parts / step) * step + c["k_overhead"]
    ns = taken * (k_ns * steps + c["tile_cycles"] * cycle)
    ns = ns + numpy.where(parts > 1, c["split_cycles"] * cycle + parts * batch * m * n * 8 / l2_bytes_per_ns, 0)
    ns = numpy.where((parts > 1) & (k / parts < 128), numpy.inf, ns).reshape(len(rows["m"]), -1).min(1)
    ns = ns * (1 + c["throttle"] * ns / (ns + c["throttle_ns"]))
    batch, m, n, k, e = (rows[name] for name in ("batch", "m", "n", "k", "element"))
    if not tensor and not batched:
        ns = ns * numpy.where(rows["b_transposed"], c["transposed"], 1)
    if tensor:
        a_row, b_row = numpy.where(rows["a_transposed"], m, k), numpy.where(rows["b_transposed"], k, n)
        together = (16 / e).astype(float)  # elements that a thread reads at a time
        for _ in range(4):
            whole = (a_row % together == 0) & (b_row % together == 0) & (n % together == 0)
            together = numpy.where(whole | (together <= 1), together, together / 2)
        slower = c["rate"] * cycle / 1e9 / sms / (together * c["unaligned_flop_per_cycle"])
        ns = ns * numpy.where(together * e < 16, numpy.maximum(1, slower), 1)
    size_a, size_b, out = batch * m * k * e, batch * k * n * e, batch * m * n * e

    def cold(size, warm):
        return size * (1 - numpy.clip(2 - size / (warm * l2), 0, 1))

    dram = cold(size_a, c["warm_inputs"]) + cold(size_b, c["warm_inputs"] if batched else c["warm_weights"]) + cold(out, c["warm_inputs"])
    memory = 1e9 * dram / c["dram"] + (size_a + size_b + out - dram) / l2_bytes_per_ns
    longer, shorter, power = numpy.maximum(ns, memory), numpy.minimum(ns, memory), numpy.log(2) / numpy.log1p(c["overlap"])
    both = longer * (1 + (shorter / longer) ** power) ** (1 / power)
    if tensor:  # two dimensions of a few numbers
        thin = ((m <= 8).astype(int) + (n <= 8) + (k <= 8) >= 2) & (memory * c["thin_passes"] < ns)
        both = numpy.where(thin, memory * c["thin_passes"], both)
    return c["floor_cycles"] * cycle + both
