"""`gpucast run --what-if NAME`: the effect equals a change that is written into the script by hand."""

import sys

import pytest

pytestmark = pytest.mark.once

SCRIPT = """
import argparse
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up, self.down, self.dropout = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout()

    def forward(self, x, scale=1.0):
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(x))))) * scale


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed, self.head = nn.Linear(64, width), nn.Linear(width, 1000)
        self.blocks = nn.ModuleList(Block(width) for _ in range(4))

    def forward(self, x):
        x = self.embed(x)
        for block in self.blocks:
            x = block(x, scale=0.5)
        return self.head(x)


parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=1024)
batch = parser.parse_args().batch_size
model = Net(512).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.zeros(4 * batch, 64), torch.zeros(4 * batch, dtype=torch.long))
for x, y in DataLoader(data, batch_size=batch):
    x, y = x.cuda(), y.cuda()
    optimizer.zero_grad(set_to_none=False)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
"""

EACH_ALONE = """
optimizers = {p: torch.optim.AdamW([p]) for p in model.parameters()}


def step_one(p):
    optimizers[p].step()
    optimizers[p].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(step_one)
"""

OFFLOADED = """
optimizers = {p: torch.optim.AdamW([p]) for p in model.parameters()}
host = {p: {} for p in model.parameters()}


def step():
    for p, optimizer in optimizers.items():
        state = optimizer.state[p]
        for name, kept in host[p].items():
            state[name] = kept.to("cuda", non_blocking=True)
        optimizer.step()
        for name in ("exp_avg", "exp_avg_sq"):
            if name not in host[p]:
                host[p][name] = torch.empty(p.shape, pin_memory=True)
            state[name] = host[p][name].copy_(state[name], non_blocking=True)


def zero_grad():
    for p in model.parameters():
        if p.grad is not None:
            p.grad.zero_()
"""

OPTIMIZER = "optimizer = torch.optim.AdamW(model.parameters())\n"
ZERO_GRAD = "optimizer.zero_grad(set_to_none=False)"

# what-if: (the change by hand, the text that it replaces)
BY_HAND = {
    "set-to-none": [("set_to_none=False", "set_to_none=True")],
    "no-foreach": [("AdamW(model.parameters())", "AdamW(model.parameters(), foreach=False)")],
    "fused": [("AdamW(model.parameters())", "AdamW(model.parameters(), fused=True)")],
    "half-batch": [("batch_size=batch", "batch_size=batch // 2")],
    "batch:300": [("batch_size=batch", "batch_size=300")],
    "micro-batch:4": [
        ("for x, y in DataLoader(data, batch_size=batch):", "for i, (x, y) in enumerate(DataLoader(data, batch_size=batch // 4)):"),
        (ZERO_GRAD, f"if i % 4 == 0:\n        {ZERO_GRAD}"),
        ("loss.backward()", "(loss / 4).backward()"),
        ("optimizer.step()", "if i % 4 == 3:\n        optimizer.step()"),
    ],
    "factored-optimizer": [("AdamW(", "Adafactor(")],
    "optimizer-in-backward": [(OPTIMIZER, EACH_ALONE), (f"    {ZERO_GRAD}\n", ""), ("    optimizer.step()\n", "")],
    "offload-optimizer": [(ZERO_GRAD, "zero_grad()"), ("optimizer.step()\n", "step()\n"), (OPTIMIZER, OFFLOADED)],
    "checkpoint:Block=0-1,3": [
        ("for block in self.blocks:", "for i, block in enumerate(self.blocks):"),
        ("x = block(x, scale=0.5)", "x = block(x, scale=0.5) if i == 2 else checkpoint(block, x, use_reentrant=False, scale=0.5)"),
    ],
    "checkpoint:Block": [("block(x, scale=0.5)", "checkpoint(block, x, use_reentrant=False, scale=0.5)")],
    "bf16": [
        (
            "    loss = F.cross_entropy(model(x), y)\n",
            "    with torch.autocast('cuda', dtype=torch.bfloat16):\n        loss = F.cross_entropy(model(x), y)\n",
        )
    ],
}


