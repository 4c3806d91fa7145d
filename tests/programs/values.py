"""Small programs that depend on values: each answers with sizes and numbers that it reads. Run on the host for the truth, then on
the card. `known`: all values are from the host. `drawn`: values depend on unknown ones (weights, activations), and the answer has only
facts that hold anyway.
"""

import json

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)
IDS = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9])
LENGTHS = torch.tensor([3, 1, 0, 5, 2])
GRAPHS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2, 4])
TABLE = torch.arange(24).view(4, 6) % 7
REALS = torch.tensor([0.5, -1.5, 2.25, 0.0, -0.125, 7.0])


def ids(device):
    return IDS.to(device, copy=True)


def known_unique(device):
    values, inverse, counts = ids(device).unique(return_inverse=True, return_counts=True)
    return [values.tolist(), counts.tolist(), tuple(inverse.shape), int(inverse.max())]


def known_in_the_backward_pass(device):
    """A checkpoint computes again, and a custom function computes, in a thread of the engine's."""
    places, read = torch.arange(6).to(device), []

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x * 2

        @staticmethod
        def backward(context, gradient):
            read.append(int(places.max()))
            return gradient * 2

    def block(x):
        read.append(bool((places.diff() > 0).all()))
        return Scaled.apply(x)

    for reentrant in (True, False):
        x = torch.ones(6, device=device, requires_grad=True)
        checkpoint(block, x, use_reentrant=reentrant).sum().backward()
    return read


def known_unique_sorted_rows(device):
    return TABLE.to(device).unique(dim=0).shape


def known_unique_consecutive(device):
    return torch.unique_consecutive(GRAPHS.to(device), return_counts=True)[1].tolist()


def known_nonzero(device):
    return (ids(device) > 4).nonzero().shape


def known_nonzero_as_tuple(device):
    return [len(part) for part in TABLE.to(device).nonzero(as_tuple=True)]


def known_where(device):
    return torch.where(ids(device) == 9)[0].tolist()


def known_argwhere(device):
    return torch.argwhere(TABLE.to(device) == 3).tolist()


def known_masked_select(device):
    return torch.masked_select(ids(device), ids(device).ne(5)).shape


def known_mask(device):
    return ids(device)[ids(device) % 2 == 0].tolist()


def known_mask_of_rows(device):
    table = TABLE.to(device)
    return table[(table.sum(1) > 15), 2:].shape


def known_mask_of_activations(device):
    hidden = torch.randn(5, 5, 8, device=device)
    inside = torch.arange(5, device=device)[None] < LENGTHS.to(device)[:, None]
    return hidden[inside].shape


def known_set_through_mask(device):
    found = ids(device)
    found[found > 5] = 0
    return [found.sum().item(), found.count_nonzero().item()]


def known_repeat_interleave(device):
    return torch.repeat_interleave(torch.arange(5, device=device), LENGTHS.to(device)).tolist()


def known_repeat_interleave_of_lengths(device):
    return torch.repeat_interleave(LENGTHS.to(device)).shape


def known_bincount(device):
    return torch.bincount(GRAPHS.to(device), minlength=7).tolist()


def known_one_hot(device):
    return F.one_hot(ids(device)).shape


def known_item(device):
    return int(GRAPHS.to(device).max()) + 1


def known_size_as_tensor(device):
    return torch.zeros(2, LENGTHS.to(device).max() + 1, device=device).shape


def known_slice_to_tensor(device):
    return ids(device)[LENGTHS.to(device)[0] : LENGTHS.to(device).sum()].tolist()


def known_arange_to_tensor(device):
    return torch.arange(LENGTHS.to(device).max().item(), device=device).shape


def known_split(device):
    return [part.tolist() for part in ids(device)[:11].split(LENGTHS.to(device).tolist())]


def known_offsets(device):
    offsets = torch.zeros(6, dtype=torch.long, device=device)
    torch.cumsum(LENGTHS.to(device), 0, out=offsets[1:])
    return offsets.tolist()


def known_sort(device):
    values, order = ids(device).sort(descending=True, stable=True)
    return [values.tolist(), order.tolist()]


def known_argsort_and_gather(device):
    order = TABLE.to(device).argsort(dim=1, stable=True)
    return TABLE.to(device).gather(1, order).tolist()


def known_topk(device):
    return ids(device).topk(3).values.tolist()


def known_isin(device):
    return torch.isin(ids(device), torch.tensor([1, 9], device=device)).nonzero().shape


def known_searchsorted(device):
    return torch.searchsorted(torch.tensor([2, 4, 6], device=device), ids(device)).tolist()


def known_scatter_add(device):
    found = torch.zeros(5, dtype=torch.long, device=device)
    found.scatter_add_(0, GRAPHS.to(device), torch.ones_like(GRAPHS, device=device))
    return found.tolist()


def known_routing_map(device):
    """Only the shape of the scores counts."""
    routed = torch.zeros_like(torch.rand(10, 5, device=device), dtype=torch.bool)
    return routed.scatter_(-1, GRAPHS.to(device).view(-1, 1), True).sum(0).tolist()


