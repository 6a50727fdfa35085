// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_types.h"
#include "base/file_read.h"
#include <stdlib.h>
#include <string.h>

static const tsr_gguf_precision precisions[] = {
    {"f32", TSR_GGUF_F32, 0},
    {"f16", TSR_GGUF_F16, 1},
    {"bf16", TSR_GGUF_BF16, 32},
    {"q8_0", TSR_GGUF_Q8_0, 7},
    {"q4_k_m", TSR_GGUF_Q4_K, 15}};
enum { PRECISIONS = sizeof precisions / sizeof *precisions };

bool tsr_gguf_precision_find(
    const char *name, const tsr_gguf_precision **ret_precision, tsr_diags *diags) {
  for (int i = 0; i < PRECISIONS; i++)
    if (!strcmp(name, precisions[i].name)) return *ret_precision = &precisions[i], true;
  tsr_diag_error(diags, TSR_NOWHERE, "'%s' is no dtype to export weights to GGUF in", name);
  tsr_diag_hint(diags, "valid: f32, f16, bf16, q8_0, q4_k_m");
  return false;
}

typedef struct {
  const tsr_gguf_tensors *list;
  int64_t blocks, experts;
  bool tied, q5_k_values;
} mixture;

static bool is_values(const char *name) {
  return tsr_path_ends(name, ".attn_v.weight") || tsr_path_ends(name, ".attn_qkv.weight");
}

static bool is_down(const char *name) {
  return strstr(name, ".ffn_down") && tsr_path_ends(name, ".weight");
}

static bool stays_f32(const tsr_gguf_tensor *t) {
  return t->ndim < 2 || tsr_path_ends(t->name, "_norm.weight") ||
         tsr_path_ends(t->name, ".ffn_gate_inp.weight") ||
         tsr_path_ends(t->name, ".ffn_gate_inp_shexp.weight") ||
         !strcmp(t->name, "position_embd.weight") || !tsr_path_ends(t->name, ".weight");
}

/* ---- Q4_K_M ---- */

static int64_t block_of(const char *name) {
  return strncmp(name, "blk.", 4) ? -1 : strtoll(name + 4, NULL, 10);
}

/* The tensors of a kind in lower blocks, and in all. */
static void count_kind(
    const mixture *m, bool (*is_kind)(const char *), int64_t block, int64_t *ret_before,
    int64_t *ret_all) {
  *ret_before = *ret_all = 0;
  for (int i = 0; i < m->list->count; i++) {
    const char *name = m->list->tensors[i].name;
    if (!is_kind(name)) continue;
    ++*ret_all;
    *ret_before += block_of(name) < block;
  }
}

/* The first and the last eighth, and every third layer between them. */
static bool has_more_bits(int64_t layer, int64_t layers) {
  int64_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

static tsr_gguf_type values_type(const mixture *m, const char *name) {
  int64_t before, all;
  count_kind(m, is_values, block_of(name), &before, &all);
  tsr_gguf_type type = has_more_bits(before, all) ? TSR_GGUF_Q6_K : TSR_GGUF_Q4_K;
  if (m->q5_k_values && type == TSR_GGUF_Q4_K) type = TSR_GGUF_Q5_K;
  return m->experts == 8 ? TSR_GGUF_Q8_0 : type;
}

static tsr_gguf_type down_type(const mixture *m, const char *name) {
  int64_t layer = block_of(name), all;
  if (m->experts <= 1) count_kind(m, is_down, block_of(name), &layer, &all);
  return has_more_bits(layer, m->blocks) ? TSR_GGUF_Q6_K : TSR_GGUF_Q4_K;
}

static tsr_gguf_type mixed_type(const mixture *m, const tsr_gguf_tensor *t) {
  bool is_embedding = !strcmp(t->name, "token_embd.weight");
  if (!strcmp(t->name, "output.weight") || (m->tied && is_embedding))
    return tsr_gguf_row(t) % tsr_gguf_block_elements(TSR_GGUF_Q4_K) ? TSR_GGUF_Q8_0 : TSR_GGUF_Q6_K;
  if (is_values(t->name)) return values_type(m, t->name);
  if (is_down(t->name)) return down_type(m, t->name);
  if (m->experts == 8 && tsr_path_ends(t->name, ".attn_k.weight")) return TSR_GGUF_Q8_0;
  if (m->experts == 8 && tsr_path_ends(t->name, ".attn_output.weight")) return TSR_GGUF_Q5_K;
  return TSR_GGUF_Q4_K;
}

/* ---- all types ---- */

static tsr_gguf_type fallback(tsr_gguf_type type) {
  switch (type) {
  case TSR_GGUF_Q4_K:
    return TSR_GGUF_Q5_0;
  case TSR_GGUF_Q5_K:
    return TSR_GGUF_Q5_1;
  case TSR_GGUF_Q6_K:
    return TSR_GGUF_Q8_0;
  default:
    return TSR_GGUF_F16;
  }
}

static tsr_gguf_type
type_of(const mixture *m, const tsr_gguf_precision *precision, const tsr_gguf_tensor *t) {
  tsr_gguf_type type = precision->type;
  bool mixes = type == TSR_GGUF_Q4_K;
  if (stays_f32(t) || (mixes && tsr_gguf_rows(t) == 1)) return TSR_GGUF_F32;
  if (mixes) type = mixed_type(m, t);
  for (int i = 0; i < 2 && tsr_gguf_row(t) % tsr_gguf_block_elements(type); i++)
    type = i ? TSR_GGUF_F16 : fallback(type);
  return type;
}

bool tsr_gguf_types_choose(
    const tsr_gguf_mapping *mapping, const tsr_gguf_precision *precision, tsr_gguf_tensors *list,
    tsr_diags *diags) {
  mixture m = {.list = list, .tied = true};
  if (!tsr_gguf_mapped_size(mapping, "num_blocks", &m.blocks)) m.blocks = 0;
  if (!tsr_gguf_mapped_size(mapping, "num_experts", &m.experts)) m.experts = 0;
  if (!tsr_gguf_mapping_condition(mapping, NULL, "q5_k_values", &m.q5_k_values, diags))
    return false;
  for (int i = 0; i < list->count; i++)
    m.tied &= strcmp(list->tensors[i].name, "output.weight") != 0;
  for (int i = 0; i < list->count; i++)
    list->tensors[i].type = type_of(&m, precision, &list->tensors[i]);
  return true;
}
