// SPDX-License-Identifier: Apache-2.0
#include "sweep/definition.h"
#include "sweep/halving.h"
#include "sweep/key.h"
#include <inttypes.h>
#include <string.h>

tsr_sweep tsr_sweep_begin(void) { return (tsr_sweep){.metric = TSR_SWEEP_LOSS_VALIDATION}; }

/* ---- parameters ---- */

bool tsr_sweep_add(
    tsr_arena *arena, const char *name, tsr_location place, const tsr_yaml *value,
    const tsr_config *config, bool from_line, tsr_sweep *s, tsr_diags *diags) {
  const char *key;
  const tsr_field *field;
  tsr_sweep_parameter p;
  if (!tsr_sweep_key_find(arena, name, config, place, &key, &field, diags) ||
      !tsr_sweep_parameter_read(arena, name, key, field, value, &p, diags))
    return false;
  if (!strcmp(key, "training_config.checkpoint_dir"))
    return tsr_diag_error(
        diags, place, "'%s' is no parameter: each run has its checkpoints in its own folder", name);
  p.from_line = from_line;
  int at = 0;
  while (at < s->parameters_count && strcmp(s->parameters[at].key, key)) at++;
  bool again = at < s->parameters_count;
  if (again && s->parameters[at].from_line == from_line)
    return tsr_diag_error(
        diags, place, "'%s' and '%s' are both '%s'", s->parameters[at].name, name, key);
  if (at == TSR_SWEEP_PARAMETERS_MAX)
    return tsr_diag_error(
        diags, place, "a sweep has at most %d parameters", TSR_SWEEP_PARAMETERS_MAX);
  s->parameters[at] = p;
  s->parameters_count += !again;
  return true;
}

/* ---- the section ---- */

typedef struct {
  const char *key;
  int64_t least, *value;
} number;

static bool unknown(
    const tsr_yaml *key, const char *where, const char *const *words, int count, tsr_diags *diags) {
  tsr_diag_error(diags, key->location, "unknown key '%s' in %s", key->text, where);
  tsr_diag_nearest(diags, key->text, words, count);
  return false;
}

static bool wrong(tsr_arena *arena, const tsr_yaml *node, const char *what, tsr_diags *diags) {
  return tsr_diag_error(
      diags, node->location, "%s, found %s", what, tsr_yaml_describe(arena, node));
}

static bool read_numbers(
    tsr_arena *arena, const tsr_yaml *map, const char *where, const number *numbers, int count,
    tsr_diags *diags) {
  const char *words[8];
  bool ok = true;
  for (int i = 0; i < count; i++) words[i] = numbers[i].key;
  if (map->kind != TSR_YAML_MAP) return wrong(arena, map, "a method is a map of numbers", diags);
  for (int e = 0; e < map->count; e++) {
    int i = 0;
    while (i < count && strcmp(map->keys[e]->text, numbers[i].key)) i++;
    if (i == count) ok = unknown(map->keys[e], where, words, count, diags);
    else if (!tsr_yaml_int(map->items[e], numbers[i].value) || *numbers[i].value < numbers[i].least)
      ok = tsr_diag_error(
          diags, map->items[e]->location, "'%s' must be an integer, at least %" PRId64 ", found %s",
          numbers[i].key, numbers[i].least, tsr_yaml_describe(arena, map->items[e]));
  }
  return ok;
}

static bool check_rungs(int64_t min_steps, int64_t max_steps, tsr_sweep *s, tsr_diags *diags) {
  int64_t *rungs = s->rungs;
  if (min_steps > max_steps)
    return tsr_diag_error(
        diags, s->halving, "halving: min_steps is %" PRId64 ", above max_steps, %" PRId64,
        min_steps, max_steps);
  if (tsr_halving_rungs(s->eta, min_steps, max_steps, rungs, &s->rungs_count)) return true;
  int64_t last = rungs[s->rungs_count - 1], next;
  tsr_diag_error(
      diags, s->halving,
      "halving: max_steps is %" PRId64 ", not min_steps times a power of eta: %" PRId64
      " × %" PRId64 "ⁿ",
      max_steps, min_steps, s->eta);
  if (__builtin_mul_overflow(last, s->eta, &next))
    tsr_diag_hint(diags, "%" PRId64 " would do", last);
  else tsr_diag_hint(diags, "%" PRId64 " and %" PRId64 " would do", last, next);
  return false;
}

static bool read_halving(
    tsr_arena *arena, const tsr_yaml *map, const tsr_config *config, tsr_sweep *s,
    tsr_diags *diags) {
  int64_t min_steps = 0, max_steps = config->training.max_steps, seed = 0, runs = 0;
  s->eta = 3;
  s->halving = map->location;
  const number numbers[] = {
      {"eta", 2, &s->eta},
      {"min_steps", 1, &min_steps},
      {"max_steps", 1, &max_steps},
      {"runs", 1, &runs},
      {"seed", 0, &seed}};
  if (!read_numbers(arena, map, "halving", numbers, 5, diags)) return false;
  s->random_runs = runs;
  s->seed = (uint64_t)seed;
  if (!min_steps)
    return tsr_diag_error(
        diags, map->location, "halving needs min_steps, the steps before the first decision");
  return check_rungs(min_steps, max_steps, s, diags);
}

