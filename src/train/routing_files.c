// SPDX-License-Identifier: Apache-2.0
#include "train/routing_files.h"
#include "base/file_read.h"
#include "base/hash.h"
#include "base/new_file.h"
#include "checkpoint/safetensors.h"
#include "train/step_files.h"
#include <string.h>

/* ---- recording ---- */

static bool write_file(
    const tsr_routing_record *record, tsr_safetensor *tensors, int count,
    const int32_t *const *choices, tsr_diags *diags) {
  tsr_new_file file;
  char step[24];
  snprintf(step, sizeof step, "%lld", (long long)record->step);
  const char *metadata[] = {"step", step, "recipe", record->recipe};
  tsr_text header = {0};
  tsr_safetensors_header(tensors, count, metadata, 2, &header);
  bool ok = tsr_new_file_open(record->path, &file, diags) &&
            tsr_new_file_write(&file, header.data, header.length, diags);
  for (int i = 0; ok && i < count; i++)
    ok = tsr_new_file_write(&file, choices[i], (size_t)tensors[i].bytes, diags);
  tsr_text_free(&header);
  return ok && tsr_new_file_commit(&file, diags);
}

bool tsr_routing_record_write(
    const tsr_routing_record *record, tsr_executable *executable, tsr_diags *diags) {
  const tsr_routing_layer *layers;
  const int32_t *const *choices;
  tsr_arena *arena = tsr_arena_new();
  int count = tsr_executable_take_routing(executable, &layers, &choices);
  tsr_safetensor *tensors = tsr_arena_array(arena, tsr_safetensor, count + 1);
  for (int i = 0; i < count; i++) {
    int64_t tokens = layers[i].tokens * tsr_executable_microbatches(executable), k = layers[i].k;
    tensors[i] =
        (tsr_safetensor){.name = layers[i].name, .dtype = "I32", .ndim = 2, .shape = {tokens, k}};
    tensors[i].bytes = tokens * k * (int64_t)sizeof(int32_t);
  }
  tsr_step_file_path(&tsr_routing_files, record->folder, record->step, record->path);
  bool ok = !record->writes || write_file(record, tensors, count, choices, diags);
  tsr_arena_free(arena);
  return ok;
}

/* ---- replaying ---- */

enum { LOADED = 2 }; /* steps in memory */

struct tsr_routing_replay {
  const char *folder;
  char *path; /* of the step that was read last; messages keep it */
  int count;
  tsr_routing_layer *layers;
  int64_t *tokens;           /* per layer: of a step */
  int64_t *rows;             /* per layer: of dimension 0 of its input, in a step */
  int64_t step[LOADED];      /* 0: none */
  int32_t **choices[LOADED]; /* per layer */
  char hash[TSR_HASH_TEXT];
};

static bool check_tensor(
    const tsr_routing_replay *r, int layer, const char *path, const tsr_safetensor *t,
    tsr_diags *diags) {
  const tsr_routing_layer *l = &r->layers[layer];
  if (!strcmp(t->dtype, "I32") && t->ndim == 2 && t->shape[0] == r->tokens[layer] &&
      t->shape[1] == l->k)
    return true;
  return tsr_diag_error(
      diags, TSR_NOWHERE, "'%s': '%s' is %s %s, and the run's is I32 [%lld, %lld], (tokens, k)",
      path, l->name, t->dtype, tsr_shape_text(t->ndim, t->shape).text, (long long)r->tokens[layer],
      (long long)l->k);
}

/* What the graph chooses, and nothing else. */
static bool
check_tensors(const tsr_routing_replay *r, const tsr_safetensors *file, tsr_diags *diags) {
  bool ok = true;
  for (int i = 0; i < r->count; i++) {
    int at = tsr_safetensors_find(file, r->layers[i].name);
    if (at < 0)
      ok = tsr_diag_error(
          diags, TSR_NOWHERE, "'%s' has no tensor '%s', which is a choice of experts of the model",
          file->path, r->layers[i].name);
    else ok &= check_tensor(r, i, file->path, &file->tensors[at], diags);
  }
  for (int k = 0; k < file->tensors_count; k++) {
    bool known = false;
    for (int i = 0; i < r->count; i++) known |= !strcmp(file->tensors[k].name, r->layers[i].name);
    if (!known)
      ok = tsr_diag_error(
          diags, TSR_NOWHERE, "'%s': the model has no choice of experts '%s'", file->path,
          file->tensors[k].name);
  }
  return ok;
}

/* In ascending order, as choose_experts leaves them; false: two are the same. */
static bool sort_choices(int32_t *experts, int64_t k) {
  bool distinct = true;
  for (int64_t i = 1; i < k; i++)
    for (int64_t j = i; j > 0 && experts[j - 1] >= experts[j]; j--) {
      int32_t expert = experts[j];
      distinct &= experts[j - 1] != expert;
      experts[j] = experts[j - 1];
      experts[j - 1] = expert;
      if (!distinct) return false;
    }
  return distinct;
}

