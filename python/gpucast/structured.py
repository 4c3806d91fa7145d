"""The values of large tensors, kept by structure: a one-hot matrix is its indices, a triangle is two ranges, a mask of documents is two rows.

An element of a `Structured` tensor is a function of a few parts, which are small tensors expanded to its shape. A view of it is the same
view of each part, an elementwise function of it is one more function of the parts. Sums and counts of one-hot matrices are counts of the
indices, and what one row of it selects is a run of the sorted indices. Nothing as large as the tensor itself is made.
"""

import functools

_MOST_PARTS = 16
_MOST_COUNTED = 1 << 27  # most elements of a tensor that is reduced piece by piece
_PIECE = 1 << 20  # elements computed at once


def _names(text):
    return frozenset(text.split())


_EXPANDING = _names("expand expand_as broadcast_to")
_RESHAPING = _EXPANDING | _names("view view_as reshape flatten unflatten")
VIEWS = _RESHAPING | _names(
    "permute transpose t swapaxes swapdims movedim moveaxis unsqueeze squeeze select narrow __getitem__ chunk split unbind adjoint"
)
SAME = _names("contiguous clone detach alias to long int float double half bfloat16 bool short char byte type type_as cpu cuda")
ELEMENTWISE = SAME | _names(
    "eq ne lt le gt ge not_equal less less_equal greater greater_equal __eq__ __ne__ __lt__ __le__ __gt__ __ge__ "
    "logical_and logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not __and__ __or__ __xor__ __invert__ "
    "__rand__ __ror__ __rxor__ add sub mul rsub __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ floor_divide remainder fmod div "
    "__floordiv__ __mod__ __truediv__ neg __neg__ abs clamp clamp_min clamp_max minimum maximum where masked_fill"
)
REDUCTIONS = _names("sum any all count_nonzero mean amax amin")
CONSTANTS = _names("zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full")
NAMES = VIEWS | ELEMENTWISE | CONSTANTS | _names("one_hot tril triu eye")

EQUALS = ("eq", "__eq__")

_torch = None
_runs = {}  # (address, shape, strides, version) of indices -> (the indices, their places in order, the least, ends of runs); a few


def install(torch):
    global _torch
    _torch = torch


class Changed(Exception):
    """A part was changed in place since, or the values are too many."""


class Structured:
    """`compute` of the parts, elementwise. `hot`: the values are 1 where the first part equals the second (or `hot[0]`, if there is none)."""

    __slots__ = ("_versions", "compute", "dtype", "hot", "parts", "shape")

    def __init__(self, parts, compute, shape, dtype, hot=False):
        self.parts, self.compute, self.shape, self.dtype, self.hot = parts, compute, shape, dtype, hot
        self._versions = [part._version for part in parts]

    def numel(self):
        return self.shape.numel()

    def checked(self):
        if any(part._version != version for part, version in zip(self.parts, self._versions)):
            raise Changed
        return self.parts

    def dense(self):
        """As an ordinary tensor: the caller knows that it is small enough."""
        values = self.compute(*self.checked()).to(self.dtype).expand(self.shape)
        own = values.data_ptr() not in [part.data_ptr() for part in self.parts] and all(values.stride())
        return values if own else values.clone(memory_format=_torch.contiguous_format)


class _Slot:
    """Stands for a tensor among the arguments: a function of some of the parts."""

    __slots__ = ("compute", "first", "last")

    def __init__(self, compute, first, last):
        self.compute, self.first, self.last = compute, first, last


def _itself(part):
    return part


# ---- making and changing ---------------------------------------------------------------------------------------------------------


def constant(number, shape, dtype):
    return Structured([_torch.as_tensor(number, dtype=dtype).expand(shape)], _itself, shape, dtype)


def as_it_is(value):
    return Structured([value], _itself, value.shape, value.dtype)


def result_of(name, function, args, kwargs, results):
    """The values of the call's results, `results` (tensors on the card), or None. Arguments are host tensors and Structured ones."""
    first = results[0]
    if name in CONSTANTS:
        number = _constant_of(name, args, kwargs)
        return None if number is None else (constant(number, first.shape, first.dtype),)
    if name == "one_hot":
        return (_one_hot(args[0], first),)
    if name in ("tril", "triu", "eye"):
        return (_triangle(name, args, kwargs, first),)
    if name in VIEWS:
        return _view(name, function, args, kwargs, results)
    return (_elementwise(name, function, args, kwargs, first),) if name in ELEMENTWISE else None


