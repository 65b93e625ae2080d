"""The `vulkan` backend: the loader through cffi, real barriers, timestamps that are reset before use."""

from vkcat.device.vulkan.device import VulkanDevice, open_device
from vkcat.device.vulkan.instance import devices, loader_version

__all__ = ["VulkanDevice", "devices", "loader_version", "open_device"]
