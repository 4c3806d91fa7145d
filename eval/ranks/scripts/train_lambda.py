"""The steps of lambdal/deeplearning-benchmark: NVIDIA's DeepLearningExamples, of which this has the operators, on random data. One rank."""

import argparse
import math
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 40  # gpucast ends its capture earlier; the rest shows the host's time
MESSAGE_ELEMENTS = 10_000_000  # of an all-reduce of apex's DistributedDataParallel
SSD_SIDES, SSD_BOXES, SSD_LABELS = (38, 19, 10, 5, 3, 1), (4, 6, 6, 6, 4, 4), 81


def resnet50():
    from torchvision.models import resnet50 as model

    return model()


class SSD(nn.Module):
    """SSD300 on the first stages of a ResNet-50."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(*list(resnet50().children())[:7])
        first = self.backbone[-1][0]
        first.conv1.stride = first.conv2.stride = first.downsample[0].stride = (1, 1)
        widths, inner = (1024, 512, 512, 256, 256, 256), (256, 256, 128, 128, 128)
        self.more = nn.ModuleList(self.block(*sizes, last=i >= 3) for i, sizes in enumerate(zip(widths[:-1], inner, widths[1:])))
        self.boxes = nn.ModuleList(nn.Conv2d(width, 4 * n, 3, padding=1) for width, n in zip(widths, SSD_BOXES))
        self.labels = nn.ModuleList(nn.Conv2d(width, SSD_LABELS * n, 3, padding=1) for width, n in zip(widths, SSD_BOXES))

    def block(self, width, inner, out, last):
        second = nn.Conv2d(inner, out, 3, bias=False) if last else nn.Conv2d(inner, out, 3, padding=1, stride=2, bias=False)
        one, two = [nn.BatchNorm2d(inner), nn.ReLU(inplace=True)], [nn.BatchNorm2d(out), nn.ReLU(inplace=True)]
        return nn.Sequential(nn.Conv2d(width, inner, 1, bias=False), *one, second, *two)

    def forward(self, x):
        maps = [self.backbone(x)]
        for block in self.more:
            maps.append(block(maps[-1]))
        boxes = [layer(one).view(len(one), 4, -1) for layer, one in zip(self.boxes, maps)]
        labels = [layer(one).view(len(one), SSD_LABELS, -1) for layer, one in zip(self.labels, maps)]
        return torch.cat(boxes, 2).contiguous(), torch.cat(labels, 2).contiguous()


class SSDLoss(nn.Module):
    """With hard negative mining."""

    def __init__(self):
        super().__init__()
        count = sum(n * side * side for n, side in zip(SSD_BOXES, SSD_SIDES))
        self.default = nn.Parameter(torch.rand(1, 4, count) + 0.5, requires_grad=False)

    def forward(self, outputs, target):
        (boxes, scores), (true_boxes, true_labels) = (one.float() for one in outputs), target
        found = true_labels > 0
        number = found.sum(dim=1)
        places = 10.0 * (true_boxes[:, :2] - self.default[:, :2]) / self.default[:, 2:]
        sizes = 5.0 * (true_boxes[:, 2:] / self.default[:, 2:]).log()
        away = F.smooth_l1_loss(boxes, torch.cat((places, sizes), 1).contiguous(), reduction="none").sum(1)
        away = (found.float() * away).sum(1)
        wrong = F.cross_entropy(scores, true_labels, reduction="none")
        negative = wrong.clone()
        negative[found] = 0
        rank = negative.sort(dim=1, descending=True)[1].sort(dim=1)[1]
        hard = rank < torch.clamp(3 * number, max=found.size(1)).unsqueeze(-1)
        wrong = (wrong * (found + hard).float()).sum(1)
        return ((away + wrong) * (number > 0).float() / number.float().clamp(min=1e-6)).mean(0)


class BertLayer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm_1, self.norm_2 = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)
        self.drop_probabilities, self.drop_1, self.drop_2 = nn.Dropout(0.1), nn.Dropout(0.1), nn.Dropout(0.1)

    def forward(self, x, mask):
        length, batch, width = x.shape
        each = (length, batch * self.heads, width // self.heads)
        query, value = (layer(x).view(each).transpose(0, 1) for layer in (self.query, self.value))
        scores = torch.bmm(query, self.key(x).view(each).permute(1, 2, 0)).view(batch, self.heads, length, length)
        scores = scores / math.sqrt(width // self.heads) + mask
        weights = self.drop_probabilities(F.softmax(scores, dim=-1)).view(-1, length, length)
        mixed = torch.bmm(weights, value).transpose(0, 1).contiguous().view(length, batch, width)
        x = self.norm_1(self.drop_1(self.out(mixed)) + x)
        return self.norm_2(self.drop_2(self.down(F.gelu(self.up(x), approximate="tanh"))) + x)


class Bert(nn.Module):
    """For question answering, sequences of 384 tokens."""

    def __init__(self, width, heads, layers):
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(30528, width), nn.Embedding(512, width), nn.Embedding(2, width)
        self.norm, self.drop = nn.LayerNorm(width, eps=1e-12), nn.Dropout(0.1)
        self.layers = nn.ModuleList(BertLayer(width, heads) for _ in range(layers))
        self.spans = nn.Linear(width, 2)

    def forward(self, inputs):
        tokens, kinds, mask = inputs
        places = torch.arange(tokens.shape[1], device=tokens.device).unsqueeze(0).expand_as(tokens)
        x = self.drop(self.norm(self.words(tokens) + self.places(places) + self.kinds(kinds))).transpose(0, 1)
        mask = (1.0 - mask[:, None, None].to(x.dtype)) * -10000.0
        for layer in self.layers:
            x = layer(x, mask)
        return (one.squeeze(-1) for one in self.spans(x.transpose(0, 1)).split(1, dim=-1))


def spans_loss(outputs, target):
    return sum(F.cross_entropy(scores, places, ignore_index=scores.size(1)) for scores, places in zip(outputs, target)) / 2


class BertAdam(torch.optim.Optimizer):
    """As BERT's repository has it: every parameter clipped and updated alone."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-5})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            if not state:
                state |= {"mean": torch.zeros_like(parameter), "square": torch.zeros_like(parameter)}
            nn.utils.clip_grad_norm_(parameter, 1.0)
            state["mean"].mul_(0.9).add_(parameter.grad, alpha=0.1)
            state["square"].mul_(0.999).addcmul_(parameter.grad, parameter.grad, value=0.001)
            update = state["mean"] / (state["square"].sqrt() + 1e-6)
            update += 0.01 * parameter
            parameter.add_(-(1e-5 * update))


