"""An array that counts the floating-point operations NumPy does on it, by the rule of `vkcat.kernel.Kernel`."""

from __future__ import annotations

from typing import Any

import numpy as np

ONE_EACH = {"add", "subtract", "multiply", "divide", "power", "square", "exp", "log", "sqrt", "tanh", "logaddexp"}
ONE_EACH |= {"maximum", "minimum"}
NONE = {"negative", "absolute", "isnan", "isfinite", "isinf", "equal", "not_equal", "greater", "less"}
REDUCTIONS = {"add", "maximum", "minimum"}
MOVES = {"where", "split", "array_split", "concatenate", "take_along_axis", "zeros_like", "copy", "expand_dims", "size"}
MADE_OF_OTHERS = {"mean", "sum"}


class Counted(np.ndarray[Any, Any]):
    """float64 whose every result is counted too. What it does not know fails, so that nothing goes uncounted."""

    total = 0

    def __array_ufunc__(self, ufunc: Any, method: str, *given: Any, **options: Any) -> Any:
        plain = [_plain(one) for one in given]
        if "out" in options:
            options["out"] = tuple(_plain(one) for one in options["out"])
        result = getattr(ufunc, method)(*plain, **options)
        if any(np.asarray(one).dtype == np.float64 for one in plain):
            Counted.total += _operations(ufunc.__name__, method, plain, result)
        return _counted(result)

    def __array_function__(self, function: Any, types: Any, given: Any, options: Any) -> Any:
        name = function.__name__
        if name in MADE_OF_OTHERS:
            return super().__array_function__(function, types, given, options)
        plain = [[_plain(part) for part in one] if isinstance(one, (list, tuple)) else _plain(one) for one in given]
        if name == "einsum":
            lengths = dict(zip("".join(plain[0].split("->")[0].split(",")), _shape(plain[1:]), strict=True))
            Counted.total += 2 * int(np.prod(list(lengths.values())))
        elif name == "argmax":
            Counted.total += plain[0].size if plain[0].dtype == np.float64 else 0
        else:
            assert name in MOVES | {"argsort"}, f"{name} is not counted"
        return _counted(function(*plain, **options))


def counted(array: Any) -> Any:
    """A float64 array as one that counts; any other as it is."""
    return array.view(Counted) if array.dtype == np.float64 else array


def _shape(arrays: list[Any]) -> list[int]:
    return [length for array in arrays for length in array.shape]


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, Counted) else value


def _counted(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_counted(one) for one in value]
    return np.asanyarray(value).view(Counted) if np.asanyarray(value).dtype == np.float64 else value


def _operations(name: str, method: str, given: list[Any], result: Any) -> int:
    if name == "matmul":
        return 2 * int(np.size(result)) * int(given[0].shape[-1])
    if method == "reduce":
        assert name in REDUCTIONS, f"{name}.reduce is not counted"
        return int(np.size(given[0]))
    assert method == "__call__", f"{name}.{method} is not counted"
    assert name in ONE_EACH | NONE, f"{name} is not counted"
    return int(np.size(result)) if name in ONE_EACH else 0
