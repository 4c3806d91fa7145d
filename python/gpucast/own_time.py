"""The time that following values takes. A host with a card does not need it, so clocks and predicted steps leave it out."""


class OwnTime:
    """`took(nanoseconds)` is called for the time that following took by the clock `now_ns()`. Use as a context around gpucast's own work, with
    `pauses` and `goes_on` around the script's call inside."""

    def __init__(self, took, now_ns):
        self.now_ns = now_ns
        self.around_ns = self.around_getter_ns = 0  # a call's way to the mode and back
        self._took, self._began_ns, self._depth = took, 0, 0

    def since(self, began_ns):
        """To enter the context as if at an earlier time."""
        if not self._depth:
            self._began_ns = began_ns
        return self

    def __enter__(self):
        self._depth += 1
        if self._depth == 1 and not self._began_ns:
            self.goes_on()

    def pauses(self):
        self._took(self.now_ns() - self._began_ns)

    def goes_on(self):
        self._began_ns = self.now_ns()

    def __exit__(self, *_):
        self._depth -= 1
        if self._depth == 0:
            self._took(self.now_ns() - self._began_ns + self.around_ns)
            self._began_ns = 0

    def before_call(self, began_ns, around_ns):
        """Instead of the context and its pause, for a call that needs little: it is ours from `began_ns` until now, and `around_ns`."""
        self._took(self.now_ns() - (self._began_ns if self._depth else began_ns - around_ns))

    def after_call(self):
        if self._depth:
            self.goes_on()

    def spent(self, began_ns):
        if not self._depth:
            self._took(self.now_ns() - began_ns)

    def measure_around(self, tensor, mode_off, mode):
        """`tensor`: a small one on the host."""
        real = self._took
        own = [0]

        def took(ns):
            real(0)
            own[0] += ns

        def around(call):
            plain = self._usual_ns(call, own)
            with mode:
                return max(0, self._usual_ns(call, own) - plain)

        self._took = took
        begin = self.now_ns()
        try:
            with mode_off():
                found = around(lambda: tensor.requires_grad), around(lambda: tensor * tensor)
            self.around_getter_ns, self.around_ns = found
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
