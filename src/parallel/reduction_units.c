// SPDX-License-Identifier: Apache-2.0
/* The reduction units of batch and tp that the recipe fixes, or that the mesh needs. */
#include "parallel/parallel.h"
#include "base/reduction_tree.h"
#include "config/yaml.h"
#include <stdlib.h>

enum { SEARCHED_MAX = 1 << 20 };

/* How many units of the batch fit: `ranks` × `microbatches` blocks, each with a whole number of
 * units that divides its `rows`. What is added first must be a subtree each time: a block, the
 * blocks of ep's ranks, and with those of dp's ranks or of the microbatches (`together`) too. */
typedef struct {
  tsr_tree_shape tree;
  int64_t ranks, microbatches, rows, ep, together;
} blocks;

static bool are_subtrees(tsr_tree_shape tree, int64_t units, int64_t block, blocks b) {
  if (tree == TSR_TREE_FLAT) return true; /* a microbatch each, and their ranks add in turn */
  return tsr_tree_is_subtree(units, block) && tsr_tree_is_subtree(units, block * b.ep) &&
         tsr_tree_is_subtree(units, block * b.ep * b.together);
}

static bool batch_units_fit(int64_t units, blocks b) {
  if (units <= 0 || units % (b.ranks * b.microbatches)) return false;
  int64_t block = units / (b.ranks * b.microbatches);
  return b.rows % block == 0 && are_subtrees(b.tree, units, block, b);
}

static bool tp_units_fit(tsr_tree_shape tree, int64_t units, int64_t ranks) {
  return units > 0 && units % ranks == 0 && tsr_tree_of_is_subtree(tree, units, units / ranks);
}

bool tsr_parallel_tp_units_fit(const tsr_parallel *p, int64_t units) {
  return tp_units_fit(p->tree, units, p->size[TSR_TP]);
}

/* The counts that fit nearest to `wanted`, below and above it; 0: none. */
typedef struct {
  int64_t below, above;
} near_counts;

static near_counts batch_units_near(int64_t wanted, blocks b) {
  near_counts near = {0, 0};
  for (int64_t block = 1; block <= b.rows && block <= SEARCHED_MAX; block++) {
    int64_t units = block * b.ranks * b.microbatches;
    if (!batch_units_fit(units, b)) continue;
    if (units < wanted) near.below = units;
    if (units > wanted) return (near_counts){near.below, units};
  }
  return near;
}

static near_counts tp_units_near(tsr_tree_shape tree, int64_t wanted, int64_t ranks) {
  int64_t tries[] = {ranks, wanted - wanted % ranks, wanted - wanted % ranks + ranks};
  near_counts near = {0, 0};
  for (int i = 0; i < 3; i++) {
    if (!tp_units_fit(tree, tries[i], ranks)) continue;
    if (tries[i] < wanted) near.below = tries[i];
    if (tries[i] > wanted && !near.above) near.above = tries[i];
  }
  return near;
}

static bool near_hint(near_counts near, const char *key, tsr_diags *diags) {
  if (near.below && near.above) {
    tsr_diag_hint(
        diags, "%s: %lld or %lld would fit", key, (long long)near.below, (long long)near.above);
  } else if (near.below || near.above) {
    tsr_diag_hint(
        diags, "%s: %lld would fit", key, (long long)(near.below ? near.below : near.above));
  } else {
    tsr_diag_hint(diags, "leave '%s' out, and each rank's share is one unit", key);
  }
  return false;
}

/* The policy 'fast' would rather run than keep the recipe's bits. */
static bool takes_own(
    const tsr_config *config, const char *key, int64_t units, int64_t own, int64_t *ret_units,
    tsr_diags *diags) {
  if (config->numerics.policy != TSR_NUMERICS_FAST) return false;
  tsr_diag_note(
      diags, tsr_config_location(config, key),
      "%lld units do not fit this mesh: with policy 'fast' it uses its own %lld, and other bits",
      (long long)units, (long long)own);
  *ret_units = own;
  return true;
}

static blocks blocks_of(const tsr_parallel *p, bool microbatch_first) {
  return (blocks){
      .tree = p->tree,
      .ranks = tsr_parallel_batch_ranks(p),
      .microbatches = p->microbatches,
      .rows = p->batch_size_local,
      .ep = p->size[TSR_EP],
      .together = microbatch_first ? p->size[TSR_DP] : p->microbatches};
}

bool tsr_batch_units_have_own_order(
    tsr_tree_shape tree, int64_t units, const int size[TSR_AXES], int64_t microbatches,
    bool microbatch_first) {
  blocks b = {.ep = size[TSR_EP], .together = microbatch_first ? size[TSR_DP] : microbatches};
  return !are_subtrees(tree, units, units / (size[TSR_DP] * size[TSR_EP] * microbatches), b);
}

const char *tsr_parallel_own_order(
    tsr_arena *arena, const tsr_parallel *p, const tsr_config *config, int64_t units) {
  bool by_microbatch = tsr_parallel_microbatch_first(p, config);
  if (!tsr_batch_units_have_own_order(p->tree, units, p->size, p->microbatches, by_microbatch))
    return "";
  return tsr_arena_printf(
      arena, "%d ranks of %s, %lld microbatches, those of a %s first", tsr_parallel_batch_ranks(p),
      tsr_parallel_batch_axes(p), (long long)p->microbatches,
      by_microbatch ? "microbatch" : "rank");
}

/* A sum over the ranks of ep is complete in each microbatch before it is added on. */
static bool check_tree(const tsr_parallel *p, const tsr_config *config, tsr_diags *diags) {
  if (p->tree == TSR_TREE_BINARY || p->size[TSR_EP] == 1) return true;
  tsr_diag_error(
      diags, tsr_config_location(config, "numerics.reduce_tree"),
      "'reduce_tree' must be binary with ep = %d: the ranks of ep add the units of a microbatch "
      "before those are added on",
      p->size[TSR_EP]);
  return false;
}

