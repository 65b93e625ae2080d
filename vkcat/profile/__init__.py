"""Where a step's time goes: kernels, and what dispatch, submit and wait cost around them."""

from vkcat.profile.floors import Floors
from vkcat.profile.measure import Measurement, measure
from vkcat.profile.spread import Spread

__all__ = ["Floors", "Measurement", "Spread", "measure"]
