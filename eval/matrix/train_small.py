#!/usr/bin/env python3
"""Small training programs, each built around one kind of operator.

python train_small.py --list
python train_small.py --net lstm --device cuda
"""

import argparse
import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

NETS = {}


def net(**options):
    """Registers a function that makes (model, batch maker) under its name. options: how it is trained."""

    def register(make):
        NETS[make.__name__] = (make, options)
        return make

    return register


class Apply(nn.Module):
    """A layer (or several) and a function on the result."""

    def __init__(self, function, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.function = function

    def forward(self, x):
        return self.function(x, *self.layers)


def images(batch=32, channels=16, side=32):
    return lambda: torch.randn(batch, channels, side, side)


def vectors(batch=2048, width=512):
    return lambda: torch.randn(batch, width)


def texts(batch=16, length=128, width=256):
    return lambda: torch.randn(batch, length, width)


def tokens(count, batch=16, length=128):
    return lambda: torch.randint(0, count, (batch, length))


def repeat(make, count=3):
    return nn.Sequential(*(make() for _ in range(count)))


def of_images(layer, channels=32):
    """Convolutions with a layer after each."""
    blocks = [nn.Sequential(nn.Conv2d(channels if i else 16, channels, 3, padding=1), layer(), nn.ReLU()) for i in range(3)]
    return nn.Sequential(*blocks), images()


def of_vectors(layer, width=512):
    return repeat(lambda: nn.Sequential(nn.Linear(width, width), layer())), vectors(width=width)


def of_texts(layer, width=256):
    return repeat(lambda: nn.Sequential(nn.Linear(width, width), layer())), texts(width=width)


# --- Recurrent layers ------------------------------------------------------------------------------------------------


def recurrent(layer, **more):
    return Apply(lambda x, rnn, head: head(rnn(x)[0]), layer(128, 256, batch_first=True, **more), nn.Linear(256, 64)), texts(32, 32, 128)


@net()
def lstm():
    return recurrent(nn.LSTM)


@net()
def lstm_2_layers_dropout():
    return recurrent(nn.LSTM, num_layers=2, dropout=0.1)


@net()
def gru():
    return recurrent(nn.GRU)


@net()
def rnn():
    return recurrent(nn.RNN)


# --- Norms -----------------------------------------------------------------------------------------------------------


@net()
def group_norm():
    return of_images(lambda: nn.GroupNorm(8, 32))


@net()
def instance_norm():
    return of_images(lambda: nn.InstanceNorm2d(32, affine=True))


@net()
def batch_norm_2d():
    return of_images(lambda: nn.BatchNorm2d(32))


@net()
def batch_norm_1d():
    return of_vectors(lambda: nn.BatchNorm1d(512))


@net()
def batch_norm_3d():
    blocks = [nn.Sequential(nn.Conv3d(8, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU()) for _ in range(3)]
    return nn.Sequential(*blocks), lambda: torch.randn(8, 8, 16, 32, 32)


@net()
def layer_norm():
    return of_texts(lambda: nn.LayerNorm(256))


@net()
def rms_norm():
    return of_texts(lambda: nn.RMSNorm(256))


# --- Convolutions, pooling -------------------------------------------------------------------------------------------


@net()
def conv_transpose_2d():
    return nn.Sequential(
        nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 32, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(32, 8, 4, 2, 1)
    ), images()


@net()
def conv_1d():
    return repeat(lambda: nn.Sequential(nn.Conv1d(64, 64, 5, padding=2), nn.ReLU())), lambda: torch.randn(32, 64, 1024)


@net()
def depthwise_conv():
    return of_images(lambda: nn.Conv2d(32, 32, 3, padding=1, groups=32))


@net()
def grouped_conv():
    return of_images(lambda: nn.Conv2d(32, 32, 3, padding=1, groups=4))


@net(channels_last=True)
def channels_last():
    return of_images(lambda: nn.BatchNorm2d(32))


@net()
def max_pool():
    return nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.MaxPool2d(2), nn.Conv2d(32, 64, 3, padding=1), nn.MaxPool2d(3, 2, 1)), images(
        64
    )


@net()
def avg_pool():
    layers = [
        nn.Conv2d(16, 32, 3, padding=1),
        nn.AvgPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1),
        nn.AdaptiveAvgPool2d(5),
        nn.AdaptiveMaxPool2d(3),
    ]
    return nn.Sequential(*layers), images(64)


@net()
def upsample():
    layers = [
        nn.Conv2d(16, 8, 3, padding=1),
        nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.Upsample(scale_factor=2),
    ]
    return nn.Sequential(*layers), images(16)


@net()
def pixel_shuffle():
    return nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.PixelShuffle(2), nn.Conv2d(8, 32, 3, padding=1), nn.PixelShuffle(2)), images(
        16
    )


