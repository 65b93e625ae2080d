"""Each op's cases catch a wrong shader: at least two faults an op, made in the shader's own text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from vkcat import glsl
from vkcat.device.interface import Device
from vkcat.ops import OPS
from vkcat.shader import SOURCES, Shader, load, replacements
from vkcat.spirv import reflect
from vkcat.tiling import Tiling
from vkcat.validate.ops import validate_op

MUTANTS = [
    ("embedding", "off_by_one_row", "min(ids[b], V - 1u)", "min(ids[b] + 1u, V - 1u)"),
    ("embedding", "missing_tail", "if (d >= D || b >= B) return;", "if (d >= (D & ~3u) || b >= B) return;"),
    ("embedding", "dense_rows", "y[b * pitch(D) + d]", "y[b * D + d]"),
    ("embedding", "writes_into_the_padding", "if (d >= D ||", "if (d >= pitch(D) ||"),
    ("linear", "dropped_bias", "sum + bias[n]", "sum"),
    ("linear", "missing_tail", "k < row; k += SPLIT", "k < width >> 2; k += SPLIT"),
    (
        "linear",
        "padding_read",
        "head(unpacked(MATRIX[matrix_at(ROW(r), row, k)]), n)",
        "unpacked(MATRIX[matrix_at(ROW(r), row, k)])",
    ),
    ("linear", "last_stream_not_written", "first_stream() + t < B;", "first_stream() + t + 1u < B;"),
    ("gru_cell", "swapped_gates", "(1.0 - z) * n + z * before", "z * n + (1.0 - z) * before"),
    ("gru_cell", "hidden_for_the_input", "has_units() ? I : 0u", "has_units() ? H : 0u"),
    ("gru_cell", "input_for_hidden", "has_units() ? H : 0u", "has_units() ? I : 0u"),
    ("gru_cell", "rows_of_the_other_width", "pitch4(I) + k]", "pitch4(H) + k]"),
    ("gru_cell", "dropped_bias", "b_hh[2u * H + j]);", "0.0);"),
    ("gru_cell", "reset_before", "sigmoid(to_r) * from_state", "from_state"),
    ("gru_cell", "hold_ignored", "modes[t] == HOLD ? before :", "false ? before :"),
    ("gru_cell", "restart_ignored", "modes[t] == RESTART ? vec4(0.0)", "false ? vec4(0.0)"),
    ("gru_cell", "wrong_gate_of_the_state", "(r % 3u == 2u ? 3u : r % 3u)", "(r % 3u)"),
    ("gru_gates", "swapped_gates", "rh[b * pitch(H) + j] = r * before", "rh[b * pitch(H) + j] = (1.0 - r) * before"),
    ("gru_gates", "dropped_bias", "sum_r + b_ih[j] + b_hh[j]", "sum_r + b_ih[j]"),
    ("gru_gates", "restart_ignored", "bool fresh = mode[b] == RESTART;", "bool fresh = false;"),
    ("gru_candidate", "dropped_bias", "b_ih[n_row] + b_hh[n_row]", "b_ih[n_row]"),
    ("gru_candidate", "missing_tail", "if (tail > 0u) {", "if (false) {"),
    ("gru_candidate", "hold_ignored", "mode[b] == HOLD ? before : after", "after"),
    ("gru_recurrence", "row_of_a_stream_alone", "next_state(r, s, now * B + b)", "next_state(r, s, b * B + now)"),
    ("gru_recurrence", "dropped_bias", " + b_hh[2u * H + j];", ";"),
    ("gru_recurrence", "restarts_at_each_step", "bool fresh = now == 0u && mode", "bool fresh = mode"),
    ("gru_recurrence", "lengths_ignored", "mode != HOLD && t < length", "mode != HOLD"),
    (
        "gru_recurrence",
        "gates_of_another_order",
        "x[given] + to_r, x[given + H] + to_z",
        "x[given + H] + to_r, x[given] + to_z",
    ),
    ("gru_sequence", "one_state_alone", "reading = (now & 1u) * MOST;", "reading = 0u;"),
    ("gru_sequence", "first_units_only", "pass < H; pass +=", "pass < 1u; pass +="),
    ("gru_sequence", "one_step_too_few", "now < R / B; ++now", "now + 1u < R / B; ++now"),
    ("gru_sequence", "lengths_ignored", "mode != HOLD && t < length", "mode != HOLD"),
    ("gru_sequence", "hold_ignored", "mode != HOLD && t < length", "t < length"),
    ("ring_sequence", "looks_ahead", "min(before, W) + now + 1u, W", "min(before, W) + R / B, W"),
    ("ring_sequence", "the_sequence_alone", "if (age <= now) return", "if (true) return"),
    ("ring_sequence", "slot_off_by_one", "uint back = age - now - 1u;", "uint back = age - now;"),
    ("ring_sequence", "window_ignored", "+ now + 1u, W) : 0u", "+ now + 1u, W + 1u) : 0u"),
    ("ring_sequence", "neighbouring_stream", "(row - age * B)", "(row - age)"),
    ("ring_extend", "slot_off_by_one", "(before % W + now) % W)", "(before % W + now + 1u) % W)"),
    ("ring_extend", "the_first_win", "steps - now <= W", "now < W"),
    ("ring_extend", "count_overflows", "count < 2u * W ? count : W + count % W", "count"),
    ("ring_extend", "lengths_ignored", "rows_read(mode[b], lengths[b], R / B)", "R / B"),
    ("last_row", "the_last_of_all", "max(min(lengths[b], R / B), 1u)", "max(R / B, 1u)"),
    ("last_row", "rows_of_streams", "(last * B + b)", "(b * (R / B) + last)"),
    ("argmax", "tie_to_the_highest", "one.y < other.y", "one.y > other.y"),
    ("argmax", "missing_tail", "v < V; v +=", "v < (V & ~3u); v +="),
    ("argmax", "nan_wins", "if (is_nan(x)) return 0u;", "if (is_nan(x)) return 0xFFFFFFFFu;"),
    ("modulation", "scale_without_one", "(1.0 + film[row + d])", "film[row + d]"),
    ("modulation", "swapped_halves", "+ film[row + D + d]", "+ film[row + d]"),
    ("modulation", "dense_rows", "b * pitch(2u * D)", "b * 2u * D"),
    ("ring_write", "slot_off_by_one", "count % W)", "(count + 1u) % W)"),
    ("ring_write", "hold_ignored", "if (mode[b] != HOLD) {", "if (true) {"),
    ("ring_write", "count_overflows", "count + 1u < 2u * W ? count + 1u : W", "count + 1u"),
    ("ring_write", "swapped_rings", "v_ring[at] = v[b", "v_ring[at] = k[b"),
    ("ring_attention", "unscaled", "scores[r] * scale", "scores[r]"),
    ("ring_attention", "slot_off_by_one", "newest + W - age;", "newest + W - age - 1u;"),
    ("ring_attention", "dropped_slope", "- slope * float(age)", ""),
    ("ring_attention", "whole_ring", "attend(0u, min(t[b], W),", "attend(0u, W,"),
    (
        "ring_attention",
        "first_tile_only",
        "start < count; start += LANES * ROWS",
        "start < min(count, LANES); start += LANES * ROWS",
    ),
    ("ring_attention", "wrong_group", "head_index / (N / (C / (Q / N)))", "head_index % (C / (Q / N))"),
    ("ring_attention", "no_shrink", "d - 1u)] * shrink;", "d - 1u)];"),
    ("ring_attention", "no_shrink_of_four", "FOUR_OF(answers, at[r]) * shrink", "FOUR_OF(answers, at[r])"),
    ("short_conv", "taps_reversed", "w[c * pitch(L) + j] * given", "w[c * pitch(L) + M - 1u - j] * given"),
    ("short_conv", "no_swish", "sum * sigmoid(sum)", "sum"),
    ("short_conv", "hold_ignored", "mode[b] == HOLD ? 0u : 1u", "1u"),
    ("short_conv", "restart_ignored", "bool fresh = mode[b] == RESTART;", "bool fresh = false;"),
    ("short_conv", "no_shift", "given(b, steps + j, c, fresh)", "given(b, j, c, fresh)"),
    ("conv_sequence", "row_of_another_stream", "((i - M) * B + b)", "(b * (R / B) + i - M)"),
    ("conv_sequence", "history_one_older", "(b * M + i) * pitch(C)", "(b * M + max(i, 1u) - 1u) * pitch(C)"),
    ("conv_sequence", "taps_reversed", "w[c * pitch(L) + j] * given", "w[c * pitch(L) + M - 1u - j] * given"),
    ("conv_sequence", "restart_ignored", "mode[b] == RESTART && steps > 0u", "false"),
    ("conv_sequence", "restarts_without_a_step", "mode[b] == RESTART && steps > 0u", "mode[b] == RESTART"),
    ("conv_sequence", "keeps_the_last_rows", "keep_history(b, steps, c, fresh)", "keep_history(b, R / B, c, fresh)"),
    ("conv_sequence", "hold_ignored", "rows_read(mode[b], lengths[b], R / B)", "min(lengths[b], R / B)"),
    ("delta_memory", "no_decay_before_recall", "+= keep[i] * s * key[i]", "+= s * key[i]"),
    (
        "delta_memory",
        "writes_without_correction",
        "(values(at, place[r]) - across4(recalled[r]))",
        "values(at, place[r])",
    ),
    ("delta_memory", "unscaled_query", "(norms.x * sqrt(float(width)))", "norms.x"),
    ("delta_memory", "wrong_decay", "bounded != 0.0)", "bounded == 0.0)"),
    ("delta_memory", "hold_ignored", "if (!held) s = keep", "s = keep"),
    (
        "delta_memory",
        "writes_padding",
        "head_on(s, V - 4u * place[r], before)",
        "s",
    ),
    ("delta_memory", "first_columns_alone", "pass < pitch4(V)", "pass == 0u"),
    ("delta_memory", "restart_ignored", "bool fresh = mode[b] == RESTART;", "bool fresh = false;"),
    ("delta_memory", "answers_before_the_write", "answers[r] += s * query[i];", "answers[r] += before * query[i];"),
    ("delta_sequence", "restart_ignored", "bool fresh = mode[b] == RESTART && now == 0u;", "bool fresh = false;"),
    ("delta_sequence", "restarts_at_each_step", "mode[b] == RESTART && now == 0u", "mode[b] == RESTART"),
    ("delta_sequence", "reads_past_the_end", "rows_read(mode[b], lengths[b], R / B)", "R / B"),
    ("delta_sequence", "strength_of_the_first_step", "beta[row * pitch(N) + head]", "beta[b * pitch(N) + head]"),
    ("delta_sequence", "first_step_again", "share_channels(row * pitch(C)", "share_channels(b * pitch(C)"),
    (
        "delta_sequence",
        "writes_without_correction",
        "(values(at, place[r]) - across4(recalled[r]))",
        "values(at, place[r])",
    ),
    ("delta_sequence", "answers_before_the_write", "answers[r] += s * query[i];", "answers[r] += before * query[i];"),
    ("gated_norm", "dropped_gate", "sigmoid(gate[at + i]) *", "1.0 *"),
    ("gated_norm", "normed_over_all_heads", "workgroup_sum(sum) / float(V)", "workgroup_sum(sum) / float(P)"),
    ("gated_norm", "gain_of_the_first", "gain[i]", "gain[0]"),
    ("moe_route", "tie_to_the_higher", "key > best_key", "key >= best_key"),
    ("moe_route", "biased_weight", "best_score = value;", "best_score = value + bias[e];"),
    ("moe_route", "bias_ignored", "ordered(value + bias[e])", "ordered(value)"),
    ("moe_route", "raw_weights", "S > 1u ? scores[s] / (sum + 1e-20) : scores[s]", "scores[s]"),
    ("moe_route", "one_becomes_one", "S > 1u ?", "S > 0u ?"),
    ("moe_route", "same_expert_twice", "taken || chosen[j] == e", "taken"),
    ("moe_expert", "swapped_halves", "gated(gate, up,", "gated(up, gate,"),
    ("moe_expert", "first_expert", "min(index[b * pitch(S) + s], E - 1u)", "0u"),
    ("moe_expert", "padding_multiplied", "min(width - 4u * k, 4u)", "4u"),
    ("moe_expert", "first_outputs_alone", "pass < D;", "pass == 0u;"),
    ("moe_expert", "no_situ", "situ != 0.0)", "false)"),
    ("moe_combine", "unweighted", "weight[b * pitch(S) + s] * y", "y"),
    ("moe_combine", "last_choice_dropped", "s < S; ++s) sum", "s + 1u < max(S, 2u); ++s) sum"),
    ("moe_capacity", "one_too_many", "float(taken) < capacity", "float(taken) <= capacity"),
    ("moe_capacity", "later_tokens_first", "other < b; ++other", "other + b < B; ++other"),
    ("moe_capacity", "held_ones_take_room", "if (mode[other] == HOLD) continue;", ""),
    ("moe_capacity", "held_ones_are_dropped", "mode[b] == HOLD || ", ""),
    ("moe_capacity", "not_counted", "lost += fits ? 0u : 1u", "lost += 0u"),
    ("mlp", "swapped_halves", "gated(gate, up,", "gated(up, gate,"),
    ("mlp", "missing_tail", "k < row; k += SPLIT", "k < width >> 2; k += SPLIT"),
    ("mlp", "no_situ", "situ != 0.0)", "false)"),
    ("add", "one_side", "a[at] + b[at]", "a[at]"),
    ("add", "missing_tail", "if (d >= D ||", "if (d >= (D & ~3u) ||"),
    ("silu", "plain_sigmoid", "x[at] * sigmoid(x[at])", "sigmoid(x[at])"),
    ("silu", "dense_rows", "b * pitch(D) + d", "b * D + d"),
    ("depth_dwa", "without_the_newest", "float sum = alpha[last] * now", "float sum = 0.0"),
    ("depth_dwa", "all_sources", "j < last; ++j", "j < J - 1u; ++j"),
    ("depth_dwa", "not_kept", "sources[row + last * pitch(D)] = now;", ""),
    ("depth_attnres", "all_sources", "uint last = uint(at);", "uint last = J - 1u;"),
    ("depth_attnres", "always_fresh", "fresh != 0.0 ?", "true ?"),
    ("depth_attnres", "last_source_not_weighed", "weigh(last + 1u, greatest)", "weigh(last, greatest)"),
    ("depth_attnres", "scores_not_normed", "sum.y / sqrt(sum.x / float(D) + eps)", "sum.y"),
    (
        "depth_attnres",
        "gate_open",
        "(1.0 - share) * sum + share * (mixed(first, k, last + 1u) / total)",
        "mixed(first, k, last + 1u) / total",
    ),
    ("depth_attnres", "gate_closed", "(1.0 - share) * sum + share * (mixed(first, k, last + 1u) / total)", "sum"),
    ("patch_embedding", "first_patch", "uint p = min(position[r], P - 1u);", "uint p = 0u;"),
    ("patch_embedding", "rows_of_streams", "(r % B * P + p)", "(r / (R / B) * P + p)"),
    ("patch_embedding", "no_place", " + places[p * pitch(D) + d]", ""),
    ("patch_embedding", "missing_tail", "if (tail > 0u) {", "if (false) {"),
    ("sample", "top_k_ignored", "top_k[b] > 0u && top_k[b] < V", "false"),
    ("sample", "top_k_one_more", "<= k - above", "<= k + 1u - above"),
    ("sample", "all_of_a_tie", "key == last.x && v >= last.y", "false"),
    ("sample", "no_noise", " - log(exponential(word))", ""),
    ("sample", "temperature_ignored", "candidate / temperature[b]", "candidate"),
    ("sample", "one_word_for_four", "[v & 3u]", "[0]"),
    ("sample", "streams_alike", "uvec2(seed[b], stream[b])", "uvec2(seed[b], 0u)"),
    ("sample", "hold_ignored", "if (mode[b] == HOLD) return token[b];", ""),
    ("sample", "history_of_the_next", "step_number % M", "(step_number + 1u) % M"),
    ("sample", "restart_ignored", "mode[b] == RESTART ? 0u : position[b]", "position[b]"),
    ("activation_stats", "nan_is_a_number", "is_nan(value)", "false"),
    ("activation_stats", "mean_over_all", "float(finite))", "float(D))"),
    ("activation_stats", "signed_peak", "abs(value)", "value"),
    ("state_drift", "restart_ignored", "if (mode[b] != RESTART) change", "change"),
    ("state_drift", "hold_ignored", "mode[b] == HOLD ? 0.0 :", ""),
    ("state_drift", "sum_not_mean", "total / float(H)", "total"),
    ("decay_stats", "first_head", "a[i / width]", "a[0]"),
    ("decay_stats", "wrong_decay", "bounded != 0.0)", "bounded == 0.0)"),
    ("decay_stats", "sum_not_mean", "part.y / float(R)", "part.y"),
    ("moe_stats", "held_ones_count", "mode[b] != HOLD && ", ""),
    ("moe_stats", "shares_not_normed", "softmax != 0.0) / sum", "softmax != 0.0)"),
    ("moe_stats", "last_expert_forgotten", "if (i >= E) return;", "if (i + 1u >= E) return;"),
    ("rms_norm", "dropped_eps", "/ float(D) + eps)", "/ float(D))"),
    ("rms_norm", "sum_not_mean", "workgroup_sum(sum) / float(D)", "workgroup_sum(sum)"),
    ("rms_norm", "dropped_gain", "* scale * gain[d]", "* scale"),
    ("rms_norm", "missing_tail", "d < D; d += gl_WorkGroupSize.x) sum", "d < (D & ~3u); d += gl_WorkGroupSize.x) sum"),
    ("norm_linear", "unscaled", "scales[t] * sum + constant", "sum + constant"),
    ("norm_linear", "dropped_gain", "return x * gain;", "return x;"),
    ("norm_linear", "scaled_bias", "scales[t] * sum + constant", "scales[t] * (sum + constant)"),
    ("linear_add", "without_the_base", "base[at] + sum", "sum"),
    ("linear_add", "dropped_bias", "across(sums[r * TILE + t]) + constant", "across(sums[r * TILE + t])"),
    ("norm_qkv", "keys_as_values", "else add_values(width);", "else add_keys(width);"),
    ("norm_qkv", "unscaled", "scale * sum);", "sum);"),
    ("norm_qkv", "width_of_the_query", "uint N = which == 0u ? Q : C;", "uint N = Q;"),
    ("norm_mlp", "gate_unscaled", "float gate = scale *", "float gate ="),
    ("norm_mlp", "sum_not_mean", "/ float(width) + eps", "+ eps"),
    ("norm_gru_cell", "all_scaled", "scale_sums(t, norm_scale(t, I, eps))", "scale_sums(t, 1.0)"),
    ("norm_gru_cell", "hold_ignored", "modes[t] == HOLD ? before :", "false ? before :"),
    ("gru_layer", "normed_residual", "(j >> 2)][j & 3u] + next", "(j >> 2)][j & 3u] * gain[j >> 2][j & 3u] + next"),
    ("gru_layer", "no_residual", "x[stream(t, B) * pitch4(H) + (j >> 2)][j & 3u] + next", "next"),
    ("norm_film", "scale_without_one", "(1.0 + gamma)", "(0.0 + gamma)"),
    ("norm_film", "swapped_halves", "+ beta;", "+ gamma;"),
    (
        "norm_film",
        "missing_tail_of_squares",
        "d < D; d += gl_WorkGroupSize.x",
        "d < (D & ~3u); d += gl_WorkGroupSize.x",
    ),
    ("ring_step", "slot_off_by_one", "uint at = entry_of(before % W)", "uint at = entry_of((before + 1u) % W)"),
    ("ring_step", "own_step_twice", "attend(held ? 0u : 1u,", "attend(0u,"),
    ("ring_step", "held_as_if_stepped", "held ? age : age - 1u", "age - 1u"),
    ("ring_step", "first_head_only", "head_at = i_head * d;", "head_at = 0u;"),
    ("ring_step", "hold_ignored", "bool held = mode[b] == HOLD;", "bool held = false;"),
    ("ring_step", "unscaled", "vectors[at + first_row + r] = scale * ", "vectors[at + first_row + r] = "),
    ("sample_embedding", "next_row", "min(drawn_token(b), V - 1u)", "min(drawn_token(b) + 1u, V - 1u)"),
    ("sample_embedding", "hold_ignored", "if (mode[b] == HOLD) return token[b];", ""),
    ("sample_embedding", "missing_tail", "d < D; d += LANES", "d < (D & ~3u); d += LANES"),
]


def test_every_op_has_two_mutants() -> None:
    counts = Counter(op for op, *_ in MUTANTS)
    assert counts.keys() == OPS.keys()
    assert min(counts.values()) >= 2


def _mutated(op: str, folder: Path, old: str, new: str) -> Path:
    """The shader beside all includes in `folder`, with `old` made `new` in the shader, else in the includes."""
    texts = {path.name: path.read_text() for path in (SOURCES / "include").iterdir()}
    shader = (SOURCES / f"{op}.comp").read_text()
    if old in shader:
        shader = shader.replace(old, new)
    else:
        included = glsl.included(SOURCES / f"{op}.comp", SOURCES / "include")[1:]
        places = [path.name for path in included if old in texts[path.name]]
        assert len(places) == 1, "the mutant's place is gone: rewrite it"
        texts[places[0]] = texts[places[0]].replace(old, new)
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / f"{op}.comp").write_text(shader)
    return folder / f"{op}.comp"


def _compiled(op: str, file: Path, variant: str = "") -> Shader:
    code = glsl.compile_file(file, file.parent, variant)
    return Shader(f"{op}{variant}", code, reflect(code, op))


def _is_caught(device: Device, op: str, shaders: Mapping[str, Shader], tiling: Tiling | None = None) -> bool:
    """By the first case that does: a driver compiles a mutant anew for many a case, and the rest would tell no more."""
    return any(not result.passed for result in validate_op(device, OPS[op], shaders, tiling=tiling))


@pytest.mark.parametrize(
    ("op", "old", "new"), [pytest.param(op, old, new, id=f"{op}-{name}") for op, name, old, new in MUTANTS]
)
def test_mutant_is_caught(lavapipe: Device, tmp_path: Path, op: str, old: str, new: str) -> None:
    shader = _compiled(op, _mutated(op, tmp_path, old, new))
    assert _is_caught(lavapipe, op, {op: shader})


@pytest.mark.long
@pytest.mark.parametrize("op", OPS)
def test_unchanged_copy_passes(lavapipe: Device, op: str) -> None:
    copy = replacements(op, SOURCES / f"{op}.comp")
    problems = [result.problem for result in validate_op(lavapipe, OPS[op], copy)]
    assert not any(problems), problems


PACKED = [
    ("halves_of_the_first_word", "unpackHalf2x16(weight.y)", "unpackHalf2x16(weight.x)"),
    ("sums_start_anew", "vec2(sum + product, 0.0)", "vec2(product, 0.0)"),
    ("bits_as_floats", "unpackHalf2x16(weight.x)", "uintBitsToFloat(weight)"),
]


IN_SUBGROUPS = [
    ("rms_norm", "subgroups_of_32", "if (subgroupElect())", "if (gl_LocalInvocationID.x % 32u == 0u)"),
    ("rms_norm", "numbered_by_invocation", "VALUES[gl_SubgroupID]", "VALUES[gl_LocalInvocationID.x / 32u]"),
    ("rms_norm", "last_subgroup_dropped", "i < gl_NumSubgroups", "i + 1u < gl_NumSubgroups"),
    ("rms_norm", "own_value_alone", "subgroupAdd(a)", "a"),
    ("argmax", "read_before_all_have_written", "    barrier();\n    VALUE whole", "    VALUE whole"),
    ("argmax", "tie_to_the_highest", "subgroupMin(own.x", "subgroupMax(own.x"),
    ("argmax", "index_of_another", "own.x == greatest ?", "true ?"),
    ("sample", "written_before_all_have_read", "{\n    barrier();\n#ifdef", "{\n#ifdef"),
]


@pytest.mark.parametrize(
    ("op", "old", "new"), [pytest.param(op, old, new, id=f"{op}-{name}") for op, name, old, new in IN_SUBGROUPS]
)
def test_mutant_of_the_subgroups_is_caught(lavapipe: Device, tmp_path: Path, op: str, old: str, new: str) -> None:
    shader = _compiled(op, _mutated(op, tmp_path, old, new), glsl.SUBGROUP)
    # A workgroup of lavapipe's default is one subgroup.
    assert _is_caught(lavapipe, op, {shader.name: shader}, Tiling(lanes=64))


OF_NEIGHBOURS = [
    ("delta_memory", "last_part_dropped", "s < SPLIT; ++s) sum +=", "s + 1u < SPLIT; ++s) sum +="),
    ("delta_memory", "written_before_all_have_read", "    barrier();\n    parts_of_columns", "    parts_of_columns"),
    ("moe_expert", "own_part_alone", "across(sums[r])", "sums[r]"),
]


@pytest.mark.parametrize(
    ("op", "old", "new"), [pytest.param(op, old, new, id=f"{op}-{name}") for op, name, old, new in OF_NEIGHBOURS]
)
def test_mutant_of_shared_sums_is_caught(lavapipe: Device, tmp_path: Path, op: str, old: str, new: str) -> None:
    """Of a software driver's default nothing is shared. What 16 share is of two of its vectors."""
    shader = _compiled(op, _mutated(op, tmp_path, old, new))
    assert _is_caught(lavapipe, op, {shader.name: shader}, Tiling(rows=4, split=16, lanes=32))


# Nothing is fused where sums are rounded, and of that alone is this one.
ROUNDED_ALONE = "sums_start_anew"


@pytest.mark.parametrize(
    ("op", "old", "new"),
    [
        pytest.param(op, old, new, id=f"{op}-{name}", marks=[] if op == "linear" else pytest.mark.long)
        for op, kernel in OPS.items()
        if kernel.packed and not op.endswith("embedding")
        for name, old, new in PACKED
        if not (kernel.parts and name == ROUNDED_ALONE)
    ],
)
def test_mutant_of_the_packed_weights_is_caught(lavapipe: Device, tmp_path: Path, op: str, old: str, new: str) -> None:
    file = _mutated(op, tmp_path, old, new)
    variants = [_compiled(op, file, variant) for variant in glsl.PACKED]
    changed = {shader.name: shader for shader in variants if shader.code != load(shader.name).code}
    assert changed, "the mutant is none"
    assert _is_caught(lavapipe, op, changed)
