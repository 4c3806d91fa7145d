"""SchedTune and LLMem, written again from their descriptions. model_statistics.py makes their inputs.

LLMem (Kim et al., IJCAI 2024, doi 10.24963/ijcai.2024/699), one GPU: the base, parameters, Adam's states, the outputs of the embeddings and of every
decoder layer, and the last layer's output with the two copies that the loss makes; each tensor in whole steps of 2 MiB. Its parameters share
memory with their gradients, and it assumes Adam for any optimizer. It was made for training in 16 bits; here all is fp32, like the runs.

SchedTune (Albahar et al., CCGrid 2022, doi 10.1109/CCGrid54584.2022.00079): a random forest on the sizes of activations, parameters and input
and on the card's figures. The original forest was trained on its authors' measurements; here on the measured rows of all models except the judged one.
"""

import random
import statistics

MIB = 2**20
STEP_BYTES = 2 * MIB
FP32_BYTES = 4
LLMEM = "LLMem, anew"
SCHEDTUNE = "SchedTune, anew"
TREES = 50


# --- LLMem ---------------------------------------------------------------------------------------------------------------------------


def in_steps(size_bytes):
    return -(-size_bytes // STEP_BYTES) * STEP_BYTES


def llmem_bytes(model, batch, base_bytes):
    """None: it knows models of decoder layers only."""
    decoder = model.get("decoder")
    if decoder is None:
        return None
    parameters = sum(in_steps(weight) for weight in decoder["weights_bytes"])
    states = 2 * parameters
    tokens = batch * decoder["length"]
    hidden = in_steps(tokens * decoder["hidden"] * FP32_BYTES)
    outputs = (2 + decoder["layers"]) * hidden  # embeddings of tokens and of positions, then each layer's
    last = in_steps(tokens * decoder["vocabulary"] * FP32_BYTES)
    without_first = in_steps((tokens - batch) * decoder["vocabulary"] * FP32_BYTES)
    return base_bytes + parameters + states + in_steps(batch * model["input_bytes"]) + outputs + last + 2 * without_first


# --- SchedTune -----------------------------------------------------------------------------------------------------------------------


def features(model, batch, card):
    """The inputs of its published predictor, as far as the list of cards has them."""
    return (
        batch * model["outputs_bytes"],
        model["parameters_bytes"],
        batch * model["input_bytes"],
        card["bandwidth_bytes_per_s"],
        card["peak_flop_per_s"]["fp32"],
        card["multiprocessors"],
        card["memory_clock_khz"],
    )


def grow(points, values):
    """A regression tree: a leaf is a number, else (feature, threshold, at most it, above it)."""
    best = None
    for feature in range(len(points[0])):
        order = sorted(range(len(points)), key=lambda i: points[i][feature])
        total, below = sum(values), 0.0
        for count, (i, after) in enumerate(zip(order, order[1:]), start=1):
            below += values[i]
            if points[i][feature] == points[after][feature]:
                continue
            # The squares that the two means explain; the most explained leaves the least spread.
            explained = below**2 / count + (total - below) ** 2 / (len(order) - count)
            if best is None or explained > best[0]:
                best = explained, feature, (points[i][feature] + points[after][feature]) / 2
    if best is None or min(values) == max(values):
        return statistics.fmean(values)
    _, feature, threshold = best
    sides = [[i for i, point in enumerate(points) if (point[feature] > threshold) == above] for above in (False, True)]
    return (feature, threshold, *(grow([points[i] for i in side], [values[i] for i in side]) for side in sides))


def tree_value(tree, point):
    while isinstance(tree, tuple):
        feature, threshold, low, high = tree
        tree = high if point[feature] > threshold else low
    return tree


def forest(points, values, seed, trees=TREES):
    """Trees on the same number of points, drawn with replacement."""
    chance = random.Random(seed)
    grown = []
    for _ in range(trees):
        drawn = chance.choices(range(len(points)), k=len(points))
        grown.append(grow([points[i] for i in drawn], [values[i] for i in drawn]))
    return grown


def forest_value(trees, point):
    return statistics.fmean(tree_value(tree, point) for tree in trees)


def schedtune_bytes(samples, seed):
    """[estimate] of [(model's name, features, measured bytes; None where the run was out of memory)], each by the other models' rows.

    None: no other model was measured.
    """
    forests = {}
    for name in {name for name, _, _ in samples}:
        taught = [(point, value) for other, point, value in samples if other != name and value is not None]
        forests[name] = forest(*zip(*taught), seed) if taught else None
    return [forest_value(forests[name], point) if forests[name] else None for name, point, _ in samples]