def _constant_of(name, args, kwargs):
    if not name.endswith(("full", "full_like")):
        return 0 if "zeros" in name else 1
    number = kwargs["fill_value"] if "fill_value" in kwargs else args[2 if name == "new_full" else 1]
    return number if not isinstance(number, Structured) else None


def _one_hot(indices, result):
    classes = _torch.arange(result.shape[-1], dtype=indices.dtype).expand(result.shape)
    return Structured([indices.unsqueeze(-1).expand(result.shape), classes], _equal, result.shape, result.dtype, True)


def _equal(first, second):
    return first == second


def _triangle(name, args, kwargs, result):
    shape, dtype = result.shape, result.dtype
    rows = _torch.arange(shape[-2], dtype=_torch.int32)[:, None].expand(shape)
    columns = _torch.arange(shape[-1], dtype=_torch.int32).expand(shape)
    if name == "eye":
        return Structured([rows, columns], _equal, shape, dtype)
    parts, compute = _as_parts(args[0], shape)
    diagonal = kwargs.get("diagonal", args[1] if len(args) > 1 else 0)

    def masked(*all_parts):
        values, distance = compute(*all_parts[:-2]), all_parts[-1] - all_parts[-2]
        return values.masked_fill(distance > diagonal if name == "tril" else distance < diagonal, 0)

    return Structured([*parts, rows, columns], masked, shape, dtype)


def _as_parts(value, shape):
    if isinstance(value, Structured):
        compute = value.compute if value.compute is _itself else functools.partial(_cast, value.compute, value.dtype)
        return [part.expand(shape) for part in value.checked()], compute
    return [value.expand(shape)], _itself


def _view(name, function, args, kwargs, results):
    source, rest, shape = args[0], args[1:], results[0].shape
    if not isinstance(source, Structured) or results[0].dtype is not source.dtype:
        return None
    if name in _RESHAPING:  # the strict form: the others copy where parts have no such view
        function, rest, kwargs = _torch.Tensor.expand if name in _EXPANDING else _torch.Tensor.view, (shape,), {}
    elif any(isinstance(one, Structured) or (isinstance(one, _torch.Tensor) and one.dim()) for one in _index(rest)):
        return None  # gathers elements
    try:
        views = [function(part, *rest, **kwargs) for part in source.checked()]
    except RuntimeError:
        return None
    if isinstance(views[0], _torch.Tensor):
        views = [(view,) for view in views]
    for part, its_views in zip(source.parts, views):
        if any(view.untyped_storage().data_ptr() != part.untyped_storage().data_ptr() for view in its_views):
            return None  # copies
    return tuple(Structured(list(parts), source.compute, parts[0].shape, source.dtype, source.hot) for parts in zip(*views))


def _index(rest):
    for one in rest:
        if isinstance(one, tuple):
            yield from _index(one)
        else:
            yield one


def _elementwise(name, function, args, kwargs, result):
    parts, shape = [], result.shape

    def planned(one):
        if isinstance(one, (Structured, _torch.Tensor)):
            if isinstance(one, _torch.Tensor) and one.dim() == 0:
                return one.clone()
            more, compute = _as_parts(one, shape)
            parts.extend(more)
            return _Slot(compute, len(parts) - len(more), len(parts))
        return type(one)(map(planned, one)) if type(one) in (tuple, list) else one

    if name in SAME:
        return _same(args[0], result)
    if name in EQUALS and not kwargs:
        found = _comparison(args, result)
        if found is not None:
            return found
    plan, named = [planned(one) for one in args], {key: planned(one) for key, one in kwargs.items()}
    if len(parts) > _MOST_PARTS:
        return None

    def compute(*given):
        def filled(one):
            if type(one) is _Slot:
                return one.compute(*given[one.first : one.last])
            return type(one)(map(filled, one)) if type(one) in (tuple, list) else one

        return function(*map(filled, plan), **{key: filled(one) for key, one in named.items()})

    return Structured(parts, compute, shape, result.dtype)