def known_index_add(device):
    found = torch.zeros(5, device=device).index_add_(0, GRAPHS.to(device), torch.ones(10, device=device))
    return [int(one) for one in found]


def known_change_through_view(device):
    found = torch.zeros(3, 4, dtype=torch.long, device=device)
    found.view(-1)[5:8] += 2
    found[0].fill_(7)
    return found.sum(1).tolist()


def known_clone_is_apart(device):
    first = ids(device)
    second = first.clone()
    first.zero_()
    return [first.sum().item(), second.detach().sum().item()]


def known_cat_and_stack(device):
    both = torch.cat([ids(device), LENGTHS.to(device)])
    return torch.stack([both, both + 1]).max(0).values.unique().shape


def known_logic(device):
    small, odd = ids(device) < 5, ids(device) % 2 == 1
    return [((small & odd) | ~small).sum().item(), (small ^ odd).any().item(), torch.logical_and(small, odd).all().item()]


def known_if(device):
    return "nine" if (ids(device) == 9).any() else "none"


def known_while(device):
    left, rounds = LENGTHS.to(device), 0
    while (left > 0).any():
        left = (left - 1).clamp(min=0)
        rounds += 1
    return rounds


def known_reals(device):
    reals = REALS.to(device)
    return [(reals > 0).sum().item(), reals[reals.abs() > 1].shape[0], reals.long().tolist(), reals.max().item()]


def known_padding_mask(device):
    mask = torch.ones(2, 6, dtype=torch.long, device=device)
    mask[0, 4:] = 0
    return [mask.sum(-1).tolist(), (mask == 0).nonzero().shape, torch.all(mask == 1).item()]


def known_triangle(device):
    return torch.ones(5, 5, device=device).triu(1).bool().nonzero().shape


def known_boundaries(device):
    return (GRAPHS.to(device).diff() != 0).nonzero().flatten().tolist()


def known_host_copy(device):
    return ids(device).cpu().numpy().sum().item()


def known_expand_and_flatten(device):
    return LENGTHS.to(device)[:, None].expand(-1, 3).flatten().unique().tolist()


def known_equal(device):
    return [torch.equal(ids(device), IDS.to(device)), 9 in ids(device)]


def known_steps_of_foreach(device):
    steps = [torch.zeros((), device=device) for _ in range(3)]
    for _ in range(4):
        torch._foreach_add_(steps, 1)
    torch._foreach_mul_(steps[:2], [2.0, 3.0])
    return [step.item() for step in steps]


def known_combinations(device):
    return torch.combinations(LENGTHS.to(device)).sum(1).tolist()


def routed(device, experts=8, chosen=2, tokens=512):
    scores = torch.nn.Linear(16, experts).to(device)(torch.randn(tokens, 16, device=device))
    return scores.softmax(-1).topk(chosen, dim=-1).indices


def drawn_experts(device):
    mask = F.one_hot(routed(device), 8).permute(2, 1, 0)
    return sum(torch.where(mask[expert])[1].shape[0] for expert in range(8))


def drawn_experts_are_distinct(device):
    of = routed(device)
    return int((of[:, 0] == of[:, 1]).sum())


def drawn_experts_sorted(device):
    order = routed(device).flatten().argsort()
    return order.unique().shape[0]


def drawn_tokens_of_experts(device):
    return torch.bincount(routed(device).flatten(), minlength=8).sum().item()


def drawn_classes(device):
    return int(torch.randn(64, 10, device=device).argmax(1).max()) < 10


def drawn_permutation(device):
    return torch.randperm(40, device=device).unique().shape[0]


def drawn_actions(device):
    actions = torch.distributions.Categorical(logits=torch.zeros(100, 4, device=device)).sample()
    return [F.one_hot(actions, 4).sum().item(), bool((actions < 4).all())]


def drawn_labels(device):
    labels = torch.randint(0, 10, (64,), device=device)
    return "ignored" if torch.all(labels == -100) else "some"


def drawn_graph_nodes(device):
    scores = torch.randn(10, device=device)
    order = scores.argsort(descending=True)
    graphs = GRAPHS.to(device)[order]
    return torch.bincount(graphs).tolist()


def drawn_checks(device):
    loss = torch.randn(8, device=device).exp()
    assert torch.isfinite(loss).all() and (loss >= 0).all()
    return "nan" if torch.isnan(loss).any() else "well"


def programs(names):
    return {name: value for name, value in names.items() if name.startswith(("known_", "drawn_"))}


PROGRAMS = programs(dict(globals()))


def answer(program, device):
    return json.loads(json.dumps(program(device)))


def compare(given):
    wrong = 0
    for name, program in given.items():
        host = answer(program, "cpu")
        try:
            card = answer(program, "cuda")
        except Exception as error:
            card = f"{type(error).__name__}: {error}"
        wrong += host != card
        print(f"{'same' if host == card else 'OTHER'} {name}", "" if host == card else f"{host} {card}")
    print(f"of {len(given)} programs {len(given) - wrong} give the same answers as on the host")


if __name__ == "__main__":
    compare(PROGRAMS)
