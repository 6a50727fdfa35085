// SPDX-License-Identifier: Apache-2.0
/* Pipelines: where stages begin, how many blocks each has, the name of their schedule, and
 * tt-train's multihost_config, which has the same meaning. */
#include "config/config_internal.h"
#include <ctype.h>
#include <string.h>

/* --- stages --- */

/* The text of a node or of a label. */
static bool
read_word(tsr_loader *l, const char *name, const tsr_yaml *node, const char **ret_word) {
  *ret_word = node->text;
  if (node->kind == TSR_YAML_SCALAR && *node->text) return true;
  return tsr_diag_error(
      l->diags, node->location, "'%s' must be a text that is not empty, found %s", name,
      tsr_yaml_describe(l->arena, node));
}

/* {name: encoder, begin: block.3.n} */
static bool read_stage_map(
    tsr_loader *l, const char *where, const tsr_yaml *map, bool first,
    tsr_config_stage *ret_stage) {
  static const char *const keys[] = {"name", "begin"};
  bool ok = true;
  for (int i = 0; i < map->count; i++) {
    const tsr_yaml *key = map->keys[i];
    bool name = !strcmp(key->text, "name"), begin = !strcmp(key->text, "begin");
    const char **to = name ? &ret_stage->name : &ret_stage->begin;
    if (name || begin) {
      ok = read_word(l, key->text, map->items[i], to) && ok;
      continue;
    }
    ok = tsr_diag_error(l->diags, key->location, "unknown key '%s' in %s", key->text, where);
    tsr_diag_nearest(l->diags, key->text, keys, 2);
  }
  if (ok && !*ret_stage->name)
    return tsr_diag_error(l->diags, map->location, "'%s' has no name", where);
  if (!ok || first || *ret_stage->begin) return ok;
  tsr_diag_error(
      l->diags, map->location, "'%s' has no begin: the node that the stage begins with", where);
  tsr_diag_hint(l->diags, "only the first stage begins where the model does");
  return false;
}

static bool check_stages(tsr_loader *l, const tsr_config_stage *stages, int count) {
  bool ok = true;
  for (int i = 1; i < count; i++)
    for (int k = 0; ok && k < i; k++) {
      const tsr_config_stage *a = &stages[k], *b = &stages[i];
      if (*b->name && !strcmp(a->name, b->name))
        ok = tsr_diag_error(l->diags, b->location, "two stages have the name '%s'", b->name);
      else if (*b->begin && !strcmp(a->begin, b->begin))
        ok = tsr_diag_error(l->diags, b->location, "two stages begin with '%s'", b->begin);
    }
  return ok;
}

bool tsr_stages_read(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  if (node->kind == TSR_YAML_NULL) return true;
  if (node->kind != TSR_YAML_LIST) return tsr_value_wrong_type(l, f, key, node);
  /* Nodes alone are those of the second stage and of the later ones. */
  bool maps = node->count && node->items[0]->kind == TSR_YAML_MAP, ok = true;
  int shift = maps || !node->count ? 0 : 1, count = node->count + shift;
  if (count > TSR_STAGES_MAX)
    return tsr_diag_error(
        l->diags, node->location, "'%s' makes %d stages, a pipeline has at most %d", key, count,
        TSR_STAGES_MAX);
  tsr_config_stage *stages = tsr_arena_array(l->arena, tsr_config_stage, count + 1);
  stages[0] = (tsr_config_stage){"", "", node->location};
  for (int i = 0; i < node->count; i++) {
    const tsr_yaml *item = node->items[i];
    const char *where = tsr_arena_printf(l->arena, "%s[%d]", key, i);
    tsr_config_stage *stage = &stages[i + shift];
    *stage = (tsr_config_stage){"", "", item->location};
    if (!maps) ok = read_word(l, where, item, &stage->begin) && ok;
    else if (item->kind == TSR_YAML_MAP) ok = read_stage_map(l, where, item, i == 0, stage) && ok;
    else
      ok = tsr_diag_error(
          l->diags, item->location, "'%s' must be a map, as '%s[0]' is, found %s", where, key,
          tsr_yaml_describe(l->arena, item));
  }
  if (!ok || !check_stages(l, stages, count)) return false;
  l->config->pipeline.stages = stages;
  l->config->pipeline.stages_count = count;
  return true;
}