static bool
batch_units(const tsr_parallel *p, const tsr_config *config, int64_t *ret_units, tsr_diags *diags) {
  int64_t units = config->numerics.units_batch;
  blocks b = blocks_of(p, tsr_parallel_microbatch_first(p, config));
  *ret_units = units ? units : b.ranks * b.microbatches;
  bool is_refused = b.rows == 0; /* fewer samples than ranks and microbatches */
  if (!units || is_refused || batch_units_fit(units, b)) return true;
  if (takes_own(config, "numerics.units.batch", units, b.ranks * b.microbatches, ret_units, diags))
    return true;
  tsr_diag_error(
      diags, tsr_config_location(config, "numerics.units.batch"),
      "%lld batch units do not fit %s = %lld with %lld microbatch%s of %lld row%s a rank",
      (long long)units, tsr_parallel_batch_axes(p), (long long)b.ranks, (long long)b.microbatches,
      b.microbatches == 1 ? "" : "es", (long long)b.rows, b.rows == 1 ? "" : "s");
  return near_hint(batch_units_near(units, b), "batch", diags);
}

/* The model's heads that tp cannot divide, if the configuration contains their number;
 * NULL: none. */
static const char *undivided_heads(const tsr_config *config, int64_t tp, int64_t *ret_heads) {
  static const char *const keys[] = {"num_heads", "num_groups"};
  for (int i = 0; i < 2; i++) {
    const tsr_yaml *node = config->model.map ? tsr_yaml_get(config->model.map, keys[i]) : NULL;
    if (!node || !node->text) continue;
    *ret_heads = strtoll(node->text, NULL, 10);
    if (*ret_heads > 0 && *ret_heads % tp) return keys[i];
  }
  return NULL;
}

static bool
tp_units(const tsr_parallel *p, const tsr_config *config, int64_t *ret_units, tsr_diags *diags) {
  int64_t units = config->numerics.units_tp, ranks = p->size[TSR_TP];
  *ret_units = units ? units : ranks;
  if (!units || tp_units_fit(p->tree, units, ranks)) return true;
  if (takes_own(config, "numerics.units.tp", units, ranks, ret_units, diags)) return true;
  tsr_location location = tsr_config_location(config, "numerics.units.tp");
  if (tp_units_fit(TSR_TREE_BINARY, units, ranks)) {
    tsr_diag_error(
        diags, location,
        "reduce_tree 'flat' adds %lld tp units one after the other, and a rank of tp has %lld of "
        "them",
        (long long)units, (long long)(units / ranks));
    tsr_diag_hint(diags, "units.tp: %lld, or reduce_tree: binary", (long long)ranks);
    return false;
  }
  tsr_diag_error(
      diags, location, "%lld tp units do not fit tp = %lld", (long long)units, (long long)ranks);
  int64_t heads;
  const char *key = undivided_heads(config, ranks, &heads);
  if (!key) return near_hint(tp_units_near(p->tree, units, ranks), "tp", diags);
  tsr_diag_hint(
      diags, "none would: %s %lld does not divide over tp = %lld", key, (long long)heads,
      (long long)ranks);
  return false;
}

bool tsr_parallel_units(
    const tsr_parallel *p, const tsr_config *config, int64_t *ret_batch, int64_t *ret_tp,
    tsr_diags *diags) {
  const tsr_config_numerics *n = &config->numerics;
  if (n->reduce_tree != TSR_REDUCE_TREE_BINARY && n->policy == TSR_NUMERICS_FAST)
    tsr_diag(
        diags, tsr_diag_normative(diags, TSR_WARNING),
        tsr_config_location(config, "numerics.reduce_tree"),
        "'reduce_tree' has no effect: policy 'fast' keeps no order");
  if (n->tp_reductions == TSR_TP_REDUCTIONS_HALF && !tsr_config_sums_tp_in_half(config))
    tsr_diag(
        diags, tsr_diag_normative(diags, TSR_WARNING),
        tsr_config_location(config, "numerics.tp_reductions"),
        "'tp_reductions' has no effect: the precision is f32");
  bool good = check_tree(p, config, diags);
  good &= batch_units(p, config, ret_batch, diags);
  return tp_units(p, config, ret_tp, diags) && good;
}

bool tsr_parallel_expert_units(
    const tsr_parallel *p, const tsr_config *config, int64_t batch_units, int64_t *ret_expert,
    tsr_diags *diags) {
  bool flat = p->tree == TSR_TREE_FLAT, by_microbatch = tsr_parallel_microbatch_first(p, config);
  int64_t units = config->numerics.units_expert, ranks = p->size[TSR_DP];
  int64_t parts = flat ? batch_units : ranks * (by_microbatch ? p->microbatches : 1);
  *ret_expert = units ? units : parts;
  bool fits = units % parts == 0 && (!units || batch_units % units == 0);
  if (fits && (!units || tsr_tree_of_is_subtree(p->tree, units, units / parts))) return true;
  if (takes_own(config, "numerics.units.expert", units, parts, ret_expert, diags)) return true;
  tsr_diag_error(
      diags, tsr_config_location(config, "numerics.units.expert"),
      "%lld units of expert gradients do not fit dp = %lld with %lld batch units", (long long)units,
      (long long)ranks, (long long)batch_units);
  return tsr_diag_hint(
             diags,
             flat ? "in a flat tree it must be %lld, the batch units"
                  : "a multiple of %lld that divides the batch units would fit",
             (long long)parts),
         false;
}
