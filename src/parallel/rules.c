// SPDX-License-Identifier: Apache-2.0
#include "parallel/rules.h"
#include <string.h>

static void names_add(const tsr_mesh_layout *layout, tsr_text *text) {
  for (int i = 0; i < layout->strategies_count; i++) {
    tsr_text_add(text, "%s%s", i ? ", " : "", layout->strategies[i].name);
  }
  if (layout->strategies_count == 0) tsr_text_add(text, "none");
}

bool tsr_mesh_rule_axes(const tsr_config *config, const tsr_mesh_layout *layout, tsr_diags *diags) {
  /* a single rank needs no strategy */
  if (layout->strategies_count == layout->ndim) return true;
  tsr_diag_error(
      diags, tsr_mesh_layout_place(config),
      "The number of parallelization axes must be equal to the number of mesh shape dimensions");
  tsr_text names = {0};
  names_add(layout, &names);
  tsr_diag_hint(
      diags, "enabled: %s (%d); mesh_shape %s has %d dimension%s", names.data,
      layout->strategies_count, tsr_mesh_layout_text(layout->asked, layout->asked_ndim).text,
      layout->asked_ndim, layout->asked_ndim == 1 ? "" : "s");
  tsr_text_free(&names);
  return false;
}

/* Whether mesh.axes, where it is given, names the axis of an enabled strategy. */
static bool
axis_is_named(const tsr_config *config, bool enabled, int axis, const char *key, tsr_diags *diags) {
  const tsr_config_device *device = &config->device;
  for (int i = 0; i < device->axes_count; i++) {
    if (device->axes[i] == axis) return true;
  }
  if (!enabled || device->axes_count == 0) return true;
  tsr_location location = tsr_config_location(config, key);
  return tsr_diag_error(
      diags, location.line ? location : tsr_mesh_layout_place(config),
      "'%s' is on, but 'mesh.axes' does not name '%s'", strchr(key, '.') + 1, tsr_axis_name(axis));
}

bool tsr_mesh_rule_axis_names(const tsr_config *config, tsr_diags *diags) {
  const tsr_config_device *device = &config->device;
  bool good = axis_is_named(config, device->enable_ddp, TSR_DP, "device_config.enable_ddp", diags);
  good &= axis_is_named(config, device->enable_fsdp, TSR_DP, "device_config.enable_fsdp", diags);
  good &= axis_is_named(config, device->enable_tp, TSR_TP, "device_config.enable_tp", diags);
  good &= axis_is_named(config, device->enable_pp, TSR_PP, "device_config.enable_pp", diags);
  good &= axis_is_named(config, device->enable_cp, TSR_CP, "device_config.enable_cp", diags);
  good &= axis_is_named(config, device->enable_ep, TSR_EP, "device_config.enable_ep", diags);
  return good;
}

/* A pipeline splits what each rank has of the batch into microbatches. */
static bool rule_microbatches(const tsr_config *config, tsr_parallel *p, tsr_diags *diags) {
  int64_t splits = config->schedule.pipeline_microbatches, local = p->batch_size_local, below = 1;
  if (splits <= 1) return true;
  p->microbatches *= splits;
  p->batch_size /= splits;
  p->batch_size_local /= splits;
  if (local % splits == 0) return true;
  tsr_diag_error(
      diags, tsr_config_location(config, "schedule.pipeline_microbatches"),
      "%lld pipeline microbatches do not divide the batch of %lld sample%s a rank",
      (long long)splits, (long long)local, local == 1 ? "" : "s");
  for (int64_t i = 2; i <= local && i < splits; i++)
    if (local % i == 0) below = i;
  tsr_diag_hint(
      diags, "%lld would; or a batch_size of %lld", (long long)below,
      (long long)((local / splits + 1) * splits * tsr_parallel_batch_ranks(p)));
  return false;
}

/* In a flat tree only single units are subtrees, so each batch unit is a microbatch of its own; the
 * ranks' units of a microbatch follow one another in the order of units. Units that do not fit are
 * tsr_parallel_units's to refuse. */
static void split_by_units(const tsr_config *config, tsr_parallel *p) {
  int64_t parts = tsr_parallel_batch_ranks(p) * p->microbatches,
          units = config->numerics.units_batch;
  p->tree = tsr_config_numerics_are_flat(&config->numerics) ? TSR_TREE_FLAT : TSR_TREE_BINARY;
  if (p->tree == TSR_TREE_BINARY || units <= parts || units % parts) return;
  int64_t splits = units / parts;
  if (p->batch_size_local % splits) return;
  p->microbatches *= splits;
  p->batch_size /= splits;
  p->batch_size_local /= splits;
}

/* A default has no place of its own; what it does not divide over has one. */
static bool
refuse_batch(const tsr_config *config, const tsr_parallel *p, int64_t batch, tsr_diags *diags) {
  int64_t ranks = tsr_parallel_batch_ranks(p), below = batch - batch % ranks;
  tsr_location location = tsr_config_location(config, "training_config.batch_size");
  bool is_default = !config->training.batch_size_given;
  tsr_diag_error(
      diags, is_default ? tsr_mesh_layout_place(config) : location,
      "batch_size %lld%s does not divide over %s = %lld", (long long)batch,
      is_default ? ", the default," : "", tsr_parallel_batch_axes(p), (long long)ranks);
  if (below)
    tsr_diag_hint(diags, "%lld or %lld would", (long long)below, (long long)(below + ranks));
  else tsr_diag_hint(diags, "%lld would", (long long)ranks);
  return false;
}

bool tsr_parallel_check_batch(const tsr_parallel *p, const tsr_config *config, tsr_diags *diags) {
  return !p->batch_is_rounded || refuse_batch(config, p, config->training.batch_size, diags);
}

/* The global batch: what is given, or what batch_size_per_rank makes of the ranks. Whether the
 * default matters to a graph of the user's is known when that has been read. */
bool tsr_mesh_rule_batch(const tsr_config *config, tsr_parallel *p, tsr_diags *diags) {
  const tsr_config_training *training = &config->training;
  int64_t ranks = tsr_parallel_batch_ranks(p), per_rank = training->batch_size_per_rank;
  const char *axes = tsr_parallel_batch_axes(p);
  p->microbatches = training->gradient_accumulation_steps;
  p->batch_size = per_rank && !training->batch_size_given ? per_rank * ranks : training->batch_size;
  p->batch_size_local = p->batch_size / ranks;
  if (p->batch_size % ranks) {
    if (training->batch_size_given || !tsr_config_has_own_graph(config))
      return refuse_batch(config, p, p->batch_size, diags);
    p->batch_is_rounded = true;
    p->batch_size_local++;
    p->batch_size = p->batch_size_local * ranks;
  }
  if (!per_rank || p->batch_size_local == per_rank) {
    bool good = rule_microbatches(config, p, diags);
    if (good) split_by_units(config, p);
    return good;
  }
  tsr_diag_error(
      diags, tsr_config_location(config, "training_config.batch_size_per_rank"),
      "batch_size_per_rank %lld over %s = %lld makes %lld, but batch_size is %lld",
      (long long)per_rank, axes, (long long)ranks, (long long)(per_rank * ranks),
      (long long)p->batch_size);
  tsr_diag_hint(diags, "batch_size is the global batch; give one of the two, or values that agree");
  return false;
}
