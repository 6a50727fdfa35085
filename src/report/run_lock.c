// SPDX-License-Identifier: Apache-2.0
#include "report/run_lock.h"
#include "base/file_read.h"
#include "base/json.h"
#include "base/process_info.h"
#include "base/text.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the chain ---- */

static void add_text(tsr_sha256 *sha, const char *text) {
  tsr_sha256_update(sha, text, strlen(text));
}

void tsr_run_lock_begin_chain(
    tsr_arena *arena, const tsr_recipe_entry *recipe, int count, tsr_locked_step *step) {
  tsr_sha256 *sha = tsr_sha256_new(arena);
  char line[64];
  snprintf(line, sizeof line, "tessera-train run.lock %d\n", TSR_RUN_LOCK_FORMAT);
  add_text(sha, line);
  for (int i = 0; i < count; i++) {
    add_text(sha, recipe[i].key);
    add_text(sha, "=");
    add_text(sha, recipe[i].value);
    add_text(sha, "\n");
  }
  snprintf(line, sizeof line, "%" PRId64 " %016" PRIx64 "\n", step->step, step->weights);
  add_text(sha, line);
  tsr_sha256_final(sha, step->chain);
}

void tsr_run_lock_continue_chain(
    tsr_sha256 *sha, const tsr_locked_step *last, tsr_locked_step *step) {
  char line[64];
  snprintf(
      line, sizeof line, "%" PRId64 " %08" PRIx32 " %016" PRIx64 "\n", step->step, step->loss,
      step->weights);
  add_text(sha, last->chain);
  add_text(sha, "\n");
  add_text(sha, line);
  tsr_sha256_final(sha, step->chain);
}

/* ---- reading ---- */

typedef struct {
  tsr_arena *arena;
  tsr_run_lock *lock;
  tsr_sha256 *sha;
  int line;
  int starts_room;
  int steps_room;
  tsr_diags *diags;
} reader;

static tsr_location here(const reader *r) {
  return (tsr_location){.file = r->lock->path, .line = r->line, .col = 1};
}

/* The last step so far. */
static const tsr_locked_step *last_step(const reader *r) {
  const tsr_run_lock *l = r->lock;
  return l->steps_count ? &l->steps[l->steps_count - 1] : &l->first;
}

static bool read_recipe(reader *r, const cJSON *map) {
  tsr_run_lock *l = r->lock;
  if (!cJSON_IsObject(map)) return tsr_diag_error(r->diags, here(r), "it has no recipe");
  l->recipe = tsr_arena_array(r->arena, tsr_recipe_entry, cJSON_GetArraySize(map) + 1);
  for (const cJSON *e = map->child; e; e = e->next) {
    if (!cJSON_IsString(e))
      return tsr_diag_error(r->diags, here(r), "'%s' of the recipe is no string", e->string);
    l->recipe[l->recipe_count++] = (tsr_recipe_entry){e->string, e->valuestring};
  }
  return true;
}

/* The hash stands there for who looks up a run by it; the chain begins with the recipe itself. */
static bool recipe_hash_is(reader *r, const char *hash) {
  char wanted[TSR_HASH_TEXT];
  tsr_recipe_hash(r->lock->recipe, r->lock->recipe_count, wanted);
  return !strcmp(wanted, hash) ||
         tsr_diag_failure(
             r->diags, here(r), "recipe_hash is not the recipe's: one of the two was changed");
}

static bool read_head(reader *r, const cJSON *json) {
  tsr_run_lock *l = r->lock;
  int64_t format;
  if (!tsr_json_int(json, "format", l->path, &format, r->diags)) return false;
  if (format != TSR_RUN_LOCK_FORMAT)
    return tsr_diag_error(
        r->diags, here(r), "its format is %" PRId64 "; this program reads format %d", format,
        TSR_RUN_LOCK_FORMAT);
  return tsr_json_text(json, "recipe_hash", l->path, &l->recipe_hash, r->diags) &&
         tsr_json_text(json, "policy", l->path, &l->policy, r->diags) &&
         tsr_json_text(json, "config", l->path, &l->config, r->diags) &&
         read_recipe(r, tsr_json_get(json, "recipe")) && recipe_hash_is(r, l->recipe_hash);
}

