"""Programs like those of values.py, with tensors of millions of elements that gpucast keeps by their structure."""

import torch
import torch.nn.functional as F
import values

torch.manual_seed(0)
CHOSEN = torch.rand(4096, 64).topk(8).indices  # the experts of each token
LENGTHS = torch.tensor([700, 1, 900, 1200, 0, 1295])


def experts(device):
    return F.one_hot(CHOSEN.to(device), 64)  # 2 million elements


def known_tokens_of_experts(device):
    mask = experts(device).permute(2, 1, 0)
    hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
    found = []
    for expert in hit:
        place, token = torch.where(mask[expert[0]])
        found.append([len(place), place.sum().item(), token[:3].tolist(), token.sum().item()])
    return found


def known_one_expert_squeezed(device):
    mask = experts(device).permute(2, 1, 0)
    return [torch.where(mask[torch.tensor([5], device=device)].squeeze(0))[1].sum().item(), (mask[7] > 0).nonzero().shape]


def known_sums_of_one_hot(device):
    mask = experts(device)
    return [
        mask.sum((0, 1)).tolist(),
        mask.sum(1).sum(0)[:5].tolist(),
        mask.float().mean(0).sum(0)[:5].mul(4096).long().tolist(),
        [mask.sum(2).min().item(), mask.any(0).sum().item(), mask.bool().all().item(), mask.sum().item()],
        mask.flatten(0, 1).sum(0)[-3:].tolist(),
        (mask * 3 + 1).sum().item(),
        (1 - mask).sum((0, 1))[:4].tolist(),
    ]


def known_all_places(device):
    mask = experts(device)
    first, last = mask.nonzero(), mask.permute(2, 0, 1).nonzero()
    return [first.shape, first[1000:1003].tolist(), last[1000:1003].tolist(), last[:, 0].diff().min().item()]


def known_compared_with_range(device):
    mask = CHOSEN.to(device).unsqueeze(-1) == torch.arange(8, 40, device=device)
    return [mask.sum((0, 1)).tolist(), torch.count_nonzero(mask).item(), torch.where(mask[..., 3])[0][:4].tolist()]


def known_compared_with_number(device):
    chosen = CHOSEN.to(device).repeat(4, 1)
    return [[len(torch.where(chosen == expert)[0]) for expert in (0, 9, 63, 64)], (chosen == 3).any(-1).sum().item()]


def known_large_sort(device):
    flat = CHOSEN.to(device).repeat(40, 1).flatten()  # 1.3 million
    order = flat.argsort(stable=True)
    counts = torch.bincount(flat, minlength=64)
    offsets = counts.cumsum(0, dtype=torch.int32)
    return [order[::99999].tolist(), counts.cpu().numpy().tolist(), offsets[-1].item(), torch.histc(flat.float(), 64, 0, 63).sum().item()]


def known_scattered_counts(device):
    counts = CHOSEN.to(device).new_zeros((4096, 300))
    counts.scatter_(1, CHOSEN.to(device), 1)
    return counts.sum(0)[:70].tolist()


def known_capacity(device):
    mask = F.one_hot(CHOSEN[:, 0].to(device).repeat(8), 64)
    kept = mask * (torch.cumsum(mask, dim=0) <= 300)
    return [kept.sum(0).tolist(), len(kept.bool()[:, 5].nonzero())]


def known_triangles(device):
    causal = torch.ones(3000, 3000, dtype=torch.bool, device=device).tril()
    band = torch.triu(torch.full((2000, 2000), -1.0, device=device), diagonal=1)
    return [causal.sum().item(), causal.sum(-1)[::999].tolist(), (~causal).any().item(), (band < 0).sum(0)[::999].tolist()]


def known_documents(device):
    document = torch.repeat_interleave(torch.arange(6, device=device), LENGTHS.to(device))
    position = torch.arange(len(document), device=device)
    same = (document[:, None] == document[None, :]) & (position[:, None] >= position[None, :])
    return [same.sum().item(), same[700].nonzero().tolist(), same.sum(1).max().item(), same[None, None].expand(2, 1, -1, -1).sum().item()]


def known_padding_in_four_dimensions(device):
    mask = torch.arange(1024, device=device)[None] < LENGTHS.to(device)[:, None]
    wide = mask[:, None, None, :].expand(6, 4, 1024, 1024)
    return [wide.all().item(), wide.sum().item(), wide.any(-1).sum().item(), wide[2].all().item()]


def known_index_changes_after(device):
    chosen = CHOSEN.to(device)
    mask = F.one_hot(chosen, 64).bool().clone()
    mask[0] = False
    return mask.sum().item()


def drawn_routing(device):
    scores = torch.randn(16384, 128, device=device)
    chosen = scores.topk(8).indices
    mask = F.one_hot(chosen, 128).permute(2, 1, 0)
    taken = [len(torch.where(mask[expert])[1]) for expert in range(128)]
    return [sum(taken), mask.sum(0).max().item() < 9, bool((mask.sum(1).max() == 1).item())]


PROGRAMS = values.programs(globals())

if __name__ == "__main__":
    values.compare(PROGRAMS)
