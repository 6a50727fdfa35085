// SPDX-License-Identifier: Apache-2.0
/* The rules over several keys, after each was read by itself. */
#include "config/config_internal.h"
#include <string.h>

static bool given(const tsr_loader *l, const char *dotted_key) {
  return tsr_loader_value(l, dotted_key) != NULL;
}

static bool is_true(const tsr_loader *l, const char *dotted_key) {
  bool value;
  return tsr_yaml_bool(tsr_loader_value(l, dotted_key), &value) && value;
}

/* --- optimizer --- */

static void set_optimizer(tsr_config *config, const char *name, tsr_optimizer_type type) {
  config->optimizer.type = type;
  config->optimizer.type_name = name;
}

/* tt-train's old keys are another way to write the whole section, not a way to change it. */
static bool check_legacy(tsr_loader *l) {
  const tsr_yaml *section = tsr_loader_key(l, "training_config.optimizer");
  if (!section) section = tsr_loader_key(l, "training_config.optimizer_config");
  if (!section) section = tsr_loader_key(l, "optimizer_config");
  bool any = false;
  for (int i = 0; i < tsr_fields_count; i++) {
    const tsr_yaml *key = tsr_fields[i].legacy ? l->origins->keys[i] : NULL;
    if (!key) continue;
    any = true;
    if (!section) continue;
    tsr_diag_error(
        l->diags, key->location, "the old key '%s' stands beside an optimizer section", key->text);
    tsr_diag_hint(l->diags, "write it there as %s", tsr_fields[i].why);
  }
  return any;
}

static void read_legacy_type(tsr_loader *l) {
  bool no_op = is_true(l, "training_config.use_no_op");
  if (no_op && is_true(l, "training_config.use_moreh_adamw"))
    tsr_diag_error(
        l->diags, tsr_loader_key(l, "training_config.use_no_op")->location,
        "'use_no_op' and 'use_moreh_adamw' are both true");
  tsr_loader_take_origin(
      l, "training_config.optimizer.type",
      no_op ? "training_config.use_no_op" : "training_config.use_moreh_adamw");
  if (no_op) set_optimizer(l->config, "NoOp", TSR_OPTIMIZER_NOOP);
  else if (given(l, "training_config.momentum")) {
    set_optimizer(l->config, "SGD", TSR_OPTIMIZER_SGD);
    tsr_loader_take_origin(l, "training_config.optimizer.type", "training_config.momentum");
  }
}

bool tsr_optimizer_uses(tsr_optimizer_type type, const char *key) {
  static const char *const adamw[] = {"beta1", "beta2", "epsilon", "amsgrad"};
  static const char *const sgd[] = {"momentum", "dampening", "nesterov"};
  for (int i = 0; i < 4; i++)
    if (!strcmp(key, adamw[i])) return type == TSR_OPTIMIZER_ADAMW || type == TSR_OPTIMIZER_ADAM;
  for (int i = 0; i < 3; i++)
    if (!strcmp(key, sgd[i])) return type == TSR_OPTIMIZER_SGD;
  return type != TSR_OPTIMIZER_NOOP || !strcmp(key, "type") || !strcmp(key, "lr");
}

/* Values of another rule than the chosen one, unless they are off. */
static void warn_other_rules(tsr_loader *l) {
  const tsr_config_optimizer *o = &l->config->optimizer;
  for (int i = 0; i < tsr_fields_count && o->type != TSR_OPTIMIZER_NOOP; i++) {
    const tsr_yaml *key = l->origins->keys[i], *node = l->origins->values[i];
    bool optimizer = !strcmp(tsr_fields[i].section, "training_config.optimizer");
    if (!key || !optimizer || tsr_fields[i].same_as ||
        tsr_optimizer_uses(o->type, tsr_fields[i].key))
      continue;
    double number;
    bool truth;
    if ((tsr_yaml_float(node, &number) && number == 0) || (tsr_yaml_bool(node, &truth) && !truth))
      continue;
    tsr_diag(
        l->diags, tsr_diag_normative(l->diags, TSR_WARNING), key->location,
        "'%s' has no effect: %s has no such value", key->text, o->type_name);
  }
}

