"""The instance and the physical devices behind it."""

from __future__ import annotations

from typing import Any

from vkcat.device.interface import DeviceInfo, Limits
from vkcat.device.vulkan.api import api, calling
from vkcat.errors import DeviceError

PORTABILITY = "VK_KHR_portability_enumeration"
ENUMERATE_PORTABILITY = 1
_KINDS = {1: "integrated", 2: "discrete", 3: "virtual", 4: "cpu"}


def _version(packed: int) -> tuple[int, int, int]:
    return (packed >> 22) & 0x7F, (packed >> 12) & 0x3FF, packed & 0xFFF


def loader_version() -> str:
    """The highest Vulkan version the loader knows, or why there is none."""
    try:
        return ".".join(map(str, _version(api().vkEnumerateInstanceVersion())))
    except DeviceError as error:
        return str(error)


def create_instance() -> Any:
    """A VkInstance for Vulkan 1.1. Raises `DeviceError` when the loader is older or there is no driver."""
    vk = api()
    application = vk.VkApplicationInfo(
        pApplicationName="vkcat",
        applicationVersion=0,
        pEngineName="vkcat",
        engineVersion=0,
        apiVersion=vk.VK_MAKE_VERSION(1, 1, 0),
    )
    # MoltenVK's devices are shown only to those who ask for them.
    extensions, flags = [], 0
    if PORTABILITY in {extension.extensionName for extension in vk.vkEnumerateInstanceExtensionProperties(None)}:
        extensions, flags = [PORTABILITY], ENUMERATE_PORTABILITY
    create = vk.VkInstanceCreateInfo(
        flags=flags,
        pApplicationInfo=application,
        enabledExtensionCount=len(extensions),
        ppEnabledExtensionNames=extensions or None,
    )
    with calling("vkCreateInstance"):
        try:
            return vk.vkCreateInstance(create, None)
        except (vk.VkErrorIncompatibleDriver, vk.VkErrorInitializationFailed) as error:
            raise DeviceError(
                f"no Vulkan driver: expected one for Vulkan 1.1, got {type(error).__name__} from the loader;"
                " install one (Debian: mesa-vulkan-drivers)"
            ) from error
        except vk.VkErrorLayerNotPresent as error:
            raise DeviceError(
                "a layer named in VK_INSTANCE_LAYERS is not installed; unset it or install the layer"
                " (Debian: vulkan-validationlayers)"
            ) from error


def physical_devices(instance: Any) -> list[Any]:
    vk = api()
    with calling("vkEnumeratePhysicalDevices"):
        try:
            return list(vk.vkEnumeratePhysicalDevices(instance))
        except vk.VkErrorInitializationFailed:
            return []


def _compute_queue_family(physical: Any) -> tuple[int | None, int]:
    """Index of a queue family with compute, and its timestamp bits.

    A family with graphics is not avoided: it is the one every device has and the one that Kompute takes.
    """
    vk = api()
    for index, family in enumerate(vk.vkGetPhysicalDeviceQueueFamilyProperties(physical)):
        if family.queueFlags & vk.VK_QUEUE_COMPUTE_BIT and family.queueCount > 0:
            return index, int(family.timestampValidBits)
    return None, 0


def _driver(physical: Any, version: tuple[int, int, int], fallback: int) -> str:
    vk = api()
    if version < (1, 1, 0):
        return f"version {fallback:#x}"
    driver = vk.VkPhysicalDeviceDriverProperties()
    properties = vk.VkPhysicalDeviceProperties2(pNext=driver)
    vk.lib.vkGetPhysicalDeviceProperties2(physical, vk.ffi.addressof(properties))
    text = vk.ffi.string(driver.driverName).decode("utf-8", "replace")
    detail = vk.ffi.string(driver.driverInfo).decode("utf-8", "replace")
    return f"{text} {detail}".strip() or f"version {fallback:#x}"


