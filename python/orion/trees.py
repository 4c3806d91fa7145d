"""Boosted trees on a step's features. Training needs scikit-learn; a trained set is plain data and is asked without it."""

import json
import math
import struct

SCHEMA = 1
# The settings of ORION's published scripts (for XGBoost); the paper has them in words.
SETTINGS = {"n_estimators": 800, "learning_rate": 0.045, "max_depth": 9, "subsample": 0.9, "max_features": 0.9}


def train(features, measured_ms, names, logarithm=True, seed=1, settings=None):
    """Trees for rows of features. `logarithm`: they learn the time's logarithm, so that a miss counts by its share."""
    from sklearn.ensemble import GradientBoostingRegressor

    targets = [math.log(ms) if logarithm else ms for ms in measured_ms]
    fitted = GradientBoostingRegressor(random_state=seed, **(settings or SETTINGS)).fit(features, targets)
    trees = []
    for tree in (estimator.tree_ for estimator in fitted.estimators_[:, 0]):
        trees.append(
            {
                "feature": [int(place) for place in tree.feature],  # below 0: a leaf
                "threshold": [float(value) for value in tree.threshold],  # at most this much goes left
                "left": [int(place) for place in tree.children_left],
                "right": [int(place) for place in tree.children_right],
                "value": [float(value) * fitted.learning_rate for value in tree.value[:, 0, 0]],
            }
        )
    start = float(fitted.init_.constant_[0][0])
    return {"schema_version": SCHEMA, "features": list(names), "logarithm": logarithm, "start": start, "trees": trees}


def predict(model, row):
    """ms of one row of features."""
    # As scikit-learn compares: a feature in single precision with a threshold in double.
    total = model["start"]
    row = [_single(value) for value in row]
    for tree in model["trees"]:
        feature, threshold, left, right = tree["feature"], tree["threshold"], tree["left"], tree["right"]
        node = 0
        while feature[node] >= 0:
            node = left[node] if row[feature[node]] <= threshold[node] else right[node]
        total += tree["value"][node]
    return math.exp(total) if model["logarithm"] else total


def _single(value):
    return struct.unpack("f", struct.pack("f", value))[0]


def write(path, models):
    """{method: model} as one file."""
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"schema_version": SCHEMA, "methods": models}, file, separators=(",", ":"))


def read(path):
    """{method: model}. ValueError: the file is none of write()."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("schema_version") != SCHEMA or not isinstance(content.get("methods"), dict):
        raise ValueError(f"{path} holds no trees of `eval/time/orion/evaluate.py --trees`")
    return content["methods"]