/* They are for parameters that are stored in bf16, as tt-train's are. */
static void warn_of_rounding(tsr_loader *l, const char *key, bool on) {
  if (!on || l->config->training.precision == TSR_PRECISION_BF16) return;
  const tsr_yaml *node =
      tsr_loader_key(l, tsr_arena_printf(l->arena, "training_config.optimizer.%s", key));
  tsr_diag(
      l->diags, tsr_diag_normative(l->diags, TSR_WARNING), node ? node->location : TSR_NOWHERE,
      "'%s' has no effect: parameters are stored in f32", node ? node->text : key);
}

static void resolve_optimizer(tsr_loader *l) {
  tsr_config_optimizer *o = &l->config->optimizer;
  const tsr_yaml *type = tsr_loader_value(l, "training_config.optimizer.type");
  o->type_name = type && type->text ? type->text : "AdamW";
  if (!strcmp(o->type_name, "adamw")) o->type_name = "AdamW";
  if (!strcmp(o->type_name, "adam")) o->type_name = "Adam";
  if (check_legacy(l)) read_legacy_type(l);
  bool decay_given = given(l, "training_config.optimizer.weight_decay");
  bool decays = o->type != TSR_OPTIMIZER_SGD && o->type != TSR_OPTIMIZER_ADAM; /* by default */
  if (!decays && !decay_given) o->weight_decay = 0;
  if (given(l, "training_config.optimizer.type")) warn_other_rules(l);
  if (o->type == TSR_OPTIMIZER_SGD && o->nesterov && (o->momentum <= 0 || o->dampening != 0))
    tsr_diag_error(
        l->diags, tsr_loader_key(l, "training_config.optimizer.nesterov")->location,
        "'nesterov' needs a momentum above 0 and no dampening");
  if (o->stochastic_rounding && o->kahan_summation)
    tsr_loader_contradict(
        l, "training_config.optimizer.stochastic_rounding",
        "training_config.optimizer.kahan_summation");
  warn_of_rounding(l, "stochastic_rounding", o->stochastic_rounding);
  warn_of_rounding(l, "kahan_summation", o->kahan_summation);
}

/* --- learning rate --- */

/* The type may be written in three places; they must agree. */
static void resolve_scheduler_type(tsr_loader *l) {
  static const char *const keys[] = {
      "scheduler_config.type", "training_config.scheduler_type", "training_config.lr_schedule"};
  tsr_config_scheduler *s = &l->config->scheduler;
  const char *from = NULL;
  for (int i = 0; i < 3; i++) {
    const tsr_yaml *node = tsr_loader_value(l, keys[i]);
    if (!node) continue;
    const tsr_field *f = &tsr_fields[tsr_field_find_dotted(keys[i])];
    int type = -1;
    for (const tsr_field_choice *c = f->choices; c->name; c++)
      if (!strcmp(c->name, node->text)) type = c->value;
    if (type < 0) continue;
    if (from && (int)s->type != type) tsr_loader_contradict(l, from, keys[i]);
    s->type = (tsr_scheduler_type)type;
    from = from ? from : keys[i];
  }
  const tsr_yaml *section = tsr_loader_value(l, "scheduler_config");
  if (!from && section && section->kind == TSR_YAML_MAP && section->count) {
    s->type = TSR_SCHEDULER_WSD;
    from = "scheduler_config";
  }
  if (from) tsr_loader_take_origin(l, "scheduler_config.type", from);
}

bool tsr_scheduler_uses(tsr_scheduler_type type, const char *key) {
  if (!strcmp(key, "hold_steps") || !strcmp(key, "decay_steps")) return type == TSR_SCHEDULER_WSD;
  return strcmp(key, "warmup_steps") || type != TSR_SCHEDULER_WARMUP_LINEAR;
}

