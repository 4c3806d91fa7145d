"""Layers of experts, on the host with the router's real choices and on the card with gpucast's: tokens of each expert, and the peak of live bytes.

    gpucast run --gpu a100-80 --values on -- python experts.py [--blocks NAME,...] [--rounds 10] [--tokens N] [--width N]

One line of JSON for each block. A round on the host has its own seed, so its own weights and inputs. Live bytes are counted in the same way on
both sides: storages that operators of forward and backward made and that are still referenced.
"""

import argparse
import importlib
import json
import weakref

import torch
from torch import nn
from torch.nn.functional import one_hot, silu
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ROUND = 512  # bytes; the allocator's


class LiveBytes(TorchDispatchMode):
    """Of one device, since its beginning."""

    def __init__(self, device):
        super().__init__()
        self.device, self.now, self.peak, self._storages = torch.device(device).type, 0, 0, {}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            if isinstance(one, torch.Tensor) and one.device.type == self.device:
                self._add(one.untyped_storage())
        return result

    def know(self, tensors):
        """These were there before."""
        for one in tensors:
            self._storages[one.untyped_storage()._cdata] = None

    def _add(self, storage):
        key = storage._cdata
        if key in self._storages:
            return
        size = -(-storage.nbytes() // ROUND) * ROUND

        def gone(_):
            del self._storages[key]
            self.now -= size

        self._storages[key] = weakref.ref(storage, gone)
        self.now += size
        self.peak = max(self.peak, self.now)


class Expert(nn.Module):
    def __init__(self, width, inner):
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """Experts of a layer, and the number that each token goes to."""

    def __init__(self, width, experts, chosen):
        super().__init__()
        self.chosen, self.taken = chosen, []
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(Expert(width, 2 * width) for _ in range(experts))

    def of(self, number, x):
        self.taken.append(len(x))
        return self.experts[number](x)

    def choose(self, x):
        weights, indices = self.router(x).softmax(-1).topk(self.chosen)
        return weights / weights.sum(-1, keepdim=True), indices


class ComparedWithEach(Block):
    """As in Mistral's own code."""

    def forward(self, x):
        weights, indices = self.choose(x)
        out = torch.zeros_like(x)
        for number in range(len(self.experts)):
            token, place = torch.where(indices == number)
            out[token] += weights[token, place, None] * self.of(number, x[token])
        return out


class OneHot(Block):
    """As in Hugging Face's Mixtral and Qwen3-MoE: experts without tokens are left out."""

    def forward(self, x):
        weights, indices = self.choose(x)
        out = torch.zeros_like(x)
        with torch.no_grad():
            mask = one_hot(indices, len(self.experts)).permute(2, 1, 0)
            hit = (mask.sum((-1, -2)) > 0).nonzero()
        for number in hit:
            place, token = torch.where(mask[number[0]])
            out.index_add_(0, token, self.of(int(number[0]), x[token]) * weights[token, place, None])
        return out


class Grouped(Block):
    """As in DeepSeek-V3: experts of the best groups only, shared experts, and counts that the host reads."""

    groups, best = 8, 3

    def __init__(self, width, experts, chosen):
        super().__init__(width, experts, chosen)
        self.shared = Expert(width, 2 * width)
        self.groups_of_a_token = 0

    def choose(self, x):
        scores = self.router(x).sigmoid()
        with torch.no_grad():
            of_group = scores.view(len(x), self.groups, -1)
            best = of_group.topk(2, dim=-1).values.sum(-1).topk(self.best, dim=-1, sorted=False).indices
            allowed = torch.zeros(len(x), self.groups, device=x.device).scatter_(1, best, 1).bool()
            indices = of_group.masked_fill(~allowed.unsqueeze(-1), float("-inf")).flatten(1).topk(self.chosen, dim=-1, sorted=False).indices
        weights = scores.gather(1, indices)
        return weights / weights.sum(-1, keepdim=True), indices

    def forward(self, x):
        weights, indices = self.choose(x)
        out = torch.zeros_like(x)
        counts = torch.bincount(indices.flatten(), minlength=len(self.experts)).tolist()
        for number, count in enumerate(counts):
            if count:
                token, place = torch.where(indices == number)
                out[token] += self.of(number, x[token]) * weights[token, place, None]
        size = len(self.experts) // self.groups
        self.groups_of_a_token = max(len({index // size for index in row}) for row in indices.tolist())
        return out + self.shared(x)


class Sorted(Grouped):
    """As in DeepSeek's code for inference: tokens in the order of their experts, cut by counts on the host."""

    def forward(self, x):
        weights, indices = self.choose(x)
        counts = indices.new_zeros(len(x), len(self.experts)).scatter_(1, indices, 1).sum(0).tolist()
        order = indices.flatten().argsort()
        parts = x[order // self.chosen].split(counts)
        outputs = torch.cat([self.of(number, part) for number, part in enumerate(parts) if len(part)])
        back = torch.empty_like(outputs).index_copy(0, order, outputs).view(len(x), self.chosen, -1)
        return (back * weights.unsqueeze(-1)).sum(1) + self.shared(x)


class Capacity(Block):
    """As in Switch Transformers: one expert a token, and no more tokens than the capacity; the others pass."""

    def forward(self, x):
        probabilities = self.router(x).softmax(-1)
        mask = one_hot(probabilities.argmax(-1), len(self.experts))
        mask = (mask * (mask.cumsum(0) <= len(x) // len(self.experts))).bool()
        out = x.clone()
        for number in mask.sum(0).nonzero().flatten().tolist():
            out[mask[:, number]] = self.of(number, x[mask[:, number]])
        return probabilities.max(-1).values.unsqueeze(-1) * out


HAND = {
    "each": (ComparedWithEach, 8, 2),
    "one-hot": (OneHot, 32, 4),
    "grouped": (Grouped, 32, 4),
    "sorted": (Sorted, 32, 4),
    "capacity": (Capacity, 4, 1),
}


class Indices(TorchDispatchMode):
    """Counts tokens by the indices with which Hugging Face's loops add an expert's output."""

    def __init__(self, taken):
        super().__init__()
        self.taken = taken

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is torch.ops.aten.index_add_.default:
            self.taken.append(len(args[2]))
        return function(*args, **(kwargs or {}))


class HuggingFace(nn.Module):
    """One of its blocks or small models, with the numbers that `measure` reads."""

    def __init__(self, part):
        super().__init__()
        self.part, self.taken = part, []

    def forward(self, x):
        with Indices(self.taken):
            out = self.part(x.unsqueeze(0))
        return out.logits if hasattr(out, "logits") else out[0]


# Name -> (the module of its classes, the block's class, number of experts, chosen ones, more settings).
HUGGING_FACE = {
    "mixtral": ("mixtral", "MixtralSparseMoeBlock", 8, 2, {"num_local_experts": 8}),
    "qwen3-moe": ("qwen3_moe", "Qwen3MoeSparseMoeBlock", 64, 8, {"num_experts": 64, "norm_topk_prob": True}),
    "deepseek-v3": (
        "deepseek_v3",
        "DeepseekV3MoE",
        64,
        8,
        {"n_routed_experts": 64, "n_group": 8, "topk_group": 3, "first_k_dense_replace": 0, "q_lora_rank": 64, "kv_lora_rank": 64},
    ),
}
MODEL = "-model"
LAYERS, VOCABULARY = 2, 1000


def hugging_face(name, width):
    family, kind, experts, chosen, more = HUGGING_FACE[name.removesuffix(MODEL)]
    from transformers import AutoConfig, AutoModelForCausalLM, __version__

    sizes = {"hidden_size": width, "intermediate_size": 2 * width, "moe_intermediate_size": 2 * width, "vocab_size": VOCABULARY}
    heads = {"num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 4}
    if family != "deepseek_v3":
        heads["head_dim"] = width // 4
    config = AutoConfig.for_model(family, **sizes, **heads, **more, num_experts_per_tok=chosen, pad_token_id=0)
    if name.endswith(MODEL):
        loops = {"experts_implementation": "eager"} if int(__version__.split(".")[0]) >= 5 else {}  # before, there were only loops
        return HuggingFace(AutoModelForCausalLM.from_config(config, attn_implementation="eager", **loops)), experts, chosen
    module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    block = getattr(module, kind)(config)
    for parameter in block.parameters():
        nn.init.normal_(parameter, std=0.02)
    return HuggingFace(block), experts, chosen


def make(name, width):
    if name not in HAND:
        return hugging_face(name, width)
    kind, experts, chosen = HAND[name]
    return kind(width, experts, chosen), experts, chosen


def measure(block, x):
    """One forward and backward pass."""
    block.taken.clear()
    for parameter in block.parameters():
        parameter.grad = None
    counted = LiveBytes(x.device)
    counted.know([x, *block.parameters(), *block.buffers()])
    with counted:
        block(x).sum().backward()
    taken = [count for count in block.taken if count]
    found = {"sum": sum(taken), "hit": len(taken), "busiest": max(taken), "peak": counted.peak}
    groups = getattr(block, "groups_of_a_token", 0)
    return found | ({"groups": groups} if groups else {})


def inputs(name, args, device):
    if name.endswith(MODEL):
        return torch.randint(VOCABULARY, (args.tokens,)).to(device)
    return torch.randn(args.tokens, args.width, device=device)


def parse_args():
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "--blocks", default=",".join(HAND), help=", ".join([*HAND, *HUGGING_FACE, *(name + MODEL for name in HUGGING_FACE)])
    )
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--width", type=int, default=32)
    return parser.parse_args()


def main():
    args = parse_args()
    for name in args.blocks.split(","):
        host, card = [], []
        for seed in range(args.rounds):
            torch.manual_seed(seed)
            block, experts, chosen = make(name, args.width)
            host.append(measure(block, inputs(name, args, "cpu")))
        block = make(name, args.width)[0].cuda()
        for _ in range(args.rounds):
            x = inputs(name, args, "cuda")
            torch.cuda.reset_peak_memory_stats()
            for parameter in block.parameters():
                parameter.grad = None
            before = torch.cuda.memory_allocated()
            card.append(measure(block, x) | {"allocated": torch.cuda.max_memory_allocated() - before})
        print(json.dumps({"block": name, "tokens": args.tokens, "experts": experts, "chosen": chosen, "host": host, "card": card}))


if __name__ == "__main__":
    main()
