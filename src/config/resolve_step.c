// SPDX-License-Identifier: Apache-2.0
/* How a step is computed: in which precision, what is computed again, what dp shares out. */
#include "config/config_internal.h"
#include <string.h>

static bool given(const tsr_loader *l, const char *dotted_key) {
  return tsr_loader_value(l, dotted_key) != NULL;
}

/* Whether one of the key's words was given; another one is an error that was said already. */
static bool chosen(const tsr_loader *l, const char *dotted_key) {
  const tsr_yaml *node = tsr_loader_value(l, dotted_key);
  const tsr_field_choice *c = tsr_fields[tsr_field_find_dotted(dotted_key)].choices;
  while (node && c->name && strcmp(c->name, node->text)) c++;
  return node && c->name;
}

static void resolve_precision(tsr_loader *l) {
  static const char mixed[] = "training_config.mixed_precision",
                    precision[] = "training_config.precision";
  tsr_config_training *t = &l->config->training;
  bool half = t->precision != TSR_PRECISION_F32;
  if (given(l, mixed) && chosen(l, precision) && t->mixed_precision != half)
    tsr_loader_contradict(l, mixed, precision);
  if (!given(l, precision) && t->mixed_precision) t->precision = TSR_PRECISION_BF16;
  t->mixed_precision = t->precision != TSR_PRECISION_F32;
  tsr_loader_take_origin(l, precision, mixed);
  tsr_loader_take_origin(l, mixed, precision);
}

static void resolve_loss_scale(tsr_loader *l) {
  enum { TESSERA_MAX = 65536 };
  const tsr_config_training *t = &l->config->training;
  const tsr_yaml *interval = tsr_loader_key(l, "training_config.loss_scale.interval");
  if (t->loss_scale == TSR_SCALE_TESSERA && t->loss_scale_init > TESSERA_MAX) {
    const tsr_yaml *init = tsr_loader_value(l, "training_config.loss_scale.init");
    tsr_diag_error(
        l->diags, init->location, "the loss scale of mode tessera is at most %d, found %s",
        TESSERA_MAX, tsr_yaml_describe(l->arena, init));
    tsr_diag_hint(l->diags, "mode: interval and mode: static may begin higher");
  }
  if (interval && t->loss_scale != TSR_SCALE_INTERVAL && t->loss_scale_interval != 2000)
    tsr_diag(
        l->diags, tsr_diag_normative(l->diags, TSR_WARNING), interval->location,
        "'%s' has no effect: the mode is not interval", interval->text);
}

/* The run's words must agree; over a model's runner_type they win. */
static void resolve_recompute(tsr_loader *l) {
  static const char recompute[] = "schedule.recompute", runner[] = "training_config.runner";
  tsr_config_training *t = &l->config->training;
  tsr_config_schedule *s = &l->config->schedule;
  const tsr_yaml *from = tsr_loader_key(l, runner);
  if (!given(l, recompute)) {
    if (t->runner == TSR_RUNNER_MEMORY_EFFICIENT) s->recompute = TSR_RECOMPUTE_FULL;
    tsr_loader_take_origin(l, recompute, runner);
  } else {
    tsr_runner same =
        s->recompute == TSR_RECOMPUTE_FULL ? TSR_RUNNER_MEMORY_EFFICIENT : TSR_RUNNER_DEFAULT;
    int row = tsr_field_find_dotted(runner);
    if (from && !strcmp(from->text, "runner_type")) l->origins->values[row] = NULL;
    else if (from && chosen(l, recompute) && t->runner != same)
      tsr_loader_contradict(l, runner, recompute);
    t->runner = same;
    tsr_loader_take_origin(l, runner, recompute);
  }
  const tsr_yaml *every = tsr_loader_key(l, "schedule.recompute_every");
  if (every && s->recompute != TSR_RECOMPUTE_FULL && s->recompute_every > 1)
    tsr_diag(
        l->diags, tsr_diag_normative(l->diags, TSR_WARNING), every->location,
        "'recompute_every' has no effect: recompute is not full");
}

/* Other values than the defaults. */
static void resolve_activation_offload(tsr_loader *l) {
  const tsr_config_schedule *s = &l->config->schedule;
  const struct {
    const char *key;
    bool is_other;
  } keys[] = {
      {"schedule.activation_offload_blocks", s->activation_offload_blocks != 0},
      {"schedule.activation_offload_min_size", s->activation_offload_min_size != 1 << 20}};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const tsr_yaml *key = tsr_loader_key(l, keys[i].key);
    if (key && keys[i].is_other && s->activation_offload == TSR_ACTIVATION_OFFLOAD_NONE)
      tsr_diag(
          l->diags, tsr_diag_normative(l->diags, TSR_WARNING), key->location,
          "'%s' has no effect: activation_offload is none", key->text);
  }
}

static void resolve_fsdp(tsr_loader *l) {
  static const char stage[] = "zero.stage", fsdp[] = "device_config.enable_fsdp";
  tsr_config_zero *z = &l->config->zero;
  int64_t zero;
  if (!l->config->device.enable_fsdp) return;
  if (!given(l, stage)) z->stage = 3;
  else if (tsr_yaml_int(tsr_loader_value(l, stage), &zero) && zero == 0)
    tsr_loader_contradict(l, fsdp, stage);
  tsr_loader_take_origin(l, stage, fsdp);
}

static void resolve_zero(tsr_loader *l) {
  const tsr_config_zero *z = &l->config->zero;
  const tsr_yaml *path = tsr_loader_key(l, "zero.offload_path");
  if (path && *z->offload_path && z->offload == TSR_OFFLOAD_NONE)
    tsr_diag(
        l->diags, tsr_diag_normative(l->diags, TSR_WARNING), path->location,
        "'offload_path' has no effect: offload is none");
  resolve_fsdp(l);
  const tsr_yaml *partition = tsr_loader_key(l, "zero.partition");
  if (partition && z->partition != TSR_PARTITION_FLAT && !z->stage)
    tsr_diag(
        l->diags, tsr_diag_normative(l->diags, TSR_WARNING), partition->location,
        "'partition' has no effect: stage is 0");
}

static void resolve_validate(tsr_loader *l) {
  const tsr_config_training *t = &l->config->training;
  const tsr_yaml *every = tsr_loader_key(l, "validate_every");
  if (every && t->validate_every != 1 && !t->validate)
    tsr_diag(
        l->diags, tsr_diag_normative(l->diags, TSR_WARNING), every->location,
        "'validate_every' has no effect: validate is none");
}

void tsr_step_resolve(tsr_loader *l) {
  resolve_precision(l);
  resolve_loss_scale(l);
  resolve_recompute(l);
  resolve_activation_offload(l);
  resolve_zero(l);
  resolve_validate(l);
}