static void warn_other_curves(tsr_loader *l) {
  static const char *const keys[] = {"warmup_steps", "hold_steps", "decay_steps"};
  tsr_scheduler_type type = l->config->scheduler.type;
  for (int i = 0; i < 3; i++) {
    const tsr_yaml *key =
        tsr_loader_key(l, tsr_arena_printf(l->arena, "scheduler_config.%s", keys[i]));
    if (!key || tsr_scheduler_uses(type, keys[i])) continue;
    const tsr_field *f = &tsr_fields[tsr_field_find_dotted("scheduler_config.type")];
    tsr_diag(
        l->diags, tsr_diag_normative(l->diags, TSR_WARNING), key->location,
        "'%s' has no effect: the curve '%s' does not read it", key->text,
        tsr_field_choice_name(f, (int)type));
    if (type == TSR_SCHEDULER_WARMUP_LINEAR && i == 0)
      tsr_diag_hint(l->diags, "it warms up for a tenth of max_steps; linear reads warmup_steps");
  }
}

/* Unless it is given, the warm-up leaves most of a short run to the curve. */
static void resolve_warmup(tsr_loader *l) {
  enum { WARMUP_STEPS = 100 };
  tsr_config_scheduler *s = &l->config->scheduler;
  int64_t steps = l->config->training.max_steps;
  const tsr_yaml *node = tsr_loader_value(l, "scheduler_config.warmup_steps");
  if (!node) {
    s->warmup_steps = steps / 10 < WARMUP_STEPS ? steps / 10 : WARMUP_STEPS;
    if (s->type == TSR_SCHEDULER_CONSTANT) s->warmup_steps = 0;
  } else if (s->warmup_steps > steps) {
    tsr_diag_error(
        l->diags, node->location, "'warmup_steps' is more than max_steps, which is %lld",
        (long long)steps);
    s->warmup_steps = steps;
  }
}

static bool is_warmup_constant(const tsr_loader *l) {
  const tsr_yaml *node = tsr_loader_value(l, "training_config.lr_schedule");
  return node && !strcmp(node->text, "warmup_constant");
}

static void resolve_wsd(tsr_loader *l) {
  tsr_config_scheduler *s = &l->config->scheduler;
  int64_t rest = l->config->training.max_steps - s->warmup_steps;
  bool hold = given(l, "scheduler_config.hold_steps"),
       decay = given(l, "scheduler_config.decay_steps");
  if (is_warmup_constant(l) && !hold && !decay) {
    s->stable_steps = rest;
    tsr_loader_take_origin(l, "scheduler_config.hold_steps", "training_config.lr_schedule");
    tsr_loader_take_origin(l, "scheduler_config.decay_steps", "training_config.lr_schedule");
  }
  if (decay && !hold) s->stable_steps = rest - s->decay_steps;
  if (s->stable_steps < 0 || s->stable_steps > rest) {
    const tsr_yaml *key = tsr_loader_key(
        l, decay && !hold ? "scheduler_config.decay_steps" : "scheduler_config.hold_steps");
    tsr_diag(
        l->diags, decay ? TSR_ERROR : TSR_WARNING, key ? key->location : TSR_NOWHERE,
        "'%s' does not fit: %lld of %lld steps are left after the warm-up", key ? key->text : "",
        (long long)rest, (long long)l->config->training.max_steps);
    s->stable_steps = s->stable_steps < 0 ? 0 : rest;
  }
  if (hold && decay && s->decay_steps != rest - s->stable_steps)
    tsr_diag_error(
        l->diags, tsr_loader_key(l, "scheduler_config.decay_steps")->location,
        "warm-up, hold and decay make %llu steps, but max_steps is %lld",
        (unsigned long long)s->warmup_steps + (unsigned long long)s->stable_steps +
            (unsigned long long)s->decay_steps,
        (long long)l->config->training.max_steps);
  s->decay_steps = rest - s->stable_steps;
}