def _same(source, result):
    if isinstance(source, _torch.Tensor):
        return Structured([source.expand(result.shape)], _itself, result.shape, result.dtype)
    compute = source.compute if source.hot or source.dtype == result.dtype else functools.partial(_cast, source.compute, source.dtype)
    return Structured(source.checked(), compute, result.shape, result.dtype, source.hot)


def _cast(compute, dtype, *parts):
    return compute(*parts).to(dtype)


def _comparison(args, result):
    """`a == b` of whole numbers, each a tensor or a number, or None for anything else."""
    parts = []
    for one in args:
        part = one
        if isinstance(one, Structured):
            if one.compute is not _itself:
                return None
            part = one.checked()[0]
        elif type(one) is int:
            part = _torch.tensor(one)
        elif isinstance(one, _torch.Tensor) and one.dim() == 0:
            part = one.clone()
        if not isinstance(part, _torch.Tensor) or part.is_floating_point():
            return None
        parts.append(part.expand(result.shape))
    return Structured(parts, _equal, result.shape, result.dtype, True)


# ---- sums, counts and positions --------------------------------------------------------------------------------------------------


def reduction(name, value, args, kwargs, result):
    """The values of `sum`, `any`, ... over some dimensions, or None."""
    given = dict(zip(("dim", "keepdim"), args)) | kwargs
    if not given.keys() <= {"dim", "keepdim", "dtype", "axis"} or (name in ("amax", "amin") and not value.hot):
        return None
    dims = given.get("dim", given.get("axis"))
    size = len(value.shape)
    dims = range(size) if dims is None or dims == () else (dims,) if isinstance(dims, int) else dims
    found = _reduced(name, value, {dim % size for dim in dims}) if size and value.numel() else None
    return None if found is None else found.expand(_kept(value.shape, dims)).reshape(result.shape).to(result.dtype).clone()


def count(value):
    """Number of nonzero elements of a tensor or a Structured one; None: not known."""
    if not isinstance(value, Structured):
        return int(value.count_nonzero())
    of = _indices_and_classes(*value.checked()) if value.hot and value.numel() else None
    if of and of[2] is None and all(of[0].stride()):
        return len(_run(of[0], of[3]))
    found = _reduced("count_nonzero", value, set(range(len(value.shape)))) if value.numel() else _torch.tensor(0)
    return None if found is None else int(found)


def _kept(shape, dims):
    dims = {dim % len(shape) for dim in dims}
    return [1 if dim in dims else size for dim, size in enumerate(shape)]


