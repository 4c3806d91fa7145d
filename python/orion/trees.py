"""Boosted trees on a step's features. LightGBM trains them; a trained set is plain data and is evaluated without it."""

import json
import math

SCHEMA = 1
# ORION's published settings for XGBoost (the paper gives them in words): 800 trees, 9 deep, 0.045, nine tenths of rows and features.
TREES = 800
SETTINGS = {
    "learning_rate": 0.045,
    "max_depth": 9,
    "num_leaves": 2**9 - 1,
    "bagging_fraction": 0.9,
    "bagging_freq": 1,
    "feature_fraction": 0.9,
    "lambda_l2": 1.2,
    "min_data_in_leaf": 1,
    "min_data_in_bin": 1,
}
# The same rows make the same trees, on any number of cores.
REPEATABLE = {"objective": "regression", "deterministic": True, "force_row_wise": True, "num_threads": 1, "verbosity": -1}


def train(features, targets_ms, names, logarithm=True, seed=1, count=TREES):
    """Trees for rows of features. `logarithm`: they learn the time's logarithm, so that a miss counts by its share."""
    import lightgbm
    import numpy

    targets = numpy.array([math.log(ms) if logarithm else ms for ms in targets_ms])
    settings = {**SETTINGS, **REPEATABLE, "seed": seed}
    rows = lightgbm.Dataset(numpy.array(features, dtype=float), targets, params=settings)
    trained = lightgbm.train(settings, rows, count).dump_model()
    return {
        "schema_version": SCHEMA,
        "features": list(names),
        "logarithm": logarithm,
        "trees": [_flat(tree["tree_structure"]) for tree in trained["tree_info"]],
    }


def _flat(node):
    """A tree as lists: node i tests `feature` (-1: it is a leaf with `value`) and goes to `left` if that is at most `threshold`."""
    tree = {"feature": [], "threshold": [], "left": [], "right": [], "value": []}
    _add(tree, node)
    return tree


def _add(tree, node):
    place = len(tree["feature"])
    leaf = "leaf_value" in node
    tree["feature"].append(-1 if leaf else node["split_feature"])
    tree["threshold"].append(0.0 if leaf else node["threshold"])
    tree["value"].append(node["leaf_value"] if leaf else 0.0)
    tree["left"].append(0)
    tree["right"].append(0)
    if not leaf:
        tree["left"][place] = _add(tree, node["left_child"])
        tree["right"][place] = _add(tree, node["right_child"])
    return place


def predict(model, row):
    """ms of one row of features."""
    total = 0.0
    for tree in model["trees"]:
        feature, threshold, left, right = tree["feature"], tree["threshold"], tree["left"], tree["right"]
        node = 0
        while feature[node] >= 0:
            node = left[node] if row[feature[node]] <= threshold[node] else right[node]
        total += tree["value"][node]
    return math.exp(total) if model["logarithm"] else total


def write(path, models):
    """{method: model} as one file."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"schema_version": SCHEMA, "methods": models}, file, separators=(",", ":"))


def read(path):
    """{method: model}. ValueError: the file was not made by write()."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("schema_version") != SCHEMA or not isinstance(content.get("methods"), dict):
        raise ValueError(f"{path} holds no trees of `python -m eval.orion.evaluate --trees`")
    return content["methods"]