# --- Lookups, indexing, sorting --------------------------------------------------------------------------------------


@net()
def embedding():
    return nn.Sequential(nn.Embedding(20000, 256), nn.Linear(256, 256), nn.ReLU()), tokens(20000)


@net()
def embedding_padding_idx():
    return nn.Sequential(nn.Embedding(20000, 256, padding_idx=0), nn.Linear(256, 256), nn.ReLU()), tokens(20000)


@net()
def embedding_many_tokens():
    return nn.Sequential(nn.Embedding(20000, 256), nn.Linear(256, 256), nn.ReLU()), tokens(20000, 64, 128)


@net()
def embedding_bag():
    return nn.Sequential(nn.EmbeddingBag(20000, 256, mode="mean"), nn.Linear(256, 256)), tokens(20000, 256, 64)


def index(x, linear):
    y = linear(x)
    at = torch.randint(0, y.shape[0], (y.shape[0],), device=y.device)
    y = y.index_select(0, at)
    y = y.gather(0, at[:, None].expand(-1, y.shape[1]))
    return torch.zeros_like(y).scatter_add(0, at[:, None].expand(-1, y.shape[1]), y)


@net()
def index_select_gather_scatter():
    return repeat(lambda: Apply(index, nn.Linear(512, 512)), 2), vectors()


def advanced(x, linear):
    y = linear(x)
    at = torch.randint(0, y.shape[0], (y.shape[0],), device=y.device)
    return y[at] + y[:, at % y.shape[1]].mean() + y[at, at % y.shape[1]].mean()


@net()
def advanced_indexing():
    return repeat(lambda: Apply(advanced, nn.Linear(512, 512)), 2), vectors()


def masked(x, linear):
    y = linear(x)
    y = y.masked_fill(y < -1, 0.0)
    return torch.where(y > 0, y, y * 0.1) + y[y > 0].mean()


@net()
def masks():
    return repeat(lambda: Apply(masked, nn.Linear(512, 512)), 2), vectors()


@net()
def sort_topk():
    def f(x, linear):
        y = linear(x).sort(dim=-1).values
        return y + y.topk(32, dim=-1).values.mean()

    return repeat(lambda: Apply(f, nn.Linear(512, 512)), 2), vectors()


@net()
def cumsum():
    return of_vectors(lambda: Apply(lambda x: x.cumsum(-1) * 0.1 + x.cumsum(0) * 0.001))


# --- Losses ----------------------------------------------------------------------------------------------------------


@net()
def softmax():
    return of_vectors(lambda: nn.Softmax(dim=-1))


def to_classes(criterion, count=1000):
    def loss(out, x):
        return criterion(out, torch.randint(0, count, out.shape[:1], device=out.device))

    return loss


@net(loss=to_classes(lambda out, y: F.nll_loss(F.log_softmax(out, -1), y), 20000))
def log_softmax_nll():
    return nn.Sequential(nn.Linear(256, 20000)), vectors(256, 256)


@net(loss=to_classes(nn.CrossEntropyLoss(label_smoothing=0.1), 50000))
def cross_entropy_smoothing():
    return nn.Sequential(nn.Linear(64, 50000)), vectors(128, 64)


@net(loss=to_classes(nn.CrossEntropyLoss(), 50000))
def cross_entropy():
    return nn.Sequential(nn.Linear(64, 50000)), vectors(128, 64)


@net(loss=lambda out, x: F.binary_cross_entropy_with_logits(out, torch.ones_like(out), pos_weight=torch.ones(512, device=out.device)))
def bce_with_logits():
    return of_vectors(nn.ReLU)


@net(loss=lambda out, x: F.mse_loss(out, x) + F.l1_loss(out, x) + F.smooth_l1_loss(out, x) + F.kl_div(out, x.softmax(-1)))
def regression_losses():
    return of_vectors(nn.ReLU)


def ctc_loss(out, x):
    steps, batch = out.shape[1], out.shape[0]
    labels = torch.randint(1, 64, (batch, 32), device=out.device)
    lengths = torch.full((batch,), steps, dtype=torch.long, device=out.device)
    sizes = torch.full((batch,), 32, dtype=torch.long, device=out.device)
    return F.ctc_loss(out.log_softmax(-1).transpose(0, 1), labels, lengths, sizes)


@net(loss=ctc_loss)
def ctc():
    return nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 64)), texts(32, 256, 256)


# --- Attention -------------------------------------------------------------------------------------------------------


@net()
def multihead_attention():
    f = lambda x, attention: attention(x, x, x, need_weights=False)[0]  # noqa: E731
    return repeat(lambda: Apply(f, nn.MultiheadAttention(256, 4, batch_first=True)), 2), texts()