@pytest.fixture(scope="module")
def plain():
    """The history of the script as it is, which is run once."""
    return []


def edited(pairs, script=SCRIPT):
    for old, new in pairs:
        assert script.count(old) == 1
        script = script.replace(old, new)
    return script


def history(done):
    """The allocator's, frees in a row by address: autocast empties its cache in no order of its own."""
    out = []
    frees = []
    for event in done.capture.allocator():
        if event[0].startswith("free"):
            frees.append(event)
            continue
        out += sorted(frees)
        frees = []
        out.append(event)
    return out + sorted(frees)


def peak(report):
    return report["peak"]["allocated_bytes"], report["peak"]["reserved_bytes"]


@pytest.mark.parametrize("name", BY_HAND)
def test_is_what_a_person_would_write(gpucast, plain, name):
    if not plain:
        plain += history(gpucast(SCRIPT))
    done = gpucast(SCRIPT, "--what-if", name)
    assert done.code == 0, done.err
    by_hand = gpucast(edited(BY_HAND[name]))
    assert peak(done.report) == peak(by_hand.report)
    assert history(done) == history(by_hand)
    assert history(done) != plain
    assert done.report["what_if"] == [{"name": name, "acted": True, "did": done.report["what_if"][0]["did"]}]
    assert by_hand.report["what_if"] == []
    assert "what_if" not in by_hand.capture.one("header")
    assert done.capture.one("header")["what_if"] == [{"name": name}]


TEXTS = """
import torch
from torch import nn
from torch.utils.data import DataLoader

LENGTHS = [3, 9, 5, 5, 8, 2, 4, 4]


def collate(texts, length=None):
    length = length or max(map(len, texts))
    ids = torch.zeros(len(texts), length, dtype=torch.long)
    causal = torch.ones(len(texts), 1, length, length, dtype=torch.bool)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "causal_mask": causal, "labels": ids.clone(), "names": ["a"] * len(texts)}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(1000, 256), nn.Linear(256, 1000)

    def forward(self, input_ids, attention_mask, causal_mask):
        return self.head(self.embed(input_ids) * attention_mask.unsqueeze(-1)) + causal_mask.sum()


model = Model().cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in DataLoader([[1] * 40 * length for length in LENGTHS], batch_size=2, collate_fn=collate):
    batch = {name: value.cuda() for name, value in batch.items() if name != "names"}
    labels = batch.pop("labels")
    loss = nn.functional.cross_entropy(model(**batch).flatten(0, 1), labels.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_max_length_is_what_a_tokenizer_pads(gpucast):
    by_hand = gpucast(edited([("length = length or max(map(len, texts))", "length = 512")], TEXTS))
    done = gpucast(TEXTS, "--max-length", "512")
    assert done.code == 0, done.err
    assert history(done) == history(by_hand)
    (what_if,) = done.report["what_if"]
    assert what_if == {"name": "max-length:512", "acted": True, "did": "3 batches of 200 to 360 tokens padded to 512"}
    assert done.report["device"]["classes"] == ["varying_lengths"]
    assert by_hand.report["device"]["classes"] == ["no_convolutions"]
    assert done.report["device"]["request_bytes"] > by_hand.report["device"]["request_bytes"]


def test_lengths_that_vary_are_said(gpucast):
    report = gpucast(TEXTS).report
    assert report["varying_input"] == {"name": "causal_mask", "smallest": "[2, 1, 160, 160]", "largest": "[2, 1, 360, 360]"}
    assert report["device"]["classes"] == ["varying_lengths"]
    (warning,) = report["warnings"]
    assert warning["code"] == "lengths_vary" and "from [2, 1, 160, 160] to [2, 1, 360, 360]" in warning["message"]


def test_max_length_of_pairs_of_tokens(gpucast):
    script = TEXTS.replace(
        'return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "causal_mask": causal, "labels": ids.clone(), "names": ["a"] * len(texts)}',
        "return ids, ids.clone()",
    )
    script = script.replace(
        'batch = {name: value.cuda() for name, value in batch.items() if name != "names"}', "ids, labels = batch[0].cuda(), batch[1].cuda()"
    )
    script = script.replace('labels = batch.pop("labels")', "batch = {'input_ids': ids, 'attention_mask': ids, 'causal_mask': ids}")
    assert "batch.pop" not in script and "ids.clone(), " not in script and ".items()" not in script
    by_hand = gpucast(edited([("length = length or max(map(len, texts))", "length = 360")], script))
    done = gpucast(script, "--max-length", "360")
    assert history(done) == history(by_hand)
    assert done.report["what_if"][0]["did"] == "2 batches of 200 to 360 tokens padded to 360; 1 stayed as they are"


def test_max_length_without_texts_says_so(gpucast):
    (what_if,) = gpucast(SCRIPT, "--max-length", "512").report["what_if"]
    assert not what_if["acted"]
    assert what_if["did"].startswith("no DataLoader gave a batch of texts")


def test_several_at_once(gpucast):
    done = gpucast(SCRIPT, "--what-if", "bf16", "--what-if", "checkpoint:blocks.1", "--what-if", "set-to-none")
    by_hand = gpucast(
        edited(
            [
                *BY_HAND["bf16"],
                *BY_HAND["set-to-none"],
                (
                    "x = block(x, scale=0.5)",
                    "x = checkpoint(block, x, use_reentrant=False, scale=0.5) if block is self.blocks[1] else block(x, scale=0.5)",
                ),
            ]
        )
    )
    assert done.code == 0, done.err
    assert history(done) == history(by_hand)
    assert [(entry["name"], entry["acted"]) for entry in done.report["what_if"]] == [
        ("bf16", True),
        ("checkpoint:blocks.1", True),
        ("set-to-none", True),
    ]


ATTENTION = """
import torch
import torch.nn.functional as F

