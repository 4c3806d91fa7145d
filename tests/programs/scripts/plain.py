"""Training in plain PyTorch, three steps of one kind: plain.py KIND."""

import sys

import counters  # noqa: F401
import torch
import torch.nn.functional as F
from torch import nn

STEPS = 3


def mlp(inputs=256, outputs=10, width=512):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs)).cuda()


def train(model, loss, optimizer=None, scaler=None, after=None):
    optimizer = optimizer or torch.optim.AdamW(model.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
        if after:
            after()


def vae():
    from torch.distributions import Normal, kl_divergence

    encoder, decoder = mlp(784, 64), mlp(32, 784)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])

    def loss():
        x = torch.rand(64, 784, device="cuda")
        mean, deviation = encoder(x).chunk(2, -1)
        latent = Normal(mean, deviation.exp())
        return F.binary_cross_entropy_with_logits(decoder(latent.rsample()), x) + kl_divergence(latent, Normal(0.0, 1.0)).mean()

    train(None, loss, optimizer)


def ppo():
    from torch.distributions import Categorical

    policy, value = mlp(8, 4), mlp(8, 1)
    optimizer = torch.optim.Adam([*policy.parameters(), *value.parameters()])
    state = torch.randn(128, 8, device="cuda")
    with torch.no_grad():
        before = Categorical(logits=policy(state))
        action = before.sample()
        old = before.log_prob(action)
    rewards = [1.0 + (int(one) == 0) for one in action.cpu()]

    def loss():
        now = Categorical(logits=policy(state))
        ratio = (now.log_prob(action) - old).exp()
        gain = torch.tensor(rewards, device="cuda") - value(state).squeeze(-1)
        return -torch.min(ratio * gain.detach(), ratio.clamp(0.8, 1.2) * gain.detach()).mean() + gain.square().mean() - now.entropy().mean()

    train(None, loss, optimizer)


def gan():
    generator, judge = mlp(64, 784), mlp(784, 1)
    optimizers = [torch.optim.Adam(model.parameters()) for model in (generator, judge)]
    for _ in range(STEPS):
        real, made = torch.randn(64, 784, device="cuda"), generator(torch.randn(64, 64, device="cuda"))
        optimizers[1].zero_grad()
        (F.softplus(judge(made.detach())).mean() + F.softplus(-judge(real)).mean()).backward()
        optimizers[1].step()
        optimizers[0].zero_grad()
        F.softplus(-judge(made)).mean().backward()
        optimizers[0].step()


def scaler():
    model = mlp()
    optimizer, scaler = torch.optim.AdamW(model.parameters()), torch.amp.GradScaler("cuda")
    for _ in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = model(torch.randn(64, 256, device="cuda")).square().mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    assert scaler.get_scale() == 65536, scaler.get_scale()


def ema():
    model = mlp()
    average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.99))
    train(model, lambda: model(torch.randn(64, 256, device="cuda")).square().mean(), after=lambda: average.update_parameters(model))


def lbfgs():
    model = mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    x = torch.randn(64, 256, device="cuda")

    def closure():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)


def ctc():
    model = nn.LSTM(40, 128, 2, bidirectional=True, batch_first=True).cuda()
    head = nn.Linear(256, 30).cuda()
    optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()])

    def loss():
        x, targets = torch.randn(8, 100, 40, device="cuda"), torch.randint(1, 30, (8, 20), device="cuda")
        lengths = torch.full((8,), 100), torch.randint(10, 20, (8,))
        return F.ctc_loss(head(model(x)[0]).log_softmax(-1).transpose(0, 1), targets, *lengths)

    train(None, loss, optimizer)


def func():
    from torch.func import functional_call, grad, vmap

    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def loss(parameters, x, y):
        return F.cross_entropy(functional_call(model, parameters, x[None]), y[None])

    for _ in range(STEPS):
        parameters = {name: value.detach() for name, value in model.named_parameters()}
        x, y = torch.randn(32, 256, device="cuda"), torch.randint(0, 10, (32,), device="cuda")
        gradients = vmap(grad(loss), (None, 0, 0))(parameters, x, y)
        for name, value in model.named_parameters():
            value.grad = gradients[name].clamp(-1, 1).mean(0)
        optimizer.step()


def nested():
    model = mlp()

    def loss():
        x = torch.nested.nested_tensor([torch.randn(n, 256) for n in (3, 17, 9)], layout=torch.jagged, device="cuda")
        return model(x).values().square().mean()

    train(model, loss)


def sparse():
    words = nn.EmbeddingBag(50_000, 64, mode="sum", sparse=True).cuda()
    optimizer = torch.optim.SparseAdam(words.parameters())
    train(None, lambda: words(torch.randint(0, 50_000, (64, 20), device="cuda")).square().mean(), optimizer)


def offload():
    model = mlp()

    def loss():
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return model(torch.randn(512, 256, device="cuda")).square().mean()

    train(model, loss)


