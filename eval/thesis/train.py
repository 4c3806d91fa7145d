"""The thesis's two training jobs, and its way of counting next to ours.

    gpucast run --steps 20 -- python -m eval.thesis.train ncf --batch 32768
    gpucast run --steps 20 -- python -m eval.thesis.train resnet50 --batch 32

The loops are those of the TBD suite that the thesis profiled: zero_grad between forward and backward, gradients set to zero
and not to None, Adam and SGD one parameter at a time, and for ResNet-50 a DataParallel around the model that also brings the
images to the card.

After each backward a line on standard error gives the thesis's profiler's counts so far (class Addresses).
"""

import argparse
import json
import sys

import torch
from torch import nn


class Addresses:
    """Counts like the thesis's profiler: the size of every tensor with its storage at a new address.

    The addresses of an epoch are kept, so a tensor at another address in the next step counts again, and a tensor at a used
    address does not count. Forward hooks on all modules below the outermost give the feature maps (inputs and outputs), a
    backward hook on the outermost gives the gradients of its last operator's inputs and output. Gradients of parameters are
    looked up in that hook, before the rest of backward fills them.
    """

    def __init__(self, model: nn.Module):
        self.parameters = dict(model.named_parameters())
        self.maps, self.gradients = set(), set()
        self.feature_map_bytes = self.intermediate_gradient_bytes = 0
        self.gradient_bytes = {name: 0 for name in self.parameters}
        for module in model.modules():
            if module is not model:
                module.register_forward_hook(self.after_forward)
        model.register_backward_hook(self.in_backward)

    def new_bytes(self, seen: set, tensor) -> int:
        storage = tensor.untyped_storage()
        if storage.data_ptr() in seen:
            return 0
        seen.add(storage.data_ptr())
        return storage.nbytes()

    def after_forward(self, module, inputs, output):
        for tensor in (output, *inputs):
            self.feature_map_bytes += self.new_bytes(self.maps, tensor)

    def in_backward(self, module, grad_inputs, grad_outputs):
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                self.gradient_bytes[name] += self.new_bytes(self.gradients, parameter.grad)
        for tensor in (*grad_inputs, *grad_outputs):
            if tensor is not None:
                self.intermediate_gradient_bytes += self.new_bytes(self.gradients, tensor)

    def say(self, step: int):
        counts = {
            "step": step,
            "feature_map_bytes": self.feature_map_bytes,
            "gradient_bytes": self.gradient_bytes,
            "intermediate_gradient_bytes": self.intermediate_gradient_bytes,
        }
        print("thesis counts " + json.dumps(counts), file=sys.stderr, flush=True)


def train_ncf(batch: int, steps: int):
    from examples.train_ncf import NeuMF, ratings

    users, items = 138493, 26744
    model = NeuMF(users, items, 64, [256, 256, 128, 64])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, foreach=False)
    loss_function = nn.BCEWithLogitsLoss()
    model = model.cuda()
    addresses = Addresses(model)
    for step in range(1, steps + 1):
        user, item, label = (tensor.pin_memory().cuda(non_blocking=True) for tensor in ratings(batch, users, items, 8))
        outputs = model(user, item)
        loss = loss_function(outputs, label)
        loss.item()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        addresses.say(step)
        optimizer.step()


def train_resnet50(batch: int, steps: int):
    import torchvision

    model = nn.DataParallel(torchvision.models.resnet50(weights=None)).cuda()
    loss_function = nn.CrossEntropyLoss().cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4, foreach=False)
    addresses = Addresses(model)
    model.train()
    for step in range(1, steps + 1):
        images = torch.randn(batch, 3, 224, 224).pin_memory()
        labels = torch.randint(1000, (batch,)).cuda(non_blocking=True)
        output = model(images)
        loss = loss_function(output, labels)
        with torch.no_grad():  # the accuracy that the job prints
            output.topk(5, 1, True, True)[1].t().eq(labels.view(1, -1))
        loss.item()
        optimizer.zero_grad(set_to_none=False)
        loss.backward()
        addresses.say(step)
        optimizer.step()


JOBS = {"ncf": train_ncf, "resnet50": train_resnet50}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", choices=JOBS)
    parser.add_argument("--batch", type=int, default=32, help="samples per step (default %(default)s)")
    parser.add_argument("--steps", type=int, default=100, help="optimizer steps (default %(default)s)")
    args = parser.parse_args()
    JOBS[args.job](args.batch, args.steps)