def _reduced(name, value, dims):
    """With each reduced dimension, and each along which nothing varies, of size 1."""
    parts, shape = value.checked(), value.shape
    still = [dim for dim in range(len(shape)) if shape[dim] > 1 and not any(part.stride(dim) for part in parts)]
    times, total = 1, 1
    for dim in dims:
        total *= shape[dim]
        times *= shape[dim] if dim in still else 1
    for dim in still:
        parts = [part.narrow(dim, 0, 1) for part in parts]
    reduced = sorted(dims - set(still))
    if value.hot:
        counts = _counts(*parts, reduced)
        if counts is not None:
            return _from_counts(name, counts, total // times, times)
    return _piece_by_piece(name, value, parts, reduced, total, times)


def _from_counts(name, counts, size, times):
    if name in ("any", "amax"):
        return counts > 0
    if name in ("all", "amin"):
        return counts == size
    return counts / size if name == "mean" else counts * times


def _varying(part):
    return {dim for dim in range(part.dim()) if part.shape[dim] > 1 and part.stride(dim)}


def _indices_and_classes(first, second):
    """(indices, classes, the classes' dimension or None for a single class, the first class); None: another comparison."""
    for indices, classes in ((first, second), (second, first)):
        along = _varying(classes)
        if not along:
            return indices, classes, None, int(classes[(0,) * classes.dim()])
        if len(along) == 1 and not along & _varying(indices):
            (dim,) = along
            row = classes[tuple(slice(None) if each == dim else 0 for each in range(classes.dim()))]
            if _torch.equal(row, _torch.arange(row.numel(), dtype=row.dtype) + row[0]):
                return indices, classes, dim, int(row[0])
    return None


def _counts(first, second, dims):
    found = _indices_and_classes(first, second)
    if found is None:
        return None
    indices, classes, dim, least = found
    if dim is None:
        return (indices == least).sum(dims, keepdim=True) if dims else (indices == least).long()
    size = classes.shape[dim]
    indices = indices.narrow(dim, 0, 1).long() - least
    inside = (indices >= 0) & (indices < size)
    if dim in dims:
        return inside.sum(dims, keepdim=True)
    over = [each for each in range(indices.dim()) if each not in dims and each != dim]
    kept = indices.permute(*over, dim, *dims)
    rows = kept.shape[: len(over)].numel()
    if rows * size > _MOST_COUNTED // 8:
        return None
    places = kept.reshape(rows, -1) + _torch.arange(rows)[:, None] * size
    if not bool(inside.all()):
        places = places[inside.permute(*over, dim, *dims).reshape(rows, -1)]
    counts = _torch.bincount(places.reshape(-1), minlength=rows * size)
    counts = counts.view(*kept.shape[: len(over)], size, *(1 for _ in dims))
    return counts.permute(*(_places_of([*over, dim, *dims])))


def _places_of(order):
    places = [0] * len(order)
    for place, dim in enumerate(order):
        places[dim] = place
    return places


def _piece_by_piece(name, value, parts, dims, total, times):
    shape = parts[0].shape
    if shape.numel() > _MOST_COUNTED:
        return None
    along = max(range(len(shape)), key=lambda dim: shape[dim])
    step = max(1, _PIECE // (shape.numel() // shape[along]))
    pieces = []
    for start in range(0, shape[along], step):
        length = min(step, shape[along] - start)
        piece = (
            value.compute(*(part.narrow(along, start, length) for part in parts))
            .to(value.dtype)
            .expand([length if dim == along else size for dim, size in enumerate(shape)])
        )
        if name in ("any", "all"):
            for dim in dims:
                piece = getattr(piece, name)(dim, keepdim=True)
        elif name == "count_nonzero":
            piece = (piece != 0).sum(dims, keepdim=True) if dims else (piece != 0).long()
        elif dims:
            piece = piece.sum(dims, keepdim=True)
        pieces.append(piece)
    whole = pieces[0] if len(pieces) == 1 else _torch.cat(pieces, along)
    if along in dims and len(pieces) > 1:
        whole = getattr(whole, name if name in ("any", "all") else "sum")(along, keepdim=True)
    if name in ("any", "all"):
        return whole.bool()
    return whole * times / total if name == "mean" else whole * times


def positions(value):
    """Of the elements that are not zero: a vector for each dimension. None: not known from the structure."""
    if not value.hot or not value.numel():
        return None
    found = _indices_and_classes(*value.checked())
    if found is None:
        return None
    indices, classes, dim, least = found
    if dim is None:
        return _unravelled(_run(indices, least), indices.shape)
    size = classes.shape[dim]
    if any(each != dim and length > 1 and not indices.stride(each) for each, length in enumerate(indices.shape)):
        return None
    indices = indices.select(dim, 0)
    inside = (indices >= least) & (indices < least + size)
    chosen = (indices.long() - least)[inside]
    places = list(inside.nonzero(as_tuple=True))
    order = chosen.argsort(stable=True)
    for each in reversed(places[:dim]):  # sorted by the dimensions before the classes', then by class, then as they were
        order = order[each[order].argsort(stable=True)]
    places.insert(dim, chosen)
    return [place[order] for place in places]


def _unravelled(flat, shape):
    found = []
    for size in reversed(shape):
        found.append(flat % size)
        flat = flat // size
    return found[::-1]


def _run(indices, number):
    """The places of `number` in the flattened indices: a run of the sorted ones, which are kept for the other numbers."""
    key = (indices.data_ptr(), indices.shape, indices.stride(), indices._version)
    found = _runs.get(key)
    if found is None:
        flat = indices.reshape(-1)
        least, most = (int(one) for one in flat.aminmax())
        if most - least >= 1 << 15:
            return (flat == number).nonzero().squeeze(1)
        near = (flat - least).to(_torch.int16)
        ends = _torch.bincount(near.int()).cumsum(0)
        while len(_runs) > 3:
            del _runs[next(iter(_runs))]
        found = _runs[key] = indices, near.sort(stable=True).indices, least, [0, *ends.tolist()]
    _, order, least, ends = found
    return order[ends[number - least] : ends[number - least + 1]] if 0 <= number - least < len(ends) - 1 else order[:0]