/* --- blocks of each rank --- */

/* Where the i-th entry belongs: a map's keys are the ranks, in any order. */
static bool read_rank(
    tsr_loader *l, const char *key, const tsr_yaml *node, int i, const int *blocks, int *ret_rank) {
  int64_t rank = i;
  *ret_rank = 0;
  if (node->kind == TSR_YAML_LIST) {
    *ret_rank = i;
    return true;
  }
  if (!tsr_yaml_int(node->keys[i], &rank) || rank < 0 || rank >= node->count)
    return tsr_diag_error(
        l->diags, node->keys[i]->location, "'%s' has %d entries: its ranks are 0 to %d, found %s",
        key, node->count, node->count - 1, tsr_yaml_describe(l->arena, node->keys[i]));
  if (blocks[rank])
    return tsr_diag_error(
        l->diags, node->keys[i]->location, "'%s' has rank %d twice", key, (int)rank);
  *ret_rank = (int)rank;
  return true;
}

bool tsr_blocks_read(tsr_loader *l, const tsr_field *f, const char *key, const tsr_yaml *node) {
  if (node->kind == TSR_YAML_NULL) return true;
  if (node->kind == TSR_YAML_SCALAR) return tsr_value_wrong_type(l, f, key, node);
  if (node->count > TSR_STAGES_MAX)
    return tsr_diag_error(
        l->diags, node->location, "'%s' has %d ranks, a pipeline has at most %d", key, node->count,
        TSR_STAGES_MAX);
  int *blocks = tsr_arena_array(l->arena, int, node->count + 1); /* 0: not yet there */
  bool ok = true;
  tsr_field item = {.type = TSR_FIELD_INT, .range = f->range};
  for (int i = 0; i < node->count; i++) {
    int rank;
    int64_t value = 0;
    bool there = read_rank(l, key, node, i, blocks, &rank);
    const char *name = tsr_arena_printf(l->arena, "%s[%d]", key, there ? rank : i);
    ok = there && tsr_scalar_read(l, &item, name, node->items[i]) && ok;
    if (there && tsr_yaml_int(node->items[i], &value)) blocks[rank] = (int)value;
  }
  if (!ok) return false;
  l->config->pipeline.blocks_per_rank = blocks;
  l->config->pipeline.blocks_count = node->count;
  l->config->pipeline.blocks_place = node->location;
  return true;
}

/* --- multihost_config --- */

#define HOSTS "multihost_config"
#define HOSTS_PIPE "multihost_config.pipeline_parallel_config"

static void check_blocks(tsr_loader *l) {
  const tsr_config_pipeline *p = &l->config->pipeline;
  const tsr_yaml *node = tsr_loader_value(l, HOSTS_PIPE ".num_blocks");
  int64_t blocks, sum = 0;
  for (int i = 0; i < p->blocks_count; i++) sum += p->blocks_per_rank[i];
  if (!p->blocks_count || !tsr_yaml_int(node, &blocks) || blocks < 1) return; /* said already */
  if (sum != blocks) {
    tsr_diag_error(
        l->diags, node->location, "Number of blocks must match number of blocks per rank.");
    tsr_diag_hint(
        l->diags, "num_blocks is %lld, blocks_per_rank makes %lld", (long long)blocks,
        (long long)sum);
  }
  if (p->workers > 1 && p->blocks_count != p->workers)
    tsr_diag_error(
        l->diags, p->blocks_place, "'blocks_per_rank' has %d ranks, but num_workers is %lld",
        p->blocks_count, (long long)p->workers);
}