static void resolve_scheduler(tsr_loader *l) {
  tsr_config_scheduler *s = &l->config->scheduler;
  resolve_scheduler_type(l);
  if (s->max_lr == 0) s->max_lr = l->config->optimizer.lr;
  if (s->min_lr > s->max_lr) {
    const tsr_yaml *node = tsr_loader_value(l, "scheduler_config.min_lr");
    tsr_diag_error(
        l->diags, node ? node->location : TSR_NOWHERE, "'min_lr' is above the maximum, which is %g",
        s->max_lr);
  }
  resolve_warmup(l);
  warn_other_curves(l);
  if (s->type == TSR_SCHEDULER_WSD) resolve_wsd(l);
}

/* --- training --- */

static void resolve_clipping(tsr_loader *l) {
  static const char both[] = "training_config.gradient_clip_norm";
  tsr_config_training *t = &l->config->training;
  double norm;
  if (!tsr_yaml_float(tsr_loader_value(l, both), &norm)) return;
  if (given(l, "training_config.use_clip_grad_norm") && t->use_clip_grad_norm != (norm > 0))
    tsr_loader_contradict(l, "training_config.use_clip_grad_norm", both);
  if (given(l, "training_config.clip_grad_norm_max_norm") && norm > 0 &&
      norm != t->clip_grad_norm_max_norm)
    tsr_loader_contradict(l, "training_config.clip_grad_norm_max_norm", both);
  t->use_clip_grad_norm = norm > 0;
  tsr_loader_take_origin(l, "training_config.use_clip_grad_norm", both);
  if (norm > 0) tsr_loader_take_origin(l, "training_config.clip_grad_norm_max_norm", both);
  if (norm > 0) t->clip_grad_norm_max_norm = norm;
}

static void resolve_runner(tsr_loader *l) {
  static const char recompute[] = "training_config.gradient_checkpointing";
  tsr_config_training *t = &l->config->training;
  if (!given(l, recompute)) return;
  tsr_runner runner = is_true(l, recompute) ? TSR_RUNNER_MEMORY_EFFICIENT : TSR_RUNNER_DEFAULT;
  if (given(l, "training_config.runner") && t->runner != runner)
    tsr_loader_contradict(l, "training_config.runner", recompute);
  t->runner = runner;
  tsr_loader_take_origin(l, "training_config.runner", recompute);
}

static void resolve_training(tsr_loader *l) {
  tsr_config_training *t = &l->config->training;
  tsr_data_resolve(l);
  t->batch_size_given = given(l, "training_config.batch_size");
  if (t->validation_batch_size == 0) t->validation_batch_size = t->batch_size / 2;
  if (t->validation_batch_size == 0) t->validation_batch_size = 1;
  if (!given(l, "eval_config.seed")) l->config->eval.seed = t->seed;
  resolve_clipping(l);
  resolve_runner(l);
}

/* --- mesh --- */

/* A nested list fixes the shape: [[0, 1], [2, 3]] is 2 × 2. Writes the shape of the first branch.
 */
static bool devices_shape(tsr_loader *l, const tsr_yaml *node, int depth, tsr_config_device *d) {
  if (node->kind != TSR_YAML_LIST) return true;
  if (depth == TSR_MESH_NDIM_MAX)
    return tsr_diag_error(
        l->diags, node->location, "'devices' is nested deeper than %d dimensions",
        TSR_MESH_NDIM_MAX);
  d->mesh_shape[depth] = node->count;
  d->mesh_ndim = depth + 1;
  if (node->count == 0)
    return tsr_diag_error(l->diags, node->location, "'devices' has an empty row");
  return devices_shape(l, node->items[0], depth + 1, d);
}

