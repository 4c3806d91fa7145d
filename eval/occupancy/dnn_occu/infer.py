"""Inference of one of DNN-occu's 20 models (Table II) with random weights: two forwards, the second is observed."""

import argparse

import torch
from dnn_occu_models import IMAGE, MODELS, SEQUENCE, TEXT, TORCHVISION
from torch import nn


def lenet():
    return nn.Sequential(
        *(nn.Conv2d(3, 6, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(16 * 53 * 53, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
    )


def vit(heads, width):
    from torchvision.models import VisionTransformer

    return VisionTransformer(image_size=224, patch_size=16, num_layers=12, num_heads=heads, hidden_dim=width, mlp_dim=4 * width)


class Recurrent(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.layers = kind(256, 512, batch_first=True)
        self.last = nn.Linear(512, 10)

    def forward(self, x):
        return self.last(self.layers(x)[0][:, -1])


class Clip(nn.Module):
    """transformers has CLIP with vision transformers only. RN50: torchvision's ResNet-50 instead of the image encoder."""

    def __init__(self, image):
        super().__init__()
        import torchvision
        import transformers

        text = transformers.CLIPTextConfig(hidden_size=512, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=8)
        self.text = transformers.CLIPTextModelWithProjection(text)
        if image == "rn50":
            self.image = torchvision.models.resnet50(num_classes=512)
        else:
            vision = transformers.CLIPVisionConfig(
                **{"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12},
                **{"patch_size": int(image), "projection_dim": 512},
            )
            self.image = transformers.CLIPVisionModelWithProjection(vision)

    def forward(self, pixels, tokens):
        images = self.image(pixels)
        images = getattr(images, "image_embeds", images)
        texts = self.text(tokens).text_embeds
        return nn.functional.normalize(images, dim=-1) @ nn.functional.normalize(texts, dim=-1).T


def distilbert():
    import transformers

    return transformers.DistilBertForSequenceClassification(transformers.DistilBertConfig())


def gpt2():
    import transformers

    return transformers.GPT2LMHeadModel(transformers.GPT2Config())


def build(name):
    if name in TORCHVISION:
        import torchvision

        return getattr(torchvision.models, name)()
    others = {
        **{"lenet": lenet, "vit_s": lambda: vit(6, 384), "vit_t": lambda: vit(3, 192)},
        **{"lstm": lambda: Recurrent(nn.LSTM), "rnn": lambda: Recurrent(nn.RNN), "distilbert": distilbert, "gpt2": gpt2},
        **{"clip_rn50": lambda: Clip("rn50"), "clip_vit_b_32": lambda: Clip("32"), "clip_vit_b_16": lambda: Clip("16")},
    }
    return others[name]()


def take_channels(model, channels):
    """The first convolution reads this number of channels instead of 3."""
    if channels == 3:
        return
    for parent in model.modules():
        for name, child in parent.named_children():
            if isinstance(child, nn.Conv2d):
                made = nn.Conv2d(channels, child.out_channels, child.kernel_size, child.stride, child.padding, bias=child.bias is not None)
                setattr(parent, name, made)
                return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--channels", type=int, default=3, help="of images")
    parser.add_argument("--length", type=int, default=64, help="of sequences and texts")
    options = parser.parse_args()
    # Like a graph for export: attention operator by operator, whatever the number of heads.
    torch.backends.mha.set_fastpath_enabled(False)
    model = build(options.model).eval()
    if options.model in IMAGE:
        take_channels(model, options.channels)
        inputs = [torch.zeros(options.batch, options.channels, 224, 224)]
    elif options.model in SEQUENCE:
        inputs = [torch.zeros(options.batch, options.length, 256)]
    elif options.model in TEXT:
        inputs = [torch.zeros(options.batch, options.length, dtype=torch.long)]
    else:
        inputs = [torch.zeros(options.batch, 3, 224, 224), torch.zeros(options.batch, 77, dtype=torch.long)]
    model.cuda()
    inputs = [value.cuda() for value in inputs]
    with torch.no_grad():
        for _ in range(2):
            model(*inputs)


if __name__ == "__main__":
    main()
