"""The program of `gpucast occupancy --method dnn-occu`: predict.py GRAPH WEIGHTS CARDS ANSWER. CARDS are entries of `gpucast gpus --format json`;
ANSWER becomes {"occupancies": [...]}, one for each card, or {"problem": "..."}."""

import json
import os
import sys


def answer(graph_path, weights_path, cards_path):
    try:
        import numpy  # noqa: F401
    except ImportError:
        return {"problem": "this Python has no NumPy: pip install numpy"}
    from dnn_occu import graphs, training

    try:
        recorded = graphs.read(graph_path)
        network = training.load("DNN-occu", weights_path)
    except (ValueError, OSError) as error:
        return {"problem": str(error)}
    with open(cards_path, encoding="utf-8") as file:
        cards = json.load(file)
    return {"occupancies": training.predict(network, [graphs.graph(recorded, graphs.card(gpu)) for gpu in cards])}


if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    result = answer(*sys.argv[1:4])
    with open(sys.argv[4], "w", encoding="utf-8") as file:
        json.dump(result, file)