static bool read_random(tsr_arena *arena, const tsr_yaml *map, tsr_sweep *s, tsr_diags *diags) {
  int64_t seed = 0;
  const number numbers[] = {{"runs", 1, &s->random_runs}, {"seed", 0, &seed}};
  if (!read_numbers(arena, map, "random", numbers, 2, diags)) return false;
  s->seed = (uint64_t)seed;
  return s->random_runs ||
         tsr_diag_error(diags, map->location, "random needs runs, how many there are");
}

static bool read_method(
    tsr_arena *arena, const tsr_yaml *node, const tsr_config *config, tsr_sweep *s,
    tsr_diags *diags) {
  static const char *const methods[] = {"grid", "random", "halving"};
  static const char shape[] =
      "a method is grid, {random: {runs: N}} or {halving: {eta: 3, min_steps: N}}";
  const char *name = node->kind == TSR_YAML_SCALAR ? node->text : NULL;
  s->method = node->location;
  if (name && !strcmp(name, methods[0])) return true;
  if (node->kind != TSR_YAML_MAP || node->count != 1) return wrong(arena, node, shape, diags);
  if (!strcmp(node->keys[0]->text, methods[1])) return read_random(arena, node->items[0], s, diags);
  if (!strcmp(node->keys[0]->text, methods[2]))
    return read_halving(arena, node->items[0], config, s, diags);
  tsr_diag_error(diags, node->keys[0]->location, "there is no method '%s'", node->keys[0]->text);
  tsr_diag_nearest(diags, node->keys[0]->text, methods, 3);
  return false;
}

static bool read_metric(tsr_arena *arena, const tsr_yaml *node, tsr_sweep *s, tsr_diags *diags) {
  static const char *const metrics[] = {TSR_SWEEP_LOSS_VALIDATION, TSR_SWEEP_LOSS_TRAIN};
  s->metric_place = node->location;
  for (int i = 0; i < 2; i++)
    if (node->kind == TSR_YAML_SCALAR && !strcmp(node->text, metrics[i])) {
      s->metric = metrics[i];
      return true;
    }
  wrong(arena, node, "a metric is loss/validation or loss/train", diags);
  return false;
}

static bool read_parameters(
    tsr_arena *arena, const tsr_yaml *map, const tsr_config *config, tsr_sweep *s,
    tsr_diags *diags) {
  bool ok = true;
  if (map->kind != TSR_YAML_MAP)
    return wrong(arena, map, "parameters are a map of keys and values", diags);
  for (int i = 0; i < map->count; i++)
    ok &= tsr_sweep_add(
        arena, map->keys[i]->text, map->keys[i]->location, map->items[i], config, false, s, diags);
  return ok;
}

bool tsr_sweep_read(
    tsr_arena *arena, const tsr_yaml *section, const tsr_config *config, tsr_sweep *s,
    tsr_diags *diags) {
  static const char *const keys[] = {"parameters", "method", "metric"};
  bool ok = true;
  if (!section) return true;
  if (section->kind != TSR_YAML_MAP) return wrong(arena, section, "'sweep' is a map", diags);
  for (int i = 0; i < section->count; i++) {
    const tsr_yaml *key = section->keys[i], *node = section->items[i];
    if (!strcmp(key->text, keys[0])) ok &= read_parameters(arena, node, config, s, diags);
    else if (!strcmp(key->text, keys[1])) ok &= read_method(arena, node, config, s, diags);
    else if (!strcmp(key->text, keys[2])) ok &= read_metric(arena, node, s, diags);
    else ok = unknown(key, "sweep", keys, 3, diags);
  }
  return ok;
}

/* ---- the whole ---- */

void tsr_sweep_set_random(tsr_sweep *s, int64_t runs, const uint64_t *seed) {
  if (runs) s->random_runs = runs;
  if (seed) s->seed = *seed;
}

bool tsr_sweep_check(const tsr_sweep *s, tsr_diags *diags) {
  bool ok = true;
  if (!s->parameters_count) {
    tsr_diag_error(diags, TSR_NOWHERE, "the sweep has no parameters");
    tsr_diag_hint(
        diags, "--set 'lr=[1e-3, 3e-4]' is one, as is a line of sweep.parameters in the "
               "configuration");
    return false;
  }
  for (int i = 0; i < s->parameters_count && !s->random_runs; i++) {
    const tsr_sweep_parameter *p = &s->parameters[i];
    if (p->count) continue;
    ok = tsr_diag_error(
        diags, p->location, "a grid needs the values of '%s': a distribution is drawn from",
        p->name);
    tsr_diag_hint(diags, "--random N draws N runs, as does a method with `runs`");
  }
  return ok;
}

void tsr_sweep_print_method(const tsr_sweep *s, tsr_text *text) {
  if (s->eta) tsr_text_add(text, "halving: eta %" PRId64 ", rungs ", s->eta);
  for (int i = 0; i < s->rungs_count; i++)
    tsr_text_add(text, "%s%" PRId64, i ? ", " : "", s->rungs[i]);
  if (s->eta) tsr_text_add(text, "; ");
  if (s->random_runs)
    tsr_text_add(text, "random: %" PRId64 " runs, seed %" PRIu64, s->random_runs, s->seed);
  else tsr_text_add(text, "grid");
}
