"""Unknown scores with a mask: a router keeps the experts of the best groups, a policy the allowed actions. Indices of the largest scores are
then drawn among those that the mask keeps."""


def _names(text):
    return frozenset(text.split())


_FILLS = _names("masked_fill masked_fill_ where")
_SHAPED = _names("view reshape flatten unflatten squeeze unsqueeze transpose permute movedim")
_SAME = _names("softmax log_softmax contiguous clone detach to float half bfloat16 double type")
NAMES = _FILLS | _SHAPED | _SAME
LARGEST = _names("topk argmax max multinomial")


def remaining(name, args, kwargs, mask_of, known, again):
    """True for each score of a result that its mask keeps; None: no mask. `mask_of(tensor)`: the same for an argument, `known(tensor)`: an
    argument's values, `again()`: the same call with the argument's mask."""
    if name not in _FILLS:
        earlier = mask_of(args[0])
        return earlier if earlier is None or name in _SAME else again()
    if len(args) + len(kwargs) != 3:
        return None
    places = ("condition", "input", "other") if name == "where" else ("input", "mask", "value")
    given = dict(zip(places, args)) | kwargs
    if name == "where":
        scores, other = given["input"], given["other"]
        masked = known(given["condition"]).bool()
        if _never_largest(scores, known):  # where(mask, -inf, scores)
            scores = other
        elif _never_largest(other, known):
            masked = ~masked
        else:
            return None
    else:
        scores, masked = given["input"], known(given["mask"]).bool()
        if not _never_largest(given["value"], known):
            return None
    earlier = mask_of(scores)
    return ~masked.expand(scores.shape) if earlier is None else earlier & ~masked


def _never_largest(value, known):
    """Zero too: routers fill scores with it that are positive otherwise."""
    if isinstance(value, (int, float)):
        return value <= 0
    return value.numel() == 1 and bool((value if not value.is_cuda else known(value)) <= 0)
