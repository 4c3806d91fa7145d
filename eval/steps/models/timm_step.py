"""One model of timm as its benchmark.py measures it: inputs on the card from the start, no loader, automatic mixed precision.

    python timm_step.py --model resnet50 --batch 256 --image 224 --layout nhwc --mode train

The caller chooses timm's release, and sets TIMM_FUSED_ATTN=0 if the measured run had no fused attention. Inference uses timm's
fast norm (../README.md says how that is known).
"""

import timm
import torch
from step_job import STEPS, StepEnd, add_layout, image_parser, on_card


def parse_args():
    parser = image_parser()
    add_layout(parser)
    parser.add_argument("--mode", choices=["train", "infer"], required=True)
    parser.add_argument("--reparameterize", action="store_true", help="branches of training folded into one, as benchmark.py --reparam")
    return parser.parse_args()


def make_model(name, image, fast_norm):
    """Without `img_size` if the requested image size is the model's own: most convolutional models do not accept it."""
    if fast_norm:
        timm.layers.set_fast_norm()
    model = timm.create_model(name)
    config = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", {})
    if tuple(config.get("input_size", (3, image, image)))[-1] == image:
        return model
    try:
        return timm.create_model(name, img_size=image)
    except TypeError:
        return model


def train(model, x):
    # PyTorch 1.12's: one tensor at a time, gradients set to zero and kept.
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, nesterov=True, foreach=False)
    loss = torch.nn.CrossEntropyLoss().to("cuda")
    model.train()
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cuda", torch.float16):
            output = model(x)
            output = output[0] if isinstance(output, tuple) else output
            target = torch.empty(output.shape[0], device="cuda", dtype=torch.long).random_(model.num_classes)
            loss(output, target).backward()
        optimizer.step()
        torch.cuda.synchronize()


def infer(model, x):
    step_end = StepEnd()
    model.eval()
    with torch.no_grad():
        for _ in range(STEPS):
            with torch.autocast("cuda", torch.float16):
                model(x)
            torch.cuda.synchronize()
            step_end()


def main():
    args = parse_args()
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = True
    model = make_model(args.model, args.image, fast_norm=args.mode == "infer")
    if args.reparameterize:
        model = timm.utils.reparameterize_model(model)
    model, x = on_card(args, model)
    train(model, x) if args.mode == "train" else infer(model, x)


if __name__ == "__main__":
    main()