def checkpoint():
    from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

    model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256)) for _ in range(4)]).cuda()

    def policy(context, operator, *args, **kwargs):
        return CheckpointPolicy.MUST_SAVE if operator == torch.ops.aten.addmm.default else CheckpointPolicy.PREFER_RECOMPUTE

    def loss():
        x = torch.randn(256, 256, device="cuda", requires_grad=True)
        for block in model:
            x = checkpoint(block, x, use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))
        return x.square().mean()

    train(model, loss)


def script():
    model = torch.jit.trace(mlp(), torch.randn(64, 256, device="cuda"))
    train(model, lambda: model(torch.randn(64, 256, device="cuda")).square().mean())


def graphed():
    model = mlp()
    run = torch.cuda.make_graphed_callables(model, (torch.randn(64, 256, device="cuda"),))
    train(model, lambda: run(torch.randn(64, 256, device="cuda")).square().mean())


def flex():
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    project = nn.Linear(256, 768).cuda()
    attend = torch.compile(flex_attention)
    mask = create_block_mask(lambda b, h, q, k: (q >= k) & (q - k < 128), None, None, 512, 512)

    def loss():
        q, k, v = project(torch.randn(2, 512, 256, device="cuda")).unflatten(-1, (3, 4, 64)).permute(2, 0, 3, 1, 4)
        return attend(q, k, v, block_mask=mask).square().mean()

    train(project, loss)


def triton():
    import triton
    import triton.language as tl

    @triton.jit
    def scale(source, target, count, factor, BLOCK: tl.constexpr):
        place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(target + place, tl.load(source + place, mask=place < count) * factor, mask=place < count)

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.empty_like(x)
            scale[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), 2.0, BLOCK=1024)
            return y

        @staticmethod
        def backward(ctx, gradient):
            return Scale.forward(ctx, gradient.contiguous())

    model = mlp()
    train(model, lambda: Scale.apply(model(torch.randn(64, 256, device="cuda"))).square().mean())


def autograd():
    model = mlp()
    run = torch.compile(model)
    compiler = torch._dynamo.compiled_autograd._enable(torch.compile)
    with compiler:
        train(model, lambda: run(torch.randn(64, 256, device="cuda")).square().mean())


def optimizer():
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3))
    step = torch.compile(optimizer.step)
    for _ in range(STEPS):
        model(torch.randn(64, 256, device="cuda")).square().mean().backward()
        step()
        optimizer.zero_grad()


def aot():
    import importlib.util
    import os
    import tempfile

    # The headers of pip's own CUDA.
    os.environ.setdefault("CUDA_HOME", os.path.join(next(iter(importlib.util.find_spec("nvidia").submodule_search_locations)), "cu13"))
    model = mlp().eval()
    x = torch.randn(64, 256, device="cuda")
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        package = torch._inductor.aoti_compile_and_package(torch.export.export(model, (x,)), package_path=os.path.join(folder, "model.pt2"))
        torch._inductor.aoti_load_package(package)(x)


def inference():
    from models import MODELS

    model = MODELS["gpt"]().cuda().half().eval()
    ids = torch.randint(0, 2000, (4, 64), device="cuda")
    with torch.inference_mode():
        for _ in range(8):
            following = model(ids)[:, -1].argmax(-1)
            ids = torch.cat((ids[:, 1:], following[:, None]), 1)
            if (following == 2).all():
                break


def moe():
    gate, experts = nn.Linear(256, 8).cuda(), nn.ModuleList(mlp(256, 256) for _ in range(8))
    model = nn.ModuleList([gate, *experts])

    def loss():
        x = torch.randn(1024, 256, device="cuda")
        weights, chosen = gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for place, expert in enumerate(experts):
            rows, which = torch.where(chosen == place)
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, which, None])
        return out.square().mean()

    train(model, loss)


def loader():
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(192, 256), torch.randint(0, 10, (192,)))
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    for x, y in DataLoader(data, 64, num_workers=2, pin_memory=True, persistent_workers=True):
        F.cross_entropy(model(x.cuda(non_blocking=True)), y.cuda(non_blocking=True)).backward()
        optimizer.step()
        optimizer.zero_grad()


def graph():
    model = mlp(64, 64)
    edges = torch.randint(0, 500, (2, 4000)).cuda()
    of_graph = torch.arange(500).div(50, rounding_mode="floor").cuda()

    def loss():
        x = torch.randn(500, 64, device="cuda")
        x = torch.zeros_like(x).index_add_(0, edges[1], model(x)[edges[0]])
        return (
            torch.zeros(int(of_graph.max()) + 1, 64, device="cuda")
            .scatter_reduce(0, of_graph[:, None].expand_as(x), x, "amax")
            .square()
            .mean()
        )

    train(model, loss)


globals()[sys.argv[1]]()