weight = torch.nn.Parameter(torch.zeros(64, 64, device="cuda", dtype=torch.bfloat16))
optimizer = torch.optim.SGD([weight], lr=0.1, foreach=False)
for _ in range(3):
    x = torch.zeros(2, 4, 512, 64, device="cuda", dtype=torch.bfloat16) @ weight
    F.scaled_dot_product_attention(x, x, x).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_one_kernel_of_attention_and_foreach(gpucast):
    around = "from torch.nn import attention\nkernels = attention.sdpa_kernel(attention.SDPBackend.MATH)\nkernels.__enter__()\n"
    by_hand = ATTENTION.replace("\nweight =", f"\n{around}weight =").replace(", foreach=False", ", foreach=True")
    done = gpucast(ATTENTION, "--what-if", "attention:math", "--what-if", "foreach")
    assert done.code == 0, done.err
    assert history(done) == history(gpucast(by_hand)) != history(gpucast(ATTENTION))
    assert [what_if["did"] for what_if in done.report["what_if"]] == ["attention had the math kernel only", "SGD with foreach=True"]


CLIPPED = [("    optimizer.step()\n", "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    optimizer.step()\n")]


@pytest.mark.slow
def test_parts_clip_once_and_steps_in_backward_refuse(gpucast):
    in_parts = gpucast(edited(CLIPPED), "--what-if", "micro-batch:2", arguments=["--batch-size", "512"])
    assert in_parts.code == 0, in_parts.err
    loop = [
        ("for x, y in DataLoader(data, batch_size=batch):", "for i, (x, y) in enumerate(DataLoader(data, batch_size=batch)):"),
        (ZERO_GRAD, f"if i % 2 == 0:\n        {ZERO_GRAD}"),
        ("loss.backward()", "(loss / 2).backward()\n    if i % 2 == 0:\n        continue"),
    ]
    assert history(in_parts) == history(gpucast(edited([*loop, *CLIPPED]), arguments=["--batch-size", "256"]))
    (what_if,) = in_parts.report["what_if"]
    assert what_if["did"] == "--batch-size 512 became 256, and 2 backward passes for each step of the optimizer"
    both = gpucast(SCRIPT, "--what-if", "optimizer-in-backward", "--what-if", "micro-batch:2")
    assert [what_if["acted"] for what_if in both.report["what_if"]] == [False, True]
    assert both.report["what_if"][0]["did"].startswith("micro-batch:2 adds up the gradients of several backward passes")
    assert history(both) == history(gpucast(SCRIPT, "--what-if", "micro-batch:2"))
    (what_if,) = gpucast(edited(CLIPPED), "--what-if", "optimizer-in-backward").report["what_if"]
    assert what_if == {
        "name": "optimizer-in-backward",
        "acted": False,
        "did": "the script cannot do it: clip_grad_norm_ needs all gradients at once",
    }


