"""DNN-occu and the five networks that the paper compares it with (section IV.D). Each maps a batch of graphs with the same number of nodes to
occupancies: nodes [graphs, nodes, NODE_FEATURES], edges [edges of all, EDGE_FEATURES], ends [edges of all, 2] into graphs * nodes."""

import torch
from torch import nn
from torch.nn import functional

from .graphs import EDGE_FEATURES, NODE_FEATURES, OPERATORS


def _head(width):
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


def _feed_forward(width, hidden):
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, width))


class Anee(nn.Module):
    """Attention-based node-edge encoder (section III.D, after DNNPerf). A node keeps its own features next to its neighbours': otherwise
    the first node of a graph would be lost, because it has no edge."""

    def __init__(self, nodes, edges, width):
        super().__init__()
        self.nodes = nn.Linear(nodes, width, bias=False)
        self.edges = nn.Linear(edges, width, bias=False)
        self.gate = nn.Linear(2 * width, 1, bias=False)
        self.weight = nn.Linear(width, width, bias=False)

    def forward(self, nodes, edges, ends):
        """nodes [all nodes, ...], edges [all edges, ...] -> both of the layer's width."""
        nodes = functional.leaky_relu(self.nodes(nodes))
        if len(ends) == 0:
            return nodes, self.edges(edges)
        source, target = ends[:, 0], ends[:, 1]
        between = torch.cat([nodes[source], nodes[target]], dim=1)
        edges = torch.sigmoid(self.gate(between)) * self.edges(edges)
        score = self.weight(edges).clamp(-30, 30).exp()  # softmax over a node's edges
        total = torch.zeros_like(nodes).index_add(0, target, score)
        gathered = torch.zeros_like(nodes).index_add(0, target, score / total[target] * nodes[source])
        return functional.leaky_relu(gathered) + nodes, edges


class Graphormer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.before_attention, self.before_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.feed = _feed_forward(width, width)

    def forward(self, x):
        normal = self.before_attention(x)
        x = x + self.attention(normal, normal, normal, need_weights=False)[0]
        return x + self.feed(self.before_feed(x))


class Mab(nn.Module):
    """Multihead attention block of the Set Transformer."""

    def __init__(self, width, heads):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.after_attention, self.after_feed = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed = _feed_forward(width, width)

    def forward(self, x, y):
        hidden = self.after_attention(x + self.attention(x, y, y, need_weights=False)[0])
        return self.after_feed(hidden + self.feed(hidden))


class SetDecoder(nn.Module):
    """Pools the nodes into `seeds` vectors, then these attend to each other, `layers` times."""

    def __init__(self, width, heads, seeds, layers):
        super().__init__()
        self.seeds = nn.Parameter(torch.randn(seeds, width) / width**0.5)
        self.before_pooling, self.pooling = _feed_forward(width, width), Mab(width, heads)
        self.layers = nn.ModuleList(Mab(width, heads) for _ in range(layers))
        self.feed = _feed_forward(width, width)

    def forward(self, x):
        x = self.pooling(self.seeds.expand(len(x), -1, -1), self.before_pooling(x))
        for layer in self.layers:
            x = layer(x, x)
        return self.feed(x)


class DnnOccu(nn.Module):
    """One ANEE layer, two Graphormer layers, two Set Transformer decoder layers, hidden dimension 256."""

    def __init__(self, width=256, heads=4):
        super().__init__()
        self.anee = Anee(NODE_FEATURES, EDGE_FEATURES, width)
        self.layers = nn.ModuleList(Graphormer(width, heads) for _ in range(2))
        self.decoder = SetDecoder(width, heads, seeds=4, layers=2)
        self.head = _head(width)

    def forward(self, nodes, edges, ends):
        graphs, count, _ = nodes.shape
        x, _ = self.anee(nodes.flatten(0, 1), edges, ends)
        x = x.view(graphs, count, -1)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.decoder(x).mean(1)).squeeze(1)


class Mlp(nn.Module):
    """Four layers of 80, 512, 512 and 256 on the mean of the nodes' features."""

    def __init__(self):
        super().__init__()
        sizes = (NODE_FEATURES, 80, 512, 512, 256)
        layers = [layer for pair in zip(sizes, sizes[1:]) for layer in (nn.Linear(*pair), nn.ReLU())]
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(256, 1)

    def forward(self, nodes, edges, ends):
        return self.head(self.layers(nodes.mean(1))).squeeze(1)


class Lstm(nn.Module):
    """Two layers of 256 along the nodes in the order in which they ran."""

    def __init__(self):
        super().__init__()
        self.layers, self.head = nn.LSTM(NODE_FEATURES, 256, num_layers=2, batch_first=True), nn.Linear(256, 1)

    def forward(self, nodes, edges, ends):
        return self.head(self.layers(nodes)[0][:, -1]).squeeze(1)


class Transformer(nn.Module):
    """Three encoder layers of four heads and a feed-forward network of 512."""

    def __init__(self, width=256):
        super().__init__()
        self.before = nn.Linear(NODE_FEATURES, width)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(width, 4, 512, dropout=0, batch_first=True) for _ in range(3))
        self.head = nn.Linear(width, 1)

    def forward(self, nodes, edges, ends):
        x = self.before(nodes)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(1)).squeeze(1)


class DnnPerf(nn.Module):
    """ANEE layers and a sum over the nodes."""

    def __init__(self, width=256, layers=3):
        super().__init__()
        sizes = [(NODE_FEATURES, EDGE_FEATURES)] + [(width, width)] * (layers - 1)
        self.layers = nn.ModuleList(Anee(nodes, edges, width) for nodes, edges in sizes)
        self.head = _head(width)

    def forward(self, nodes, edges, ends):
        graphs, count, _ = nodes.shape
        x = nodes.flatten(0, 1)
        for layer in self.layers:
            x, edges = layer(x, edges, ends)
        return self.head(x.view(graphs, count, -1).mean(1)).squeeze(1)


class BrpNas(nn.Module):
    """Four graph convolutions on the operators' types alone: it sees neither sizes nor cards."""

    def __init__(self, width=256):
        super().__init__()
        sizes = (len(OPERATORS) + 1, width, width, width, width)
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in zip(sizes, sizes[1:]))
        self.head = nn.Linear(width, 1)

    def forward(self, nodes, edges, ends):
        graphs, count, _ = nodes.shape
        x = nodes[..., : len(OPERATORS) + 1].flatten(0, 1)
        ends = torch.cat([ends, ends.flip(1), torch.arange(len(x)).repeat(2, 1).T])  # both ways, and each node itself
        degree = torch.zeros(len(x)).index_add(0, ends[:, 1], torch.ones(len(ends)))
        share = (degree[ends[:, 0]] * degree[ends[:, 1]]).rsqrt().unsqueeze(1)
        for layer in self.layers:
            x = layer(x)
            x = functional.relu(torch.zeros_like(x).index_add(0, ends[:, 1], share * x[ends[:, 0]]))
        return self.head(x.view(graphs, count, -1).mean(1)).squeeze(1)


NETWORKS = {"DNN-occu": DnnOccu, "MLP": Mlp, "LSTM": Lstm, "Transformer": Transformer, "DNNPerf": DnnPerf, "BRP-NAS": BrpNas}


def last_bias(network):
    """Of the layer that ends it."""
    head = network.head
    return (head[-1] if isinstance(head, nn.Sequential) else head).bias
