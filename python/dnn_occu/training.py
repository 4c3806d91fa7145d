"""Trains a network on graphs with known occupancies: Adam, learning rate and weight decay 1e-4, mean squared error (section V)."""

import os
import random
import sys
import time
import zipfile

import numpy
import torch

from .networks import NETWORKS, last_bias

_MOST_NODES = 4096  # in a batch


def batch(graphs):
    """Joins graphs with the same number of nodes into one."""
    count = len(graphs[0].nodes)
    nodes = torch.from_numpy(numpy.stack([graph.nodes for graph in graphs]))
    edges = torch.from_numpy(numpy.concatenate([graph.edges for graph in graphs]))
    ends = torch.from_numpy(numpy.concatenate([graph.ends + place * count for place, graph in enumerate(graphs)]))
    return nodes, edges, ends


def batches(graphs, largest, rng=None):
    """Indices of graphs, in groups with the same number of nodes; with `rng` in random order."""
    by_nodes = {}
    for place, graph in enumerate(graphs):
        by_nodes.setdefault(len(graph.nodes), []).append(place)
    groups = []
    for count, places in by_nodes.items():
        if rng:
            rng.shuffle(places)
        size = max(1, min(largest, _MOST_NODES // count))
        groups += [places[begin : begin + size] for begin in range(0, len(places), size)]
    if rng:
        rng.shuffle(groups)
    return groups


def train(kind, graphs, truth, epochs, seed, folder, at_most=8, progress=sys.stderr):
    """Continues after an earlier call with the same `folder`. Returns the network and its training time in seconds, in all."""
    path = os.path.join(folder, f"{kind}.npz")
    torch.manual_seed(seed)
    torch.set_flush_denormal(True)  # weights of features that never occur decay towards 0: five times as slow otherwise
    network = NETWORKS[kind]()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-4, weight_decay=1e-4)
    truth = torch.tensor(truth, dtype=torch.float32)
    with torch.no_grad():
        last_bias(network).fill_(truth.mean())
    done, seconds = 0, 0.0
    if os.path.exists(path):
        with numpy.load(path, allow_pickle=False) as state:
            done, seconds = int(state["epochs"]), float(state["seconds"])
            _set(network, optimizer, state)
    for epoch in range(done, epochs):
        began, loss_sum = time.monotonic(), 0.0
        for places in batches(graphs, at_most, random.Random(f"{seed} {epoch}")):
            optimizer.zero_grad()
            loss = (network(*batch([graphs[place] for place in places])) - truth[places]).square().mean()
            loss.backward()
            optimizer.step()
            loss_sum += loss.item() * len(places)
        seconds += time.monotonic() - began
        numpy.savez(path + ".tmp.npz", epochs=epoch + 1, seconds=seconds, **_state(network, optimizer))
        os.replace(path + ".tmp.npz", path)
        print(
            f"{kind}: epoch {epoch + 1} of {epochs}, error {(loss_sum / len(graphs)) ** 0.5:.4f} (root of the mean square), "
            f"{seconds:.0f} s, {seconds / (epoch + 1) * (epochs - epoch - 1):.0f} s to go",
            file=progress,
            flush=True,
        )
    return network, seconds


def _state(network, optimizer):
    """The state for continuing a training: the parameters and Adam's moments, by the parameters' indices."""
    out = {}
    for place, parameter in enumerate(network.parameters()):
        out[f"{place}.parameter"] = parameter.detach().numpy()
        out.update({f"{place}.{name}": value.numpy() for name, value in optimizer.state[parameter].items()})
    return out


def _set(network, optimizer, state):
    with torch.no_grad():
        for place, parameter in enumerate(network.parameters()):
            parameter.copy_(torch.from_numpy(state[f"{place}.parameter"]))
            optimizer.state[parameter] = {name: torch.from_numpy(state[f"{place}.{name}"]) for name in ("step", "exp_avg", "exp_avg_sq")}


def predict(network, graphs):
    out = [0.0] * len(graphs)
    with torch.no_grad():
        for places in batches(graphs, 64):
            for place, value in zip(places, network(*batch([graphs[place] for place in places])).tolist()):
                out[place] = min(1.0, max(0.0, value))
    return out


def save(network, path):
    """In half precision: the weights are part of the program."""
    numpy.savez_compressed(path, **{name: value.numpy().astype(numpy.float16) for name, value in network.state_dict().items()})


def load(kind, path):
    """ValueError: these are no weights of it."""
    network = NETWORKS[kind]()
    try:
        with numpy.load(path, allow_pickle=False) as weights:
            network.load_state_dict({name: torch.from_numpy(weights[name].astype(numpy.float32)) for name in weights.files})
    except (RuntimeError, ValueError, OSError, KeyError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} has no weights of {kind}: {str(error).splitlines()[0]}") from None
    return network