static bool device_read(tsr_loader *l, const tsr_yaml *node, int *ids, int *count) {
  int64_t id;
  if (!tsr_yaml_int(node, &id) || id < 0 || id > 1 << 24)
    return tsr_diag_error(
        l->diags, node->location, "a device is an integer from 0, found %s",
        tsr_yaml_describe(l->arena, node));
  for (int i = 0; i < *count; i++)
    if (ids[i] == id)
      return tsr_diag_error(l->diags, node->location, "'devices' names device %d twice", (int)id);
  ids[(*count)++] = (int)id;
  return true;
}

/* `row` counts the rows of this depth inside the one around it. */
static bool devices_read(
    tsr_loader *l, const tsr_yaml *node, int depth, int row, const tsr_config_device *d, int *ids,
    int *count) {
  if (depth == d->mesh_ndim) return device_read(l, node, ids, count);
  if (node->kind != TSR_YAML_LIST)
    return tsr_diag_error(
        l->diags, node->location, "'devices' is ragged: row %d is %s, row 0 is a list", row,
        tsr_yaml_describe(l->arena, node));
  if (node->count != d->mesh_shape[depth])
    return tsr_diag_error(
        l->diags, node->location, "'devices' is ragged: row %d has %d entries, row 0 has %d", row,
        node->count, d->mesh_shape[depth]);
  bool ok = true;
  for (int i = 0; i < node->count; i++)
    ok = devices_read(l, node->items[i], depth + 1, i, d, ids, count) && ok;
  return ok;
}

static int64_t leaves(const tsr_yaml *node) {
  int64_t count = node->kind != TSR_YAML_LIST;
  for (int i = 0; i < node->count && node->kind == TSR_YAML_LIST; i++)
    count += leaves(node->items[i]);
  return count;
}

static void resolve_devices(tsr_loader *l, const tsr_yaml *node) {
  tsr_config_device *d = &l->config->device;
  int64_t number;
  if (tsr_yaml_int(node, &number)) {
    if (number < 1 || number > 1 << 24)
      tsr_diag_error(
          l->diags, node->location, "'devices' must be from 1 to %d, found %s", 1 << 24,
          tsr_yaml_describe(l->arena, node));
    else d->devices = (int)number;
    return;
  }
  if (node->kind != TSR_YAML_LIST) {
    tsr_diag_error(
        l->diags, node->location, "'devices' must be a count or a nested list, found %s",
        tsr_yaml_describe(l->arena, node));
    return;
  }
  int count = 0, *ids = tsr_arena_array(l->arena, int, leaves(node) + 1);
  tsr_config_device made = *d;
  if (!devices_shape(l, node, 0, &made) || !devices_read(l, node, 0, 0, &made, ids, &count)) return;
  if (made.mesh_ndim == 1 && d->axes_count > 1) {
    d->devices = count; /* a flat list over several axes is factorised */
  } else {
    memcpy(d->mesh_shape, made.mesh_shape, sizeof d->mesh_shape);
    d->mesh_ndim = made.mesh_ndim;
  }
  tsr_loader_take_origin(l, "device_config.mesh_shape", "mesh.devices");
  tsr_loader_take_origin(l, "device_config.device_ids", "mesh.devices");
  d->device_ids = ids;
  d->device_ids_count = count;
}

/* A count beside a shape must be the shape's; the shape is sufficient then. */
static void check_devices_count(tsr_loader *l) {
  tsr_config_device *d = &l->config->device;
  if (!d->devices || !d->mesh_ndim) return;
  int64_t ranks = 1;
  for (int i = 0; i < d->mesh_ndim; i++) ranks *= d->mesh_shape[i];
  const tsr_yaml *shape = tsr_loader_key(l, "device_config.mesh_shape");
  if (ranks != d->devices) {
    tsr_diag_error(
        l->diags, tsr_loader_value(l, "mesh.devices")->location,
        "'devices' is %d, but '%s' makes %lld", d->devices, shape->text, (long long)ranks);
    tsr_diag_hint(
        l->diags, "'%s' stands in %s:%d", shape->text, shape->location.file, shape->location.line);
  }
  d->devices = 0;
}

