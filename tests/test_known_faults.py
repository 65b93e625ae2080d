"""Kinds of fault that others met in Vulkan inference, and the tests that show each: this is their index."""

from __future__ import annotations

import ast

import pytest
from conftest import ROOT

KINDS = {
    "chained dependent dispatches without a barrier (KomputeProject/kompute#196)": [
        "test_race::test_a_dropped_barrier_is_reported_and_the_recorded_form_is_not",
        "test_plan::test_barriers_order_every_conflict_and_no_other",
    ],
    "integer push constants read as floats (KomputeProject/kompute#425)": [
        "test_known_faults_shaders::test_push_and_specialisation_constants_arrive_bit_by_bit",
        "test_ops::test_case",
    ],
    "strided, Fortran-ordered or byte-swapped arrays": [
        "test_known_faults_arrays::test_gru_of_torch",
        "test_known_faults_arrays::test_a_view_taken_for_its_memory_is_found",
        "test_gru::test_strided_fortran_and_byte_swapped_arrays",
    ],
    "input width different from hidden (Tencent/ncnn#3352)": [
        "test_gru::test_torch",
        "test_mutants::test_mutant_is_caught",
        "test_schedules::test_gru_is_bit_identical_in_every_schedule_and_backend",
    ],
    "batch first with batch 1 and sequence 1 (pytorch/pytorch#83722)": [
        "test_gru::test_batch_first_of_one_step_or_stream",
        "test_gru::test_batch_first_and_unbatched",
    ],
    "first softmax block fully masked (pytorch/pytorch#130014)": [
        "test_known_faults_shaders::test_blocks_of_which_all_is_masked",
        "test_torch_ops::test_ring_attention",
    ],
    "garbage surviving a cache clear": [
        "test_session::test_reset_begins_a_stream_anew",
        "test_session::test_every_node_of_every_step",
    ],
    "a fusion that assumes one input (ggml-org/llama.cpp#14545)": [
        "test_known_faults_fusion::test_what_is_joined_gives_the_numbers_of_its_parts",
        "test_fusion::test_what_another_reads_stays",
    ],
    "equal logits giving an out-of-range expert (ggml-org/llama.cpp#18585)": [
        "test_ops::test_case",
        "test_mutants::test_mutant_is_caught",
    ],
    "lane index taken for local index in 2-D groups": [
        "test_known_faults_shaders::test_the_lane_of_a_subgroup_taken_for_that_of_the_workgroup_is_found",
        "test_known_faults_shaders::test_workgroups_of_rows",
    ],
    "subgroups smaller than 16 (ggml-org/llama.cpp#10809)": ["test_subgroups::test_any_subgroups"],
    "partial subgroups (google/uVkCompute#43)": ["test_subgroups::test_any_subgroups"],
    "512-wide groups on a 256-wide device (ollama/ollama#15877)": [
        "test_known_faults_limits::test_groups_of_512_run_where_a_device_has_them_and_are_refused_where_not",
    ],
    "more than 65,535 groups (ggml-org/llama.cpp#19965)": [
        "test_known_faults_limits::test_as_many_workgroups_as_there_are_are_all_run_and_one_more_is_refused",
        "test_device::test_an_executor_that_cannot_be_made_leaves_nothing",
    ],
    "a 32-bit index into expert weights (ROCm/aiter#4343)": [
        "test_known_faults_limits::test_expert_weights_that_32_bits_cannot_count_are_refused",
        "test_known_faults_limits::test_nothing_is_allocated_of_what_is_too_large",
    ],
    "a submit budget checked after it was overshot (ggml-org/llama.cpp#26371)": [
        "test_known_faults_budget::test_no_submission_of_steps_is_foreseen_to_pass_the_limit",
        "test_known_faults_budget::test_no_piece_of_a_sequence_is_foreseen_to_pass_the_limit",
    ],
    "a CPU chosen silently, or an integrated GPU that cannot be chosen (ggml-org/llama.cpp#14099)": [
        "test_device::test_order",
        "test_device::test_by_index_and_part_of_a_name",
        "test_device::test_two_devices_of_one_name_are_told_apart_by_index",
        "test_device::test_a_cpu_that_nobody_asked_for_is_told_of",
    ],
    "sums in float16 (ggml-org/llama.cpp#13607)": [
        "test_mutants::test_mutant_of_the_packed_weights_is_caught",
        "test_session::test_every_node_in_float16",
    ],
    "a width that is no multiple of the tile (ggml-org/llama.cpp#17281)": [
        "test_tiling::test_every_tiling",
        "test_ops::test_cases_have_awkward_sizes",
    ],
    "the limit and the limit plus one": [
        "test_known_faults_limits::test_what_is_at_a_limit_is_taken_and_one_more_is_not",
        "test_known_faults_limits::test_every_limit_is_tested",
        "test_known_faults_limits::test_what_fits_a_shaders_arrays_is_right_and_one_more_is_refused",
    ],
    "negative, zero or reordered timestamps (Wumpf/wgpu-profiler#64)": [
        "test_known_faults_timestamps::test_timestamps_that_cannot_be_are_refused",
        "test_device::test_elapsed_over_wraps_and_garbage_bits",
    ],
}


def _tests(file: str) -> set[str]:
    tree = ast.parse((ROOT / "tests" / f"{file}.py").read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("kind", KINDS)
def test_what_shows_a_kind_is_there(kind: str) -> None:
    for name in KINDS[kind]:
        file, _, test = name.partition("::")
        assert test in _tests(file), f"{kind}: no {name}"


def test_every_kind_is_there() -> None:
    assert len(KINDS) == 21
    assert all(KINDS.values())
