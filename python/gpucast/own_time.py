"""The time that following values takes. A host with a card does not need it, so clocks and predicted steps leave it out."""

import threading


class _Thread(threading.local):
    began_ns = around_ns = depth = 0  # depth: of contexts; 0 while the script's own call runs


class OwnTime:
    """`took(nanoseconds)` is called for the time that following took by the clock `now_ns()`. Use as a context around gpucast's own work, with
    `pauses` and `goes_on` around the script's call inside."""

    def __init__(self, took, now_ns):
        self.now_ns = now_ns
        # A call's way to the mode and back: a property's, a method's, an operator's, a function's that makes a tensor, a backward pass's.
        self.getter_ns = self.method_ns = self.operator_ns = self.factory_ns = self.backward_ns = 0
        self._took, self._took_ns = took, 0  # and how long a call of `took` takes
        self._thread = _Thread()

    def since(self, began_ns, around_ns):
        """To enter the context as if at an earlier time, for a call with this way around."""
        if not self._thread.depth:
            self._thread.began_ns = began_ns
        self._thread.around_ns = around_ns
        return self

    def __enter__(self):
        thread = self._thread
        thread.depth += 1
        if thread.depth == 1 and not thread.began_ns:
            thread.began_ns = self.now_ns()

    def __exit__(self, *_):
        thread = self._thread
        thread.depth -= 1
        if thread.depth == 0:
            self._took(self.now_ns() - thread.began_ns + thread.around_ns + self._took_ns)
            thread.began_ns = thread.around_ns = 0

    def pauses(self):
        """What it returns is for `goes_on`."""
        thread = self._thread
        self._took(self.now_ns() - thread.began_ns + thread.around_ns + self._took_ns)
        depth = thread.depth
        thread.began_ns = thread.around_ns = thread.depth = 0
        return depth

    def goes_on(self, depth):
        self._thread.depth, self._thread.began_ns = depth, self.now_ns()

    def before_call(self, began_ns, around_ns):
        """Instead of the context and its pause, for a call that needs little: it is ours from `began_ns` until now, and `around_ns`. What it
        returns is for `after_call`."""
        if self._thread.depth:
            self._thread.around_ns = around_ns
            return self.pauses()
        self._took(self.now_ns() - began_ns + around_ns + self._took_ns)
        return 0

    def after_call(self, depth):
        if depth:
            self.goes_on(depth)

    def spent(self, began_ns):
        if not self._thread.depth:
            self._took(self.now_ns() - began_ns + self._took_ns)

    def measure(self, torch, mode_off, mode):
        """With small tensors on the host."""
        real, own = self._took, [0]
        tensor = torch.zeros(1, device="cpu")
        size, how = (1,), {"dtype": tensor.dtype, "device": tensor.device}

        def took(ns):
            real(0)
            own[0] += ns

        def around(call):
            plain = self._usual_ns(call, own)
            with mode:
                return max(0, self._usual_ns(call, own) - plain)

        begin = self.now_ns()
        try:
            self._took_ns = self._usual_ns(lambda: real(0), own) - self._usual_ns(lambda: None, own)
            self._took = took
            with mode_off():
                self.getter_ns, self.method_ns = around(lambda: tensor.requires_grad), around(lambda: tensor.data_ptr())
                self.operator_ns = around(lambda: tensor * tensor)
                self.factory_ns = around(lambda: torch.empty(size, **how))
                leaf = torch.zeros(1, device="cpu", requires_grad=True)
                with torch.enable_grad():
                    result = leaf * leaf
                self.backward_ns = around(lambda: torch.autograd.grad(result, leaf, tensor, retain_graph=True))
        finally:
            self._took = real
            real(self.now_ns() - begin)

    def _usual_ns(self, call, own):
        return sorted(self._rest_of(call, own) for _ in range(12))[3]

    def _rest_of(self, call, own, times=50):
        own[0] = 0
        begin = self.now_ns()
        for _ in range(times):
            call()
        return (self.now_ns() - begin - own[0]) // times