def test_parts_and_state_on_the_host(gpucast):
    by_hand = edited(BY_HAND["offload-optimizer"], edited(BY_HAND["micro-batch:4"]))
    done = gpucast(SCRIPT, "--what-if", "micro-batch:4", "--what-if", "offload-optimizer")
    assert done.code == 0, done.err
    assert history(done) == history(gpucast(by_hand))


def test_fused_and_own_settings_of_groups(gpucast):
    made = "AdamW(model.parameters())"
    groups = "AdamW([{'params': model.blocks.parameters(), 'fused': True}, {'params': model.head.parameters()}], foreach=True)"
    by_hand = "AdamW([{'params': model.blocks.parameters()}, {'params': model.head.parameters()}], foreach=False)"
    done = gpucast(edited([(made, groups)]), "--what-if", "no-foreach")
    assert done.code == 0, done.err
    assert history(done) == history(gpucast(edited([(made, by_hand)])))


IN_CHUNKS = """
def in_chunks(hidden, head, labels, upcast=False):
    def loss_of(hidden, labels):
        logits = head(hidden)
        return F.cross_entropy(logits.float() if upcast else logits, labels, reduction="sum")

    chunks = zip(hidden.chunk(4), labels.chunk(4))
    return sum(checkpoint(loss_of, x, y, use_reentrant=False) for x, y in chunks) / (labels != -100).sum()

"""

LANGUAGE = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mlp, self.head = nn.Embedding(8000, 256), nn.Linear(256, 256), nn.Linear(256, 8000, bias=False)

    def forward(self, ids, labels):
        hidden = F.gelu(self.mlp(self.embed(ids)))
        logits = self.head(hidden)
        return F.cross_entropy(logits[..., :-1, :].reshape(-1, logits.shape[-1]), labels[..., 1:].reshape(-1))


model = Model().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    ids = torch.zeros(8, 257, dtype=torch.long).cuda()
    loss = model(ids, ids)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

CHUNKED_BY_HAND = [
    ("\n\nclass Model(", f"{IN_CHUNKS}\n\nclass Model("),
    ("        logits = self.head(hidden)\n", ""),
    ("F.cross_entropy(logits[..., :-1, :].reshape(-1, logits.shape[-1])", "in_chunks(hidden[..., :-1, :].reshape(-1, 256), self.head"),
]


def test_a_loss_in_chunks(gpucast):
    done = gpucast(LANGUAGE, "--what-if", "chunked-loss:4")
    assert done.code == 0, done.err
    assert history(done) == history(gpucast(edited(CHUNKED_BY_HAND, LANGUAGE)))
    (what_if,) = done.report["what_if"]
    assert what_if["acted"] and what_if["did"] == "the logits and cross entropy of 3 steps in 4 chunks, recomputed in backward"
    assert peak(done.report)[0] < peak(gpucast(LANGUAGE).report)[0] - 8 * 256 * 8000 * 4


def test_a_loss_in_chunks_under_autocast_and_checkpoints(gpucast):
    autocast = [
        ("    loss = model(ids, ids)\n", "    with torch.autocast('cuda', dtype=torch.bfloat16):\n        loss = model(ids, ids)\n")
    ]
    script = edited(autocast, LANGUAGE)
    done = gpucast(script, "--what-if", "chunked-loss:4", "--what-if", "checkpoint:Embedding")
    assert done.code == 0, done.err
    by_hand = edited(CHUNKED_BY_HAND, script).replace("self.embed(ids)", "checkpoint(self.embed, ids, use_reentrant=False)")
    assert history(done) == history(gpucast(by_hand))