static bool read_hex(reader *r, const cJSON *json, const char *key, uint64_t *ret) {
  const char *text;
  char *end;
  if (!tsr_json_text(json, key, r->lock->path, &text, r->diags)) return false;
  *ret = strtoull(text, &end, 16);
  return (strlen(text) == 16 && !*end) ||
         tsr_diag_error(r->diags, here(r), "'%s' is not 16 hexadecimal digits", key);
}

static bool chain_is(reader *r, const char *wanted, const char *found) {
  return !strcmp(wanted, found) ||
         tsr_diag_failure(
             r->diags, here(r),
             "the chain of hashes is broken: this line, the recipe or a line before was changed");
}

/* The first one begins the chain, the others are of a step that was done. */
static bool read_start(reader *r, const cJSON *json) {
  tsr_run_lock *l = r->lock;
  const char *file = l->path, *chain;
  tsr_lock_start s;
  if (!(tsr_json_int(json, "step", file, &s.step, r->diags) &&
        read_hex(r, json, "weights", &s.weights) &&
        tsr_json_text(json, "chain", file, &chain, r->diags) &&
        tsr_json_text(json, "mesh", file, &s.mesh, r->diags) &&
        tsr_json_text(json, "isa", file, &s.isa, r->diags) &&
        tsr_json_text(json, "cpu", file, &s.cpu, r->diags) &&
        tsr_json_int(json, "ranks", file, &s.ranks, r->diags) &&
        tsr_json_int(json, "processes", file, &s.processes, r->diags) &&
        tsr_json_int(json, "threads", file, &s.threads, r->diags) &&
        tsr_json_text(json, "version", file, &s.version, r->diags) &&
        tsr_json_text(json, "compiler", file, &s.compiler, r->diags) &&
        tsr_json_text(json, "program", file, &s.program, r->diags)))
    return false;
  const cJSON *config_hash = tsr_json_get(json, "config_hash");
  s.config_hash = cJSON_IsString(config_hash) ? config_hash->valuestring : NULL;
  if (!l->starts_count) {
    l->first = (tsr_locked_step){.step = s.step, .weights = s.weights};
    tsr_run_lock_begin_chain(r->arena, l->recipe, l->recipe_count, &l->first);
  }
  const tsr_locked_step *last = last_step(r);
  if (s.step != last->step || s.weights != last->weights)
    return tsr_diag_failure(
        r->diags, here(r),
        "the run starts at step %" PRId64 " here, but the step before is %" PRId64, s.step,
        last->step);
  tsr_arena_grow(r->arena, (void **)&l->starts, sizeof s, l->starts_count, &r->starts_room);
  l->starts[l->starts_count++] = s;
  return chain_is(r, last->chain, chain);
}

/* null: not a finite number */
static bool is_loss(const char *text, uint32_t bits) {
  char *end;
  float loss = strtof(text, &end);
  uint32_t found;
  memcpy(&found, &loss, sizeof found);
  bool finite = (bits & 0x7f800000) != 0x7f800000;
  return finite ? !*end && found == bits : !strcmp(text, "null");
}

/* Steps are many, and always written in the same way. */
static bool read_step(reader *r, const char *line, const char *end) {
  tsr_run_lock *l = r->lock;
  tsr_locked_step s = {0};
  char loss[40], chain[TSR_SHA256_TEXT_BYTES];
  int used = 0;
  int found = sscanf(
      line,
      "{\"event\":\"step\",\"step\":%" SCNd64 ",\"loss\":%39[^,],\"loss_bits\":\"%8" SCNx32
      "\",\"weights\":\"%16" SCNx64 "\",\"chain\":\"%64[0-9a-f]\"}%n",
      &s.step, loss, &s.loss, &s.weights, chain, &used);
  if (found != 5 || line + used != end || !is_loss(loss, s.loss))
    return tsr_diag_error(r->diags, here(r), "this is no line of a run.lock");
  if (!l->starts_count || s.step != last_step(r)->step + 1)
    return tsr_diag_failure(
        r->diags, here(r), "step %" PRId64 " does not follow the line before", s.step);
  tsr_run_lock_continue_chain(r->sha, last_step(r), &s);
  if (l->steps_count == INT32_MAX) return tsr_diag_error(r->diags, here(r), "too many steps");
  tsr_arena_grow(r->arena, (void **)&l->steps, sizeof s, (int)l->steps_count, &r->steps_room);
  l->steps[l->steps_count++] = s;
  return chain_is(r, s.chain, chain);
}

