"""One page about this machine's Vulkan and vkcat on it, for a bug report."""

from vkcat.doctor.checks import Check, check_device, checks_of
from vkcat.doctor.surroundings import Surroundings, surroundings

__all__ = ["Check", "Surroundings", "check_device", "checks_of", "surroundings"]
