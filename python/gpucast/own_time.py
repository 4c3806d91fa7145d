"""The time that following values takes. A host with a card does not need it, so clocks and predicted steps leave it out."""

import statistics
import threading


class _Thread(threading.local):
    began_ns = around_ns = depth = 0  # depth: of contexts; 0 while the script's own call runs


class OwnTime:
    """`took(measured_ns, usual_ns)` is called for the time that following took: by the clock `now_ns()`, and the usual time of the parts around it.
    Use as a context around gpucast's own work, with `pauses` and `goes_on` around the script's call inside."""

    def __init__(self, took, now_ns):
        self.now_ns = now_ns
        # Usual times. A call's way to the mode and back: a property's, a method's, a view's, an operator's, a function's in Python, a function's that
        # makes a tensor, a backward pass's. More for a call whose result was followed: the script's code is no longer in the processor's caches.
        self.getter_ns = self.method_ns = self.view_ns = self.operator_ns = self.function_ns = self.factory_ns = self.backward_ns = 0
        self.followed_ns = 0
        self.took_ns = 0  # a call of `took`
        self._took = took
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
            self._took(self.now_ns() - thread.began_ns, thread.around_ns + self.took_ns)
            thread.began_ns = thread.around_ns = 0

    def pauses(self):
        """What it returns is for `goes_on`."""
        thread = self._thread
        self._took(self.now_ns() - thread.began_ns, thread.around_ns + self.took_ns)
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
        self._took(self.now_ns() - began_ns, around_ns + self.took_ns)
        return 0

    def after_call(self, depth):
        if depth:
            self.goes_on(depth)

    def followed(self):
        """The call in whose context we are was followed."""
        if self._thread.depth:
            self._thread.around_ns += self.followed_ns

    def spent(self, began_ns):
        if not self._thread.depth:
            self._took(self.now_ns() - began_ns, self.took_ns)

    def measure(self, torch, mode_off, mode, yardstick):
        """Finds the usual times. Returns the usual time of `yardstick()`, a fixed piece of work, meanwhile.

        With tensors of no elements on the card: PyTorch's way to a kernel is the script's, and nothing is allocated or launched. Several operators in
        turn: the mode takes their place in the processor's caches. A virtual machine is at times twice as slow: so each call is measured with and
        without the mode, next to the yardstick, in rounds."""
        real, own = self._took, [0]

        def took(measured_ns, usual_ns):
            real(0, 0)
            own[0] += measured_ns + usual_ns

        def call_ns(calls):
            """A call's time that is not known to be gpucast's; the second time, with the code in the processor's caches."""
            for call in calls:
                call()
            own[0] = 0
            begin = self.now_ns()
            for call in calls:
                call()
            return (self.now_ns() - begin - own[0]) / len(calls)

        begin = self.now_ns()
        try:
            self._took = took
            with mode_off(), torch.no_grad():
                kinds = _kinds(torch, mode)
                shares, yardsticks_ns = {name: [] for name in kinds}, []
                for _ in range(_ROUNDS):
                    for name, calls in kinds.items():
                        yardsticks_ns.append(yardstick())
                        without_ns = call_ns(calls)
                        with mode:
                            shares[name].append((call_ns(calls) - without_ns) / yardsticks_ns[-1])
                    began_ns = self.now_ns()
                    for _ in range(_CALLS):
                        real(0, 0)
                    shares.setdefault("took", []).append((self.now_ns() - began_ns) / _CALLS / yardsticks_ns[-1])
        finally:
            self._took = real
            real(self.now_ns() - begin, 0)
        yardstick_ns = statistics.median(yardsticks_ns)
        usual_ns = {name: max(0, round(statistics.median(each) * yardstick_ns)) for name, each in shares.items()}
        followed_ns = usual_ns.pop("followed")
        for name, ns in usual_ns.items():
            setattr(self, f"{name}_ns", ns)
        self.followed_ns = max(0, followed_ns - self.operator_ns) // 2  # different operators in turn lose all of it, one in a loop little
        return round(yardstick_ns)


_ROUNDS, _CALLS = 9, 21


def _kinds(torch, mode):
    """Calls of each kind; kinds without `_ns` as in OwnTime."""
    functional = torch.nn.functional
    device = torch.device("cuda", torch.cuda.current_device())
    x = torch.empty((0, 4), device=device)
    with mode:
        known = torch.zeros((0, 4), device=device)
    leaf = torch.zeros(1, device="cpu", requires_grad=True)  # no other thread has to wake up
    with torch.enable_grad():
        result = leaf * leaf
    kinds = {
        "getter": [lambda: x.requires_grad],
        "method": [lambda: x.data_ptr()],
        "view": [lambda: x.view(-1), lambda: x.unsqueeze(0), lambda: x.transpose(0, 1)],
        "operator": _operators(torch, x),
        "followed": _operators(torch, known),
        "function": [
            lambda: functional.softmax(x, -1),
            lambda: functional.relu(x),
            lambda: functional.layer_norm(x, (4,)),
            lambda: functional.silu(x),
        ],
        "factory": [lambda: torch.empty((0, 4), device=device)],
        "backward": [lambda: torch.autograd.grad(result, leaf, leaf, retain_graph=True)],
    }
    return {name: calls * (_CALLS // len(calls)) for name, calls in kinds.items()}


def _operators(torch, x):
    return [
        lambda: x * x,
        lambda: x.to(torch.float16),
        lambda: x.pow(2),
        lambda: torch.relu(x),
        lambda: torch.cat((x, x)),
        lambda: x + 1.0,
        lambda: torch.softmax(x, -1),
    ]