@net()
def multihead_attention_weights():
    f = lambda x, attention: attention(x, x, x)[0]  # noqa: E731
    return repeat(lambda: Apply(f, nn.MultiheadAttention(256, 4, dropout=0.1, batch_first=True)), 2), texts()


@net()
def encoder_layer():
    return repeat(lambda: nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), 2), texts()


@net()
def encoder_layer_no_dropout():
    return repeat(lambda: nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, activation="gelu", norm_first=True), 2), texts()


@net()
def decoder_layer():
    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.TransformerDecoderLayer(256, 4, 1024, batch_first=True) for _ in range(2))

        def forward(self, x):
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device)
            y = x
            for layer in self.layers:
                y = layer(y, x, tgt_mask=mask, tgt_is_causal=True)
            return y

    return Decoder(), texts()


class Attention(nn.Module):
    def __init__(self, heads=4, head_size=64, key_heads=None, **more):
        super().__init__()
        self.heads, self.key_heads, self.head_size, self.more = heads, key_heads or heads, head_size, more
        self.mask = self.more.pop("mask", False)
        width = heads * head_size
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * self.key_heads * head_size)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        split = lambda y, heads: y.view(*y.shape[:2], heads, self.head_size).transpose(1, 2)  # noqa: E731
        query = split(self.query(x), self.heads)
        key, value = (split(y, self.key_heads) for y in self.key_value(x).chunk(2, -1))
        mask = None
        if self.mask:
            mask = torch.zeros(x.shape[0], 1, x.shape[1], x.shape[1], device=x.device)
        y = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, **self.more)
        return self.out(y.transpose(1, 2).flatten(2))


@net()
def sdpa():
    return repeat(Attention), texts()


@net()
def sdpa_mask():
    return repeat(lambda: Attention(mask=True)), texts()


@net()
def sdpa_causal():
    return repeat(lambda: Attention(is_causal=True)), texts()


@net()
def sdpa_causal_dropout():
    return repeat(lambda: Attention(is_causal=True, dropout_p=0.1)), texts()


@net()
def sdpa_grouped_queries():
    return repeat(lambda: Attention(key_heads=2, enable_gqa=True)), texts()


@net()
def sdpa_head_80():
    return repeat(lambda: Attention(4, 80)), texts(width=320)


@net()
def sdpa_head_128():
    return repeat(lambda: Attention(2, 128)), texts(width=256)


# --- Everything else -------------------------------------------------------------------------------------------------


@net()
def checkpointed():
    block = lambda: nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Dropout(0.1), nn.Linear(1024, 512))  # noqa: E731
    return repeat(lambda: Apply(lambda x, layer: checkpoint(layer, x, use_reentrant=False), block())), vectors()


@net()
def activations():
    layers = [nn.PReLU(), nn.GELU(), nn.SiLU(), nn.LeakyReLU(), nn.ELU(), nn.Hardswish(), nn.Mish(), nn.Softplus(), nn.Tanh(), nn.Sigmoid()]
    return nn.Sequential(nn.Linear(512, 512), *layers, nn.GLU()), vectors()


@net()
def einsum_bmm():
    def f(x, linear):
        y = linear(x)
        z = torch.einsum("btd,bsd->bts", y, x)
        return torch.bmm(z, x) + torch.einsum("bts,bsd->btd", z, y)

    return repeat(lambda: Apply(f, nn.Linear(256, 256)), 2), texts()


@net()
def cat_stack_split():
    def f(x, linear):
        a, b = linear(x).split(256, -1)
        y = torch.cat([b, a * 2], -1)
        return torch.stack([y, x]).mean(0) + torch.cat([x[:, :256], a], -1).flip(-1)

    return repeat(lambda: Apply(f, nn.Linear(512, 512)), 2), vectors()


@net()
def dropouts():
    block = lambda: nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.Dropout2d(0.1), nn.ReLU(), nn.Dropout(0.1))  # noqa: E731
    return repeat(block), images(64)


@net()
def dropout_inplace():
    return of_vectors(lambda: Apply(lambda x: F.dropout(x, 0.1, True, True)))


@net()
def norms_and_std():
    def f(x, linear):
        y = linear(x)
        return (
            F.normalize(y, dim=-1) * y.norm()
            + y.std(0)
            + y.var(-1, keepdim=True)
            + y.amax(-1, keepdim=True)
            + y.logsumexp(-1, keepdim=True)
        )

    return repeat(lambda: Apply(f, nn.Linear(512, 512)), 2), vectors()


@net()
def cosine_similarity():
    return repeat(
        lambda: Apply(lambda x, linear: x * F.cosine_similarity(linear(x), x, dim=-1)[:, None], nn.Linear(512, 512)), 2
    ), vectors()


@net()
def complex_fft():
    return repeat(
        lambda: Apply(lambda x, linear: torch.fft.irfft(torch.fft.rfft(linear(x)) * 0.5, n=512), nn.Linear(512, 512)), 2
    ), vectors()