/* Of a multihost_config that is enabled. */
static void resolve_multihost(tsr_loader *l) {
  static const char *const needed[] = {
      HOSTS ".num_workers", HOSTS_PIPE ".num_blocks", HOSTS_PIPE ".blocks_per_rank"};
  const tsr_yaml *enabled = tsr_loader_value(l, HOSTS ".enabled");
  const tsr_yaml *key = tsr_loader_key(l, HOSTS), *workers = tsr_loader_value(l, needed[0]);
  const tsr_yaml *pipeline = tsr_loader_key(l, HOSTS_PIPE);
  const tsr_yaml *socket = tsr_loader_value(l, HOSTS ".socket_type");
  bool on;
  if (!tsr_yaml_bool(enabled, &on) || !on) return;
  if (!pipeline || tsr_loader_value(l, HOSTS_PIPE)->kind == TSR_YAML_NULL) {
    tsr_value_unsupported(
        l, key->location,
        "an aggregator and an optimizer process (multihost_config without "
        "pipeline_parallel_config)");
    return;
  }
  for (int i = 0; i < 3; i++)
    if (!tsr_loader_key(l, needed[i]))
      tsr_diag_error(
          l->diags, i ? pipeline->location : key->location, "'%s' has no '%s'",
          i ? "pipeline_parallel_config" : "multihost_config", strrchr(needed[i], '.') + 1);
  int64_t count;
  if (tsr_yaml_int(workers, &count) && (count == 0 || count == 1))
    tsr_diag_error(
        l->diags, workers->location, "a pipeline over processes has at least 2, found %lld",
        (long long)count);
  if (socket && (!strcmp(socket->text, "mpi") || !strcmp(socket->text, "fabric")))
    tsr_diag(
        l->diags, tsr_diag_normative(l->diags, TSR_WARNING),
        tsr_loader_key(l, HOSTS ".socket_type")->location,
        "'socket_type' has no effect: the transport is chosen by the process");
  check_blocks(l);
}

/* --- the schedule --- */

/* Whether they differ only in capitals, '-' and '_'. */
static bool is_spelling(const char *a, const char *b) {
  for (;; a++, b++) {
    a += strspn(a, "-_");
    b += strspn(b, "-_");
    if (tolower((unsigned char)*a) != tolower((unsigned char)*b)) return false;
    if (!*a) return true;
  }
}

/* The words of schedule/pipeline.h, in all spellings that it takes, or a file. */
static void resolve_schedule(tsr_loader *l) {
  static const char *const names[] = {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v", "file:PATH"};
  static const char *const others[] = {"interleaved_1f1b", "zb_v_zero_bubble"};
  tsr_config_pipeline *p = &l->config->pipeline;
  const tsr_yaml *node = tsr_loader_value(l, "pipeline.schedule");
  if (!node || node->kind != TSR_YAML_SCALAR) return;
  if (!strncmp(p->schedule, "file:", 5)) {
    p->schedule_file = p->schedule + 5;
    if (!*p->schedule_file)
      tsr_diag_error(l->diags, node->location, "'%s' names no file", p->schedule);
    else if (l->read_files)
      tsr_config_find_file(
          l->arena, p->schedule + 5, tsr_loader_file_of(l, node), node->location, &p->schedule_file,
          l->diags);
    return;
  }
  for (int i = 0; i < 5; i++)
    if (is_spelling(p->schedule, names[i])) return;
  for (int i = 0; i < 2; i++)
    if (is_spelling(p->schedule, others[i])) return;
  tsr_diag_error(
      l->diags, node->location, "unknown pipeline schedule: %s", tsr_yaml_describe(l->arena, node));
  tsr_diag_nearest(l->diags, p->schedule, names, 6);
}

void tsr_pipeline_resolve(tsr_loader *l) {
  const tsr_config_pipeline *p = &l->config->pipeline;
  const tsr_config_device *d = &l->config->device;
  resolve_schedule(l);
  resolve_multihost(l);
  if (p->stages_count && p->blocks_count)
    tsr_loader_contradict(l, "pipeline.stages", "pipeline.blocks_per_rank");
  if (p->workers && d->enable_pp)
    tsr_loader_contradict(l, "device_config.enable_pp", "pipeline.workers");
  for (int i = 0; i < d->axes_count; i++)
    if (p->workers && d->axes[i] == TSR_PP)
      tsr_loader_contradict(l, "mesh.axes", "pipeline.workers");
}