static bool read_line(reader *r, const char *line, const char *end) {
  static const char step[] = "{\"event\":\"step\",", start[] = "{\"event\":\"start\",",
                    lock[] = "{\"event\":\"lock\",";
  cJSON *json;
  if (r->line > 1 && !strncmp(line, step, strlen(step))) return read_step(r, line, end);
  bool is_lock = !strncmp(line, lock, strlen(lock)),
       is_start = !strncmp(line, start, strlen(start));
  if (r->line == 1 ? !is_lock : !is_start)
    return tsr_diag_error(
        r->diags, here(r), r->line == 1 ? "this is no run.lock" : "this is no line of a run.lock");
  if (!tsr_json_parse(r->arena, r->lock->path, line, (size_t)(end - line), &json, r->diags))
    return false;
  return is_lock ? read_head(r, json) : read_start(r, json);
}

/* What json_lines.h would cut off for a run that begins behind `step`. */
static bool is_behind(const char *line, int64_t step) {
  const char *at = strstr(line, "\"step\":");
  return at && strtoll(at + strlen("\"step\":"), NULL, 10) > step;
}

bool tsr_run_lock_read(tsr_arena *arena, const char *path, tsr_run_lock *ret, tsr_diags *diags) {
  return tsr_run_lock_read_up_to(arena, path, INT64_MAX, ret, diags);
}

bool tsr_run_lock_read_up_to(
    tsr_arena *arena, const char *path, int64_t step, tsr_run_lock *ret, tsr_diags *diags) {
  reader r = {.arena = arena, .lock = ret, .diags = diags, .sha = tsr_sha256_new(arena)};
  const char *file =
      tsr_file_is_folder(path) ? tsr_path_join(arena, path, TSR_RUN_LOCK_NAME) : path;
  char *text;
  size_t length;
  *ret = (tsr_run_lock){.path = file};
  if (!tsr_file_read_regular(arena, file, SIZE_MAX / 2, TSR_NOWHERE, &text, &length, diags))
    return false;
  for (char *line = text, *end; (end = memchr(line, '\n', (size_t)(text + length - line)));
       line = end + 1) {
    r.line++;
    *end = 0;
    if (is_behind(line, step)) break;
    if (!read_line(&r, line, end)) return false;
  }
  if (ret->starts_count) return true;
  r.line = 1;
  return tsr_diag_error(diags, here(&r), "this is no run.lock: it has no start of a run");
}

int64_t tsr_run_lock_last(const tsr_run_lock *l) { return l->first.step + l->steps_count; }

const tsr_locked_step *tsr_run_lock_at(const tsr_run_lock *l, int64_t step) {
  int64_t at = step - l->first.step;
  if (at == 0) return &l->first;
  return at > 0 && at <= l->steps_count ? &l->steps[at - 1] : NULL;
}

/* ---- what this process runs ---- */

static const char *cpu_name(tsr_arena *arena) {
  enum { BYTES_MAX = 1 << 22 };
  char *text;
  size_t length;
  if (!tsr_file_read(
          arena, "/proc/cpuinfo", BYTES_MAX, TSR_NOWHERE, &text, &length, tsr_diags_new(arena)))
    return "unknown";
  const char *key = strstr(text, "model name"), *colon = key ? strchr(key, ':') : NULL;
  if (!colon) return "unknown";
  return tsr_arena_strndup(arena, colon + 2, strcspn(colon + 2, "\n"));
}

void tsr_lock_start_describe(tsr_arena *arena, tsr_lock_start *ret) {
  char hash[TSR_HASH_TEXT];
  tsr_process_program_hash(hash);
  ret->cpu = cpu_name(arena);
  ret->compiler = "C compiler " __VERSION__;
  ret->program = tsr_arena_strdup(arena, hash);
}