@pytest.mark.parametrize(
    ("logits", "said"),
    [
        ("logits.softmax(-1)", "the logits are not only used by cross_entropy: softmax used them"),
        ("logits.transpose(0, 1).transpose(0, 1)", "the logits are not only used by cross_entropy: transpose used them"),
    ],
)
def test_logits_used_in_another_way_stay_whole(gpucast, logits, said):
    script = edited([("logits[..., :-1, :]", f"{logits}[..., :-1, :]")], LANGUAGE)
    done = gpucast(script, "--what-if", "chunked-loss:4")
    assert done.code == 0, done.err
    (what_if,) = done.report["what_if"]
    assert what_if == {"name": "chunked-loss:4", "acted": False, "did": said}
    assert history(done) == history(gpucast(script))


def test_weights_in_bfloat16(gpucast):
    done = gpucast(SCRIPT, "--what-if", "bf16-weights")
    assert done.code == 0, done.err
    by_hand = gpucast(edited([(OPTIMIZER, f"model.to(torch.bfloat16)\n{OPTIMIZER}"), ("model(x), y", "model(x.to(torch.bfloat16)), y")]))
    assert history(done) == history(by_hand)
    (what_if,) = done.report["what_if"]
    assert what_if["acted"] and what_if["did"] == "Net became bfloat16 before the optimizer was made"
    # Frozen parameters too, and groups made by a generator.
    frozen = [("AdamW(model.parameters())", "AdamW([{'params': (p for p in model.head.parameters())}])"), *FROZEN]
    done = gpucast(edited(frozen), "--what-if", "bf16-weights")
    assert done.code == 0, done.err
    by_hand = [("optimizer = torch", "model.to(torch.bfloat16)\noptimizer = torch"), ("model(x), y", "model(x.to(torch.bfloat16)), y")]
    assert history(done) == history(gpucast(edited(by_hand, edited(frozen))))


FROZEN = [("model = Net(512).cuda()", "model = Net(512).cuda()\nmodel.blocks.requires_grad_(False)")]


def test_batch_option_of_the_command(gpucast):
    done = gpucast(SCRIPT, "--what-if", "half-batch", arguments=["--batch-size", "512"])
    by_hand = gpucast(SCRIPT, arguments=["--batch-size=256"])
    assert done.code == 0, done.err
    assert history(done) == history(by_hand)
    (what_if,) = done.report["what_if"]
    assert what_if["acted"] and what_if["did"] == "--batch-size 512 became 256"
    # The typed command: the same command under the same what-if is the same run.
    assert done.report["command"] == [sys.executable, "train.py", "--batch-size", "512"]


def test_without_effect_is_said(gpucast):
    script = edited([("set_to_none=False", ""), ("DataLoader(data, batch_size=batch)", "[data[:64]] * 4")])
    names = ["set-to-none", "half-batch", "checkpoint:Attention", "bf16"]
    with_autocast = edited(BY_HAND["bf16"], script)
    done = gpucast(with_autocast, *(word for name in names for word in ("--what-if", name)))
    assert done.code == 0, done.err
    assert [what_if["acted"] for what_if in done.report["what_if"]] == [False] * 4
    said = [warning["message"] for warning in done.report["warnings"] if warning["code"] == "what_if_without_effect"]
    assert "zero_grad sets gradients to None already" in said[0]
    assert "no batch option" in said[1]
    assert "no module of class or path Attention" in said[2] and "Block" in said[2]
    assert "under autocast already" in said[3]
    assert history(done) == history(gpucast(with_autocast))


def test_evaluation_and_transforms_keep_their_types(gpucast):
    """A model called without gradients runs under autocast itself, but nothing after it does."""
    script = edited(
        [
            (
                "    optimizer.step()\n",
                "    optimizer.step()\n    with torch.no_grad():\n        print(model(x).dtype, 'inside', (x @ x.t()).dtype, 'outside')\n",
            )
        ]
    )
    done = gpucast(script, "--what-if", "bf16")
    assert done.code == 0, done.err
    assert "torch.bfloat16 inside torch.float32 outside" in done.err


def test_misspelt(gpucast):
    done = gpucast(SCRIPT, "--what-if", "checkpont:Block", fresh=True)  # a batch says so itself
    assert done.code == 2
    assert "did you mean checkpoint?" in done.err