class HalfAdam:
    """apex's O2: the model in half precision, its fp32 copies in one fused Adam."""

    def __init__(self, model):
        self.parameters = list(model.parameters())
        self.masters = [parameter.detach().clone().float() for parameter in self.parameters]
        for parameter in self.parameters:
            parameter.data = parameter.data.half()
        self.adam = torch.optim.Adam(self.masters, lr=1e-5, fused=True)

    def gradients(self):
        for master in self.masters:
            master.grad = torch.empty_like(master)
        found = [master.grad for master in self.masters]
        torch._foreach_copy_(found, [parameter.grad for parameter in self.parameters])
        torch._foreach_mul_(found, 1 / 65536)
        return self.masters

    def step(self):
        self.adam.step()
        torch._foreach_copy_([parameter.data for parameter in self.parameters], self.masters)

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None


def convolutional(name, half):
    """ResNet-50 and SSD: PyTorch's DDP, autocast, SGD; the host waits for each step."""
    rank, ranks = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    torch.backends.cudnn.benchmark = True
    with torch.device("cuda"):
        model, loss = (resnet50(), nn.CrossEntropyLoss()) if name == "resnet50" else (SSD(), SSDLoss())
    decay = [p for p in model.parameters() if p.dim() > 1]
    groups = [{"params": [p for p in model.parameters() if p.dim() == 1], "weight_decay": 0.0}, {"params": decay}]
    optimizer = torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cuda", init_scale=256, enabled=half)
    if ranks > 1:
        model = DistributedDataParallel(model, device_ids=[rank % torch.cuda.device_count()])

    def step(inputs, target):
        with torch.autocast("cuda", torch.float16, enabled=half):
            value = loss(model(inputs), target)
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        torch.cuda.synchronize()
        if ranks > 1 and name == "resnet50":
            value = value.detach().clone()
            dist.all_reduce(value)
        return value.item()

    return step


def transformer(name, half):
    """BERT: apex's DDP, also on one card, its O2 for fp16, clipped gradients."""
    sizes = (768, 12, 12) if name == "bert_base_squad" else (1024, 16, 24)
    with torch.device("cuda"):
        model = Bert(*sizes)
    optimizer = HalfAdam(model) if half else BertAdam(model.parameters())
    bucket_mib = MESSAGE_ELEMENTS * (2 if half else 4) / 2**20
    model = DistributedDataParallel(model, bucket_cap_mb=bucket_mib, broadcast_buffers=False)

    def step(inputs, target):
        inputs, target = [one.cuda() for one in inputs], [one.cuda() for one in target]
        value = spans_loss(model(inputs), target)
        (value * 65536 if half else value).backward()
        nn.utils.clip_grad_norm_(optimizer.gradients() if half else model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return value.item()

    return step


def data(name, batch):
    if name == "resnet50":
        return torch.randn(batch, 3, 224, 224, device="cuda"), torch.randint(1000, (batch,), device="cuda")
    if name == "ssd":
        count = sum(n * side * side for n, side in zip(SSD_BOXES, SSD_SIDES))
        boxes, labels = torch.rand(batch, 4, count, device="cuda"), torch.randint(SSD_LABELS, (batch, count), device="cuda")
        return torch.randn(batch, 3, 300, 300, device="cuda"), (boxes, labels)
    tokens, kinds = torch.randint(30000, (batch, 384)), torch.zeros(batch, 384, dtype=torch.long)
    return (tokens, kinds, torch.ones_like(kinds)), [torch.randint(384, (batch,)) for _ in range(2)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=("resnet50", "ssd", "bert_base_squad", "bert_large_squad"), required=True)
    parser.add_argument("--batch", type=int, required=True, help="of a card")
    parser.add_argument("--half", action="store_true", help="mixed precision; without: fp32, with TF32 where the card has it")
    options = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", 0)))
    dist.init_process_group("nccl")
    step = (transformer if "bert" in options.model else convolutional)(options.model, options.half)
    inputs, target = data(options.model, options.batch)
    for _ in range(STEPS):
        step(inputs, target)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