/* One of both may stand on the command line, and wins. */
static void choose_shape(tsr_loader *l) {
  static const char *const keys[] = {"device_config.mesh_shape", "mesh.shape"};
  bool over[2];
  for (int i = 0; i < 2; i++) over[i] = tsr_is_override(tsr_loader_key(l, keys[i]));
  if (over[0] == over[1]) {
    tsr_loader_contradict(l, keys[0], keys[1]);
    return;
  }
  int row = tsr_field_find_dotted(keys[0]);
  const char *wins = keys[over[1]];
  const tsr_yaml *value = tsr_loader_value(l, wins), *key = tsr_loader_key(l, wins);
  tsr_value_read(l, &tsr_fields[tsr_field_find_dotted(wins)], key->text, value);
  l->origins->values[row] = value;
  l->origins->keys[row] = key;
}

/* Devices are detected, or their shape is given; one of both may stand on the command line, and
 * wins. */
static void choose_detection(tsr_loader *l) {
  static const char *const shape = "device_config.mesh_shape";
  tsr_config_device *d = &l->config->device;
  if (!d->mesh_auto || !d->mesh_ndim) return;
  bool shape_over = tsr_is_override(tsr_loader_key(l, shape));
  bool auto_over = tsr_is_override(tsr_loader_key(l, "mesh"));
  if (shape_over == auto_over) {
    tsr_loader_contradict(l, shape, "mesh");
  } else if (shape_over) {
    d->mesh_auto = false;
  } else {
    int row = tsr_field_find_dotted(shape);
    d->mesh_ndim = 0;
    l->origins->values[row] = l->origins->keys[row] = NULL;
  }
}

static void resolve_mesh(tsr_loader *l) {
  tsr_config_device *d = &l->config->device;
  const tsr_yaml *mesh = tsr_loader_value(l, "mesh");
  const tsr_yaml *devices = tsr_loader_value(l, "mesh.devices");
  d->mesh_auto = mesh && mesh->kind == TSR_YAML_SCALAR && !strcmp(mesh->text, "auto");
  choose_detection(l);
  if (given(l, "mesh.shape") && given(l, "device_config.mesh_shape")) choose_shape(l);
  tsr_loader_take_origin(l, "device_config.mesh_shape", "mesh.shape");
  if (devices && devices->kind == TSR_YAML_LIST && given(l, "device_config.mesh_shape"))
    tsr_loader_contradict(l, "device_config.mesh_shape", "mesh.devices");
  else if (devices) resolve_devices(l, devices);
  check_devices_count(l);
  if (d->axes_count && d->mesh_ndim && d->axes_count != d->mesh_ndim)
    tsr_diag_error(
        l->diags, tsr_loader_value(l, "mesh.axes")->location,
        "%d axes are named for a mesh of %d dimensions", d->axes_count, d->mesh_ndim);
  bool shaped = given(l, "mesh.shape") || given(l, "device_config.mesh_shape"); /* perhaps badly */
  if (d->axes_count && !shaped && !devices && !d->mesh_auto) {
    tsr_diag_error(
        l->diags, tsr_loader_value(l, "mesh.axes")->location,
        "the axes have neither shape nor devices");
    tsr_diag_hint(l->diags, "write shape: [2, 2], or devices: 4");
  }
}

void tsr_config_resolve(tsr_loader *l) {
  resolve_training(l);
  tsr_step_resolve(l);
  tsr_checkpoint_resolve(l);
  tsr_lora_resolve(l);
  resolve_optimizer(l);
  resolve_scheduler(l);
  resolve_mesh(l);
  tsr_moe_axis_resolve(l);
  tsr_pipeline_resolve(l);
}
