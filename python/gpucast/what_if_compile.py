"""The what-if `compile`: the model's forward and backward compiled."""

import threading

from . import places, process
from .what_if_base import WhatIf, listed, wrap


class Compile(WhatIf):
    """model.compile() for each outermost module with parameters, before its first call with gradients."""

    def __init__(self, name, argument):
        super().__init__(name, argument)
        self._local = threading.local()  # depth of module calls
        self._seen = {}  # id -> module: those that were compiled, by us or by the script

    def at_cuda_start(self):
        def around(real):
            def call(module, *args, **kwargs):
                if process.is_compiling():
                    return real(module, *args, **kwargs)
                depth = getattr(self._local, "depth", 0)
                if depth == 0:
                    self.safely(self._look, module)
                self._local.depth = depth + 1
                try:
                    return real(module, *args, **kwargs)
                finally:
                    self._local.depth = depth

            return call

        wrap(self.torch.nn.Module, "__call__", around)

    def _look(self, module):
        if process.state != process.ARMED or id(module) in self._seen or not self.torch.is_grad_enabled():
            return
        in_backward = self.torch._C._current_graph_task_id() != -1  # a recomputation
        if in_backward or not any(parameter.requires_grad for parameter in module.parameters()):
            return
        self._seen[id(module)] = module
        if module._compiled_call_impl is None and not hasattr(module, "_orig_mod"):
            places.note(self.name, module)
            module.compile()
            self.acted(type(module).__name__)

    def did(self):
        if self.count:
            return f"{listed(self.subjects)} compiled by torch.compile"
        return "the script compiles its model already" if self._seen else "no module with parameters that train ran"
