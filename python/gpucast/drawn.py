"""Whole numbers that follow from unknown values, drawn from the distribution that these have: a router's top experts, classes, actions.

Each index has the same probability. With `--assume skew:X`, the index of rank r has the weight r ** -X (Zipf's law), as under an uneven
router. The ranks are fixed. The indices of one row are distinct, like the results of topk().
"""

import functools

_FEW = 32  # most indices of a row that are drawn one after the other
_PIECE = 1 << 22  # scores drawn at once
_ROUNDS = 8  # of drawing again what was drawn before

_torch = None
_generator = None  # the script's own generators stay unchanged
_skew = 0.0


def install(torch, skew):
    global _torch, _generator, _skew
    _torch, _skew = torch, skew
    _generator = torch.Generator()
    _generator.manual_seed(0)


def random(shape):
    """Between 0 and 1."""
    return _torch.rand(shape, generator=_generator)


def seed():
    return int(_torch.randint(1 << 30, (), generator=_generator))


def how():
    return f"by Zipf's law with exponent {_skew:g}" if _skew else "evenly"


def scores(shape):
    """Random values. Their order along the last dimension follows the weights."""
    values = random(shape)
    return values if not _skew or not shape else values.log_().div_(_weights(shape[-1]))


def weights(shape):
    """Of classes along the last dimension."""
    return _weights(shape[-1]).expand(shape) if _skew else random(shape)


def distinct(rows, size, number):
    """`number` distinct indices below `size` in each row: a tensor of rows x number."""
    if number > _FEW:
        step = max(1, _PIECE // size)
        pieces = [min(step, rows - start) for start in range(0, rows, step)]
        return _torch.cat([scores((piece, size)).topk(number).indices for piece in pieces or [0]])
    return _skewed(rows, size, number) if _skew else _even(rows, size, number)


def distinct_of(left, number):
    """As `distinct`, among the indices that hold in each row of `left`."""
    step = max(1, _PIECE // left.shape[1])
    pieces = [scores(piece.shape).masked_fill_(~piece, float("-inf")).topk(number).indices for piece in left.split(step)]
    return _torch.cat(pieces)


def any_of(rows, size, number):
    """As `distinct`, but each index may be drawn again."""
    if not _skew:
        return _torch.randint(size, (rows, number), generator=_generator)
    return _by_weight(size, rows * number).view(rows, number)


def _even(rows, size, number):
    chosen, ascending = [], []
    for taken in range(number):
        index = _torch.randint(size - taken, (rows,), generator=_generator)  # among those that are left
        for earlier in ascending:
            index += index >= earlier
        largest = index
        for place, earlier in enumerate(ascending):
            ascending[place], largest = _torch.minimum(earlier, largest), _torch.maximum(earlier, largest)
        ascending.append(largest)
        chosen.append(index.clone())
    return _torch.stack(chosen, 1)


@functools.cache
def _weights(size):
    ranks = _torch.randperm(size, generator=_torch.Generator().manual_seed(size)) + 1.0
    found = ranks**-_skew
    return found / found.sum()


def _by_weight(size, number):
    ends = _weights(size).double().cumsum(0)
    return _torch.searchsorted(ends, random((number,)).double() * ends[-1]).clamp_(max=size - 1)


def _skewed(rows, size, number):
    chosen = _by_weight(size, rows)[:, None]
    while chosen.shape[1] < number:
        index = _by_weight(size, rows)
        for _ in range(_ROUNDS):
            again = (chosen == index[:, None]).any(1).nonzero().squeeze(1)
            if not len(again):
                break
            index[again] = _by_weight(size, len(again))
        again = (chosen == index[:, None]).any(1).nonzero().squeeze(1)
        for some in again.split(max(1, _PIECE // size)):  # nearly all of the weight is taken
            left = _weights(size).clamp(min=1e-30).repeat(len(some), 1).scatter_(1, chosen[some], 0)
            index[some] = _torch.multinomial(left, 1, generator=_generator).squeeze(1)
        chosen = _torch.cat([chosen, index[:, None]], 1)
    return chosen
