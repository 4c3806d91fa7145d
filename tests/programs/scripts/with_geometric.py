"""PyTorch Geometric on random graphs: with_geometric.py gcn|gat|topk."""

import sys

import counters  # noqa: F401
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GATConv, GCNConv, TopKPooling, global_max_pool, global_mean_pool

kind = sys.argv[1]


def random_graph(nodes):
    return Data(torch.randn(nodes, 32), torch.randint(0, nodes, (2, 4 * nodes)), y=torch.randint(0, 3, (1,)))


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        layer = GATConv if kind == "gat" else GCNConv
        self.first, self.second = layer(32, 64), layer(64, 64)
        self.pool = TopKPooling(64, 0.5)
        self.out = torch.nn.Linear(64, 3)

    def forward(self, data):
        x, edges, batch = self.first(data.x, data.edge_index).relu(), data.edge_index, data.batch
        if kind == "topk":
            x, edges, _, batch, _, _ = self.pool(x, edges, None, batch)
        x = self.second(x, edges)
        if kind == "gcn":
            return self.out(x)
        return self.out(global_max_pool(x, batch) + global_mean_pool(x, batch))


model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters())
if kind == "gcn":
    one = random_graph(2000).cuda()
    one.y, mask = torch.randint(0, 3, (2000,)).cuda(), (torch.arange(2000) % 3 == 0).cuda()
    for _ in range(3):
        F.cross_entropy(model(one)[mask], one.y[mask]).backward()
        optimizer.step()
        optimizer.zero_grad()
else:
    for batch in DataLoader([random_graph(20 + place) for place in range(24)], 8, shuffle=True):
        batch = batch.cuda()
        F.cross_entropy(model(batch), batch.y).backward()
        optimizer.step()
        optimizer.zero_grad()
