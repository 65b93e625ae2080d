"""The scheduler: from graphs to ordered dispatches with offsets and barriers, before any device is involved."""

from vkcat.plan.layout import BufferSpec, Packing, Region
from vkcat.plan.panels import PANEL, paneled
from vkcat.plan.schedule import Plan, PlannedDispatch, Step, schedule

__all__ = ["PANEL", "BufferSpec", "Packing", "Plan", "PlannedDispatch", "Region", "Step", "paneled", "schedule"]
