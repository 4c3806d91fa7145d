"""A convolutional model as NVIDIA's DeepLearningExamples train it, on synthetic images: with label smoothing and an optimizer.

    python convnet_step.py --model resnet50 --batch 256 --image 224 --layout nhwc --precision amp --optimizer sgd

--model: from torchvision, or from timm if torchvision has none of that name.
"""

import torch
import torchvision
from step_job import STEPS, add_layout, allow_tf32, image_parser, on_card


def parse_args():
    parser = image_parser()
    add_layout(parser)
    parser.add_argument("--precision", choices=["amp", "fp32", "tf32"], required=True, help="fp32: without TF32 anywhere")
    parser.add_argument("--optimizer", choices=["sgd", "rmsprop"], default="sgd")
    parser.add_argument("--foreach", action="store_true", help="PyTorch 2's optimizers: many tensors per kernel")
    return parser.parse_args()


def make_model(name):
    if name in torchvision.models.list_models():
        return torchvision.models.get_model(name, weights=None)
    import timm

    return timm.create_model(name)


def make_optimizer(args, parameters):
    if args.optimizer == "rmsprop":
        return torch.optim.RMSprop(parameters, lr=0.01, alpha=0.9, eps=0.01, momentum=0.9, weight_decay=1e-5, foreach=args.foreach)
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=3e-5, foreach=args.foreach)


def main():
    args = parse_args()
    torch.backends.cudnn.benchmark = True
    allow_tf32(args.precision != "fp32")
    model, x = on_card(args, make_model(args.model).train())
    optimizer = make_optimizer(args, model.parameters())
    amp = args.precision == "amp"
    scaler = torch.amp.GradScaler("cuda", enabled=amp)
    criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    target = torch.zeros(args.batch, dtype=torch.long, device="cuda")
    for _ in range(STEPS):
        with torch.autocast("cuda", torch.float16, enabled=amp):
            loss = criterion(model(x), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
