"""Section 3.3 and 3.4 of ORION: a batch's time from the disk to the GPU, and the path that a step waits for. Times in ms."""

import dataclasses

# The paper's ranges of sustained bandwidth, "0.4-0.7 GB/s" and "2-7 GB/s": their geometric means.
STORAGE_BYTES_PER_S = {"ssd": (0.4e9 * 0.7e9) ** 0.5, "nvme": (2e9 * 7e9) ** 0.5}


@dataclasses.dataclass(frozen=True)
class Pipeline:
    bytes_per_batch: float  # read from the disk
    decode_ms_per_sample: float
    one_worker_ms: float  # preprocessing of a batch by a single worker
    contention: float = 0.0  # alpha
    coherency: float = 0.0  # beta


def storage_bandwidth(storage):
    """Bytes/s of 'ssd', 'nvme' or a number. ValueError: it is neither."""
    if str(storage).lower() in STORAGE_BYTES_PER_S:
        return STORAGE_BYTES_PER_S[str(storage).lower()]
    try:
        value = float(storage)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise ValueError(f"storage is ssd, nvme or a number of bytes per second, not '{storage}'")
    return value


def cpu_ms(pipeline, workers):
    """The universal scalability law, inverse. ValueError: without a worker there is no such law."""
    if workers < 1:
        raise ValueError(f"at least 1 worker, not {workers}")
    more = workers - 1
    return pipeline.one_worker_ms * (1 + pipeline.contention * more + pipeline.coherency * workers * more) / workers


def pipeline_ms(pipeline, samples, workers, storage):
    """A sum: in the paper disk, decoding and preprocessing of a batch run one after the other, decoding by one worker."""
    disk = 1000 * pipeline.bytes_per_batch / storage_bandwidth(storage)
    return disk + pipeline.decode_ms_per_sample * samples + cpu_ms(pipeline, workers)


def step_ms(gpu_ms, feeding_ms):
    """(ms, what bounds it)."""
    return (gpu_ms, "gpu") if gpu_ms >= feeding_ms else (feeding_ms, "pipeline")


def fit_scalability(measured_ms):
    """(alpha, beta), least squares and none below 0, of {workers: ms of a batch}; 1 must be among them, and another.

    workers * ms(workers) / ms(1) - 1 = alpha (workers - 1) + beta workers (workers - 1)
    """
    one = measured_ms.get(1)
    others = {workers: ms for workers, ms in measured_ms.items() if workers > 1}
    if not one or one <= 0 or not others:
        raise ValueError("the law needs the time of 1 worker and of another number of workers")
    # Each row divided by workers - 1: the rest is a line in the number of workers.
    points = [(workers, (workers * ms / one - 1) / (workers - 1)) for workers, ms in others.items()]
    middle_x, middle_y = (sum(values) / len(points) for values in zip(*points))
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    beta = sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0
    alpha = middle_y - beta * middle_x
    if beta < 0:
        return max(0.0, middle_y), 0.0
    if alpha < 0:
        return 0.0, max(0.0, sum(x * y for x, y in points) / sum(x * x for x, _ in points))
    return alpha, beta