def _subgroup(physical: Any, version: tuple[int, int, int]) -> tuple[int, bool]:
    """The subgroup's size, and whether compute shaders have arithmetic in it."""
    vk = api()
    if version < (1, 1, 0):
        return 0, False
    subgroup = vk.VkPhysicalDeviceSubgroupProperties()
    properties = vk.VkPhysicalDeviceProperties2(pNext=subgroup)
    vk.lib.vkGetPhysicalDeviceProperties2(physical, vk.ffi.addressof(properties))
    in_compute = subgroup.supportedStages & vk.VK_SHADER_STAGE_COMPUTE_BIT
    arithmetic = subgroup.supportedOperations & vk.VK_SUBGROUP_FEATURE_ARITHMETIC_BIT
    return int(subgroup.subgroupSize), bool(in_compute and arithmetic)


def _float16(physical: Any, version: tuple[int, int, int]) -> bool:
    vk = api()
    if version < (1, 1, 0):
        return False
    names = {extension.extensionName for extension in vk.vkEnumerateDeviceExtensionProperties(physical, None)}
    if version < (1, 2, 0) and "VK_KHR_shader_float16_int8" not in names:
        return False
    half = vk.VkPhysicalDeviceShaderFloat16Int8Features()
    features = vk.VkPhysicalDeviceFeatures2(pNext=half)
    vk.lib.vkGetPhysicalDeviceFeatures2(physical, vk.ffi.addressof(features))
    return bool(half.shaderFloat16)


def _limits(physical: Any, version: tuple[int, int, int], limits: Any) -> Limits:
    vk = api()
    maintenance = vk.VkPhysicalDeviceMaintenance3Properties()
    if version >= (1, 1, 0):
        properties = vk.VkPhysicalDeviceProperties2(pNext=maintenance)
        vk.lib.vkGetPhysicalDeviceProperties2(physical, vk.ffi.addressof(properties))
    x, y, z = limits.maxComputeWorkGroupCount
    sx, sy, sz = limits.maxComputeWorkGroupSize
    return Limits(
        max_storage_buffer_range=int(limits.maxStorageBufferRange),
        max_memory_allocation_size=int(maintenance.maxMemoryAllocationSize) or 1 << 30,
        min_storage_buffer_offset_alignment=int(limits.minStorageBufferOffsetAlignment),
        max_compute_work_group_count=(int(x), int(y), int(z)),
        max_compute_work_group_size=(int(sx), int(sy), int(sz)),
        max_compute_work_group_invocations=int(limits.maxComputeWorkGroupInvocations),
        max_compute_shared_memory_size=int(limits.maxComputeSharedMemorySize),
        max_push_constants_size=int(limits.maxPushConstantsSize),
        max_per_stage_descriptor_storage_buffers=int(limits.maxPerStageDescriptorStorageBuffers),
    )


def describe(physical: Any, index: int) -> DeviceInfo:
    """Everything vkcat asks of a physical device."""
    vk = api()
    properties = vk.vkGetPhysicalDeviceProperties(physical)
    version = _version(properties.apiVersion)
    family, bits = _compute_queue_family(physical)
    subgroup_size, subgroup_arithmetic = _subgroup(physical, version)
    return DeviceInfo(
        index=index,
        name=str(properties.deviceName),
        kind=_KINDS.get(int(properties.deviceType), "other"),
        api_version=version,
        driver=_driver(physical, version, properties.driverVersion),
        subgroup_size=subgroup_size,
        subgroup_arithmetic=subgroup_arithmetic,
        float16=_float16(physical, version),
        timestamp_bits=bits,
        timestamp_period=float(properties.limits.timestampPeriod),
        compute_queue_family=family,
        limits=_limits(physical, version, properties.limits),
    )


def devices() -> list[DeviceInfo]:
    """All physical devices, in the loader's order. Raises `DeviceError` without a loader or a driver."""
    instance = create_instance()
    try:
        with calling("querying devices"):
            return [describe(physical, index) for index, physical in enumerate(physical_devices(instance))]
    finally:
        api().vkDestroyInstance(instance, None)
