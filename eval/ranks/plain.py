"""What a person estimates on paper: FLOPs at a fixed share of the datasheet's rate, and bytes over the bus bandwidth."""

FLOPS_PER_S = 312e12  # A100, fp16 with tensor cores
UTILIZATION = 0.45  # a usual choice for Megatron on A100s, not fitted
BUS_BYTES_PER_S = 230e9  # nccl-tests of 8 A100s on NVSwitch
NODE_BYTES_PER_S = 80e9  # of a node's network cards, both directions of its ring
VOCABULARY = 50304


def parameters(row):
    return 12 * row.layers * row.hidden**2 + VOCABULARY * row.hidden


def micro_batch_s(row):
    """Of one stage: forward, recomputation and backward, and the all-reduces of its tensor group."""
    tokens = row.micro_batch * row.sequence
    layers = row.layers / row.pp
    forward = tokens * layers * (24 * row.hidden**2 + 4 * row.sequence * row.hidden) / row.tp
    head = 3 * tokens * 2 * VOCABULARY * row.hidden / row.tp / row.pp
    reduced = 6 * layers * all_reduce_s(2 * tokens * row.hidden, row.tp, row.tp <= row.gpus_per_node)
    return (4 * forward + head) / (FLOPS_PER_S * UTILIZATION) + reduced


def all_reduce_s(bytes_, ranks, inside):
    return 2 * (ranks - 1) / ranks * bytes_ / (BUS_BYTES_PER_S if inside else NODE_BYTES_PER_S)


def step_s(row):
    inside = row.dp * row.tp <= row.gpus_per_node
    gradients = all_reduce_s(2 * parameters(row) / row.tp / row.pp, row.dp, inside)
    return (row.micro_batches + row.pp - 1) * micro_batch_s(row) + gradients
