"""Steps of many plans from two captures for each (hidden size, tensor parallel size, micro batch).

Layers and micro batches only multiply: the captures have two and four layers, and one micro batch. A pipeline's step is one micro batch
through all stages and the others through the slowest (messages, up to 4 % of a step, are left out).
"""

import dataclasses
import statistics

from eval import tables
from eval.ranks import judge

LAYERS = (2, 4)
CARDS = 8  # of the captured jobs
OF_MICRO_BATCH = ("forward", "loss", "backward")
LEAST_GRADIENT_BYTES = 1e6
LEAST_PLANS = 5  # whose order is judged
GOOD_ORDER = 0.97
ORDER_HEAD = ("hidden", "times", "groups", "Spearman", "least", ">= 0.97 %", "choices", "within 3 %", "largest loss %", "median %", "90th")


@dataclasses.dataclass(frozen=True)
class Parts:
    """Of a step: the card's time and the launches; also of one layer."""

    micro_batch_s: float = 0
    micro_batch_launches: float = 0
    embedding_s: float = 0  # of a micro batch, the first stage's
    embedding_launches: float = 0
    rest_s: float = 0  # once in a step: the optimizer
    rest_launches: float = 0
    gradient_bytes: float = 0

    def plus(self, other, factor):
        """With `factor` times the other."""
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other))
        return Parts(*(mine + factor * theirs for mine, theirs in pairs))


def overlapping(launch_s):
    """The host launches while the card works."""
    return lambda card_s, launches: max(card_s, launches * launch_s)


def blocking(launch_s):
    """Each launch waits for the host."""
    return lambda card_s, launches: card_s + launches * launch_s


def captured_row(row, layers):
    """A job of one micro batch whose stages are whole models."""
    dp = CARDS // row.tp
    sizes = {"layers": layers, "gpus": CARDS, "dp": dp, "pp": 1, "global_batch": dp * row.micro_batch}
    return dataclasses.replace(row, step_s=0, **sizes)


def key_of(row):
    return row.hidden, row.tp, row.micro_batch


def gradient_reduce(answer):
    """(bytes, seconds, ranks) of the gradients' all-reduce; of none: zeros."""
    found = [one for one in answer["ranks"][0]["by_communication"] if one["kind"] == "all_reduce" and one["purpose"] == "data"]
    largest = max(found, key=lambda one: one["bytes"], default={"bytes": 0})
    if largest["bytes"] < LEAST_GRADIENT_BYTES:
        return 0, 0, 1
    return largest["bytes"], (largest["exposed_ns"] + largest["hidden_ns"]) / 1e9, largest["ranks"]


def ring_share(ranks):
    return 2 * (ranks - 1) / ranks


def bus_rate(answer):
    bytes_, seconds, ranks = gradient_reduce(answer)
    return ring_share(ranks) * bytes_ / seconds if bytes_ else 0


def parts_of(answer):
    """Of one capture."""

    def sums(lines):
        lines = list(lines)
        return sum(one["gpu_ns"] for one in lines) / 1e9, sum(one["launches"] for one in lines)

    gradient_bytes, reduce_s, _ = gradient_reduce(answer)
    micro_batch = sums(one for one in answer["by_phase"] if one["name"] in OF_MICRO_BATCH)
    embedding = sums(one for one in answer["by_module"] if ".embedding" in one["name"])
    rest_s, rest_launches = sums(one for one in answer["by_phase"] if one["name"] not in OF_MICRO_BATCH)
    return Parts(*micro_batch, *embedding, rest_s - reduce_s, rest_launches, gradient_bytes)


def launch_s(answer):
    """The host's time for a launch."""
    return answer["host_ns"] / 1e9 / sum(one["launches"] for one in answer["by_phase"])


def ends_and_layer(few, many):
    """(a model without layers, a layer), of captures with the two numbers of LAYERS."""
    first, second = LAYERS
    difference = many.plus(few, -1)
    return few.plus(difference, -first / (second - first)), Parts().plus(difference, 1 / (second - first))


def step_s(row, ends, layer, bus_bytes_per_s, host):
    """`host`: overlapping() or blocking()."""
    embedding = Parts(ends.embedding_s, ends.embedding_launches)
    stages = [Parts().plus(layer, row.layers / row.pp)] * row.pp
    stages[0] = stages[0].plus(embedding, 1)
    stages[-1] = stages[-1].plus(ends, 1).plus(embedding, -1)
    times = [host(stage.micro_batch_s, stage.micro_batch_launches) for stage in stages]
    whole = ends.plus(layer, row.layers / row.pp)
    reduce_s = ring_share(row.dp) * whole.gradient_bytes / bus_bytes_per_s
    return sum(times) + (row.micro_batches - 1) * max(times) + host(whole.rest_s, whole.rest_launches) + reduce_s


def order_cells(rows, predicted_s):
    """Over the groups of rows that differ in the plan alone."""
    groups = judge.groups_of(rows)
    orders = [
        judge.spearman([predicted_s[row] for row in some], [row.step_s for row in some]) for some in groups if len(some) >= LEAST_PLANS
    ]
    good = sum(order >= GOOD_ORDER for order in orders) / len(orders)
    cases, right, loss = judge.choices(rows, predicted_s)
    errors = [tables.error(predicted_s[row], row.step_s) for row in rows]
    order_cells = (len(orders), f"{statistics.median(orders):.3f}", f"{min(orders):.3f}", tables.percent(good, 0))
    return (*order_cells, cases, tables.percent(right / cases, 0), tables.percent(loss, 1), *tables.error_cells(errors)[1:3])
