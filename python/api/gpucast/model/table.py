def print_table(*_):
    raise NotImplementedError
