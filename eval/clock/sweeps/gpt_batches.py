import torch
from sweep_values import by_wall, sweep


class GPT(torch.nn.Module):
    def __init__(self, vocabulary=32000, width=768, heads=12, layers=4, length=512):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(vocabulary, width), torch.nn.Embedding(length, width)
        layer = torch.nn.TransformerEncoderLayer(width, heads, 4 * width, 0.1, "gelu", batch_first=True, norm_first=True)
        self.blocks = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = torch.nn.LayerNorm(width), torch.nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.places(torch.arange(length, device=tokens.device))
        mask = torch.nn.Transformer.generate_square_subsequent_mask(length, device=tokens.device)
        return self.head(self.norm(self.blocks(x, mask=mask, is_causal=True)))


def measure(batch):
    """A training step by the wall clock."""
    model = GPT().cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    tokens = torch.randint(0, 32000, (batch, 513), device="cuda")

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            scores = model(tokens[:, :-1])
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()

    for _ in range(10):
        step()
    return by_wall(step)


sweep(measure, 4, 8, 16, 32, 64)
