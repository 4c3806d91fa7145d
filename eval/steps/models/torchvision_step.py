"""A torchvision model's zero_grad, forward and backward with a fixed target, no optimizer: pytorch-gpu-benchmark's steps.

    python torchvision_step.py --model resnet34 --batch 12 --image 224 --precision fp16 --copy

--copy: the input comes from pageable host memory in each step.
"""

import torch
import torchvision
from step_job import STEPS, StepEnd, image_parser


def parse_args():
    parser = image_parser()
    parser.add_argument("--precision", choices=["fp32", "fp16"], required=True)
    parser.add_argument("--copy", action="store_true")
    return parser.parse_args()


def main():
    args = parse_args()
    torch.backends.cudnn.benchmark = True
    dtype = torch.half if args.precision == "fp16" else torch.float
    torch.backends.cuda.matmul.allow_tf32 = True
    model = torchvision.models.get_model(args.model, weights=None).to("cuda", dtype).train()
    criterion = torch.nn.CrossEntropyLoss()
    step_end = StepEnd()
    images = torch.randn(args.batch, 3, args.image, args.image, dtype=dtype)
    target = torch.zeros(args.batch, dtype=torch.long, device="cuda")
    images = images if args.copy else images.to("cuda")
    for _ in range(STEPS):
        model.zero_grad(set_to_none=False)
        output = model(images.to("cuda"))
        output = output[0] if isinstance(output, tuple) else output
        criterion(output, target).backward()
        torch.cuda.synchronize()
        step_end()


if __name__ == "__main__":
    main()