static bool take_choices(
    const tsr_routing_replay *r, int layer, const tsr_safetensors *file, int32_t *to,
    tsr_diags *diags) {
  const tsr_routing_layer *l = &r->layers[layer];
  const tsr_safetensor *t = &file->tensors[tsr_safetensors_find(file, l->name)];
  memcpy(to, file->map + t->offset, (size_t)t->bytes);
  for (int64_t token = 0; token < r->tokens[layer]; token++) {
    int32_t *experts = to + token * l->k;
    for (int64_t i = 0; i < l->k; i++)
      if (experts[i] < 0 || experts[i] >= l->experts)
        return tsr_diag_error(
            diags, TSR_NOWHERE, "'%s': '%s': token %lld chooses expert %d of %lld", file->path,
            l->name, (long long)token, experts[i], (long long)l->experts);
    if (!sort_choices(experts, l->k))
      return tsr_diag_error(
          diags, TSR_NOWHERE, "'%s': '%s': token %lld chooses an expert twice", file->path, l->name,
          (long long)token);
  }
  return true;
}

/* Files may have been renamed; those of other programs have no step. */
static bool check_step(int64_t step, const tsr_safetensors *file, tsr_diags *diags) {
  char want[24];
  snprintf(want, sizeof want, "%lld", (long long)step);
  for (int i = 0; i < file->metadata_count; i++)
    if (!strcmp(file->metadata[2 * i], "step") && strcmp(file->metadata[2 * i + 1], want))
      return tsr_diag_error(
          diags, TSR_NOWHERE, "'%s' has the routing of step %s, by its metadata", file->path,
          file->metadata[2 * i + 1]);
  return true;
}

static bool read_step(tsr_routing_replay *r, int64_t step, int32_t **choices, tsr_diags *diags) {
  tsr_arena *arena = tsr_arena_new();
  tsr_safetensors file;
  tsr_step_file_path(&tsr_routing_files, r->folder, step, r->path);
  bool ok = tsr_safetensors_open(arena, r->path, TSR_NOWHERE, &file, diags);
  bool is_open = ok;
  ok = ok && check_step(step, &file, diags) && check_tensors(r, &file, diags);
  for (int i = 0; ok && i < r->count; i++) ok = take_choices(r, i, &file, choices[i], diags);
  if (is_open) tsr_safetensors_close(&file);
  tsr_arena_free(arena);
  return ok;
}

static void find_layers(tsr_arena *arena, tsr_routing_replay *r, const tsr_graph *g) {
  r->count = tsr_graph_routing(g, &r->layers);
  r->tokens = tsr_arena_array(arena, int64_t, r->count + 1);
  r->rows = tsr_arena_array(arena, int64_t, r->count + 1);
  for (int k = 0; k < LOADED; k++) r->choices[k] = tsr_arena_array(arena, int32_t *, r->count + 1);
  for (int i = 0; i < r->count; i++) {
    r->tokens[i] = r->layers[i].tokens * g->microbatches;
    r->rows[i] = g->values[g->nodes[r->layers[i].node].outputs[0]].shape[0] * g->microbatches;
    for (int k = 0; k < LOADED; k++)
      r->choices[k][i] = tsr_arena_array(arena, int32_t, r->tokens[i] * r->layers[i].k);
  }
}

bool tsr_routing_replay_open(
    tsr_arena *arena, const char *folder, const tsr_graph *g, int64_t steps,
    tsr_routing_replay **ret, tsr_diags *diags) {
  tsr_routing_replay *r = tsr_arena_alloc(arena, sizeof *r);
  *r = (tsr_routing_replay){.folder = folder};
  find_layers(arena, r, g);
  tsr_hasher *hasher = tsr_hasher_new(arena);
  tsr_hasher_begin(hasher);
  r->path = tsr_arena_array(arena, char, strlen(folder) + TSR_STEP_FILE_BYTES);
  for (int64_t step = 1; step <= steps; step++) {
    tsr_step_file_path(&tsr_routing_files, folder, step, r->path);
    if (!tsr_file_exists(r->path)) {
      tsr_diag_error(diags, TSR_NOWHERE, "--replay-routing: '%s' was not found", r->path);
      tsr_diag_hint(diags, "the run has %lld step%s", (long long)steps, steps == 1 ? "" : "s");
      return false;
    }
    if (!read_step(r, step, r->choices[0], diags)) return false;
    for (int i = 0; i < r->count; i++)
      tsr_hasher_add(
          hasher, r->choices[0][i], sizeof(int32_t) * (size_t)(r->tokens[i] * r->layers[i].k));
  }
  tsr_hasher_end(hasher, r->hash);
  *ret = r;
  return true;
}

const char *tsr_routing_replay_hash(const tsr_routing_replay *r) { return r->hash; }

bool tsr_routing_replay_load(tsr_routing_replay *r, int64_t first, int64_t last, tsr_diags *diags) {
  for (int64_t step = first; step <= last; step++) {
    int at = (int)(step % LOADED);
    if (r->step[at] == step) continue;
    r->step[at] = 0;
    if (!read_step(r, step, r->choices[at], diags)) return false;
    r->step[at] = step;
  }
  return true;
}

bool tsr_routing_replay_fill(
    const tsr_routing_replay *r, int64_t step, const char *input, int64_t row, void *to) {
  size_t prefix = sizeof TSR_ROUTING_INPUT - 1;
  int i = 0;
  if (strncmp(input, TSR_ROUTING_INPUT, prefix)) return false;
  while (i < r->count && strcmp(input + prefix, r->layers[i].name)) i++;
  if (i == r->count) return false;
  int64_t each = r->tokens[i] * r->layers[i].k / r->rows[i];
  const int32_t *from = r->choices[step % LOADED][i];
  memcpy(to, from + row * each, sizeof(int32_t) * (size_t)each);
  return true;
}