@net()
def unfold_pad():
    def f(x, conv):
        y = F.unfold(x, 3, padding=1).view(x.shape[0], -1, 32, 32)[:, :16]
        return conv(F.pad(y, (1, 1, 1, 1), mode="reflect"))

    return repeat(lambda: Apply(f, nn.Conv2d(16, 16, 3)), 2), images(16)


@net()
def grid_sample():
    def f(x, conv):
        y = conv(x)
        grid = F.affine_grid(torch.eye(2, 3, device=x.device).expand(x.shape[0], 2, 3), list(y.shape), align_corners=False)
        return F.grid_sample(y, grid, align_corners=False)

    return repeat(lambda: Apply(f, nn.Conv2d(16, 16, 3, padding=1)), 2), images()


# --- The loop --------------------------------------------------------------------------------------------------------


def mlp(width=1024):
    return nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width)), vectors(
        64, width
    )


def plain(name, **options):
    make = lambda: mlp()  # noqa: E731
    make.__name__ = name
    net(**options)(make)


plain("clip_grad_norm", clip=1.0)
plain("accumulation", accumulate=2)
plain("zero_grad_to_zero", set_to_none=False)
plain("ema", ema=True)
plain("grad_scaler", scaler=True)
plain("frozen", frozen=True)
plain("param_groups", groups=True)
plain("tied", tied=True)
plain("gan", two_optimizers=True)
for _name in ("NAdam", "RAdam", "Adadelta", "Adamax", "ASGD", "Rprop", "Adagrad", "RMSprop", "AdamW", "SGD"):
    plain("opt_" + _name.lower(), optimizer=_name)
plain("opt_sgd_nesterov", optimizer="SGD", optimizer_options={"momentum": 0.9, "nesterov": True, "weight_decay": 1e-4})
plain("opt_adam_amsgrad", optimizer_options={"amsgrad": True})
plain("opt_adam_decay", optimizer_options={"weight_decay": 1e-2})
plain("opt_adam_maximize", optimizer_options={"maximize": True})
plain("opt_adam_no_foreach", optimizer_options={"foreach": False})
plain("opt_adam_fused", optimizer_options={"fused": True})
plain("opt_adam_capturable", optimizer_options={"capturable": True})
plain("opt_rmsprop_centered", optimizer="RMSprop", optimizer_options={"centered": True, "momentum": 0.9, "weight_decay": 1e-4})


def make_optimizer(model, options):
    kind = getattr(torch.optim, options.get("optimizer", "Adam"))
    parameters = [p for p in model.parameters() if p.requires_grad]
    if options.get("groups"):
        parameters = [{"params": parameters[:3], "lr": 1e-2}, {"params": parameters[3:]}]
    more = dict(options.get("optimizer_options", {}))
    if more.get("capturable") and next(model.parameters()).device.type != "cuda":
        del more["capturable"]
    return kind(parameters, lr=1e-3, **more)


def train(name, device, steps):
    make, options = NETS[name]
    model, batch = make()
    if options.get("tied"):
        model[2].weight = model[0].weight
    if options.get("channels_last"):
        model = model.to(memory_format=torch.channels_last)
    if options.get("frozen"):
        for p in model[:3].parameters():
            p.requires_grad_(False)
    model = model.to(device)
    average = copy.deepcopy(model) if options.get("ema") else None
    critic = nn.Sequential(nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)).to(device) if options.get("two_optimizers") else None
    optimizer = make_optimizer(model, options)
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3) if critic is not None else None
    scaler = torch.amp.GradScaler(device) if options.get("scaler") else None
    criterion = options.get("loss", lambda out, x: out.square().mean())
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=options.get("set_to_none", True))
        for _ in range(options.get("accumulate", 1)):
            x = batch()
            x = x.to(device, memory_format=torch.channels_last) if options.get("channels_last") else x.to(device)
            out = model(x)
            if critic is not None:
                critic_optimizer.zero_grad()
                F.softplus(critic(out.detach()) - critic(x)).mean().backward()
                critic_optimizer.step()
                loss = F.softplus(-critic(out)).mean()
            else:
                loss = criterion(out, x)
            (scaler.scale(loss) if scaler else loss).backward()
        if "clip" in options:
            nn.utils.clip_grad_norm_(model.parameters(), options["clip"])
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        if average is not None:
            with torch.no_grad():
                for kept, p in zip(average.parameters(), model.parameters()):
                    kept.mul_(0.99).add_(p, alpha=0.01)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--net", choices=NETS, metavar="NAME")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--list", action="store_true", help="the names, one per line")
    args = parser.parse_args()
    if args.list or not args.net:
        print("\n".join(NETS))
        return
    torch.manual_seed(0)
    train(args.net, args.device, args.steps)


if __name__ == "__main__":
    main()
