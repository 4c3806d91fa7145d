"""The what-if `bf16-weights`: the model's weights in bfloat16."""

import gc

from . import places
from .what_if_base import WhatIf, listed, wrap


class Bf16Weights(WhatIf):
    """model.to(torch.bfloat16) before its first optimizer is made, and model(x.to(torch.bfloat16)) for inputs of float32."""

    def __init__(self, name, argument):
        super().__init__(name, argument)
        self._models = {}  # id -> model
        self._seen = False

    def at_import(self):
        wrap(self.torch.optim.Optimizer, "__init__", self._initializing)

    def at_cuda_start(self):
        wrap(self.torch.nn.Module, "__call__", self._calling)

    def _initializing(self, real):
        def initialize(optimizer, params, *args, **kwargs):
            if not isinstance(params, self.torch.Tensor):  # which PyTorch refuses
                params = list(params)
                self.safely(self._convert, params)
            return real(optimizer, params, *args, **kwargs)

        return initialize

    def _convert(self, params):
        self._seen = True
        wanted = set()
        for entry in params:
            if isinstance(entry, dict):
                if not isinstance(entry["params"], self.torch.Tensor):
                    entry["params"] = list(entry["params"])  # it may be a generator; PyTorch does the same
                own = entry["params"]
            else:
                own = entry[1] if isinstance(entry, tuple) else entry  # a named parameter
            wanted.update(map(id, own if isinstance(own, list) else [own]))
        for model in _outermost(self.torch):
            if id(model) in self._models or not any(id(parameter) in wanted for parameter in model.parameters()):
                continue
            if any(parameter.dtype == self.torch.float32 for parameter in model.parameters()):
                model.to(self.torch.bfloat16)
                self._models[id(model)] = model
                self.acted(type(model).__name__)

    def _calling(self, real):
        def call(module, *args, **kwargs):
            if id(module) in self._models and not self.torch.is_autocast_enabled():
                return real(module, *(self._cast(value) for value in args), **{name: self._cast(value) for name, value in kwargs.items()})
            return real(module, *args, **kwargs)

        return call

    def _cast(self, value):
        torch = self.torch
        if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
            return value
        places.detail(self.name, casts_inputs=True)
        return value.to(torch.bfloat16)

    def did(self):
        if self.count:
            return f"{listed(self.subjects)} became bfloat16 before the optimizer was made"
        return "no model has weights of float32" if self._seen else "no optimizer was made"


def _outermost(torch):
    """The modules that are no other module's child."""
    modules = [value for value in gc.get_objects() if issubclass(type(value), torch.nn.Module) and "_modules" in value.__dict__]
    children = {id(child) for module in modules for child in module._modules.values()}
    return [module for module in modules if id(module) not in children]
