"""Is this shader right on this driver? Every op's cases, and a model's steps, against the float64 reference."""

from vkcat.validate.model import validate_model
from vkcat.validate.ops import validate_op
from vkcat.validate.result import Result

__all__ = ["Result", "validate_model", "validate_op"]
