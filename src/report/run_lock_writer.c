// SPDX-License-Identifier: Apache-2.0
#include "report/run_lock_writer.h"
#include "base/file_read.h"
#include "report/json_lines.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

struct tsr_run_lock_writer {
  tsr_arena *arena;
  const char *path;
  bool existed;
  tsr_json_lines *lines;
  tsr_sha256 *sha;
  tsr_locked_step last;
};

static const char *const begins[] = {
    "{\"event\":\"lock\",\"format\":", "{\"event\":\"start\",\"step\":",
    "{\"event\":\"step\",\"step\":", NULL};
static const tsr_json_lines_kind kind = {"hashes of a run", begins};

bool tsr_run_lock_open(
    tsr_arena *arena, const char *path, tsr_run_lock_writer **ret, tsr_diags *diags) {
  tsr_run_lock_writer *w = *ret = tsr_arena_alloc(arena, sizeof *w);
  *w = (tsr_run_lock_writer){.arena = arena, .path = path, .sha = tsr_sha256_new(arena)};
  w->existed = tsr_file_exists(path);
  return tsr_json_lines_open(arena, path, &kind, NULL, &w->lines, diags);
}

static void add_hex(cJSON *line, const char *key, uint64_t number, int digits) {
  char text[17];
  snprintf(text, sizeof text, "%0*" PRIx64, digits, number);
  cJSON_AddStringToObject(line, key, text);
}

static cJSON *begin_line(const char *event) {
  cJSON *line = cJSON_CreateObject();
  cJSON_AddStringToObject(line, "event", event);
  return line;
}

static void add_head(tsr_run_lock_writer *w, const tsr_run_lock *head, tsr_diags *diags) {
  cJSON *line = begin_line("lock");
  tsr_json_add_int(line, "format", TSR_RUN_LOCK_FORMAT);
  cJSON_AddStringToObject(
      line, "note", "hashes detect faults; nothing here is signed, so they do not detect forgery");
  cJSON_AddStringToObject(line, "recipe_hash", head->recipe_hash);
  cJSON_AddStringToObject(line, "policy", head->policy);
  cJSON *recipe = cJSON_AddObjectToObject(line, "recipe");
  for (int i = 0; i < head->recipe_count; i++)
    cJSON_AddStringToObject(recipe, head->recipe[i].key, head->recipe[i].value);
  cJSON_AddStringToObject(line, "config", head->config);
  tsr_json_lines_add(w->lines, line, w->last.step, diags);
}

static void add_start(tsr_run_lock_writer *w, const tsr_lock_start *s, tsr_diags *diags) {
  cJSON *line = begin_line("start");
  tsr_json_add_int(line, "step", w->last.step);
  add_hex(line, "weights", w->last.weights, 16);
  cJSON_AddStringToObject(line, "chain", w->last.chain);
  cJSON_AddStringToObject(line, "mesh", s->mesh);
  tsr_json_add_int(line, "ranks", s->ranks);
  tsr_json_add_int(line, "processes", s->processes);
  tsr_json_add_int(line, "threads", s->threads);
  cJSON_AddStringToObject(line, "isa", s->isa);
  cJSON_AddStringToObject(line, "cpu", s->cpu);
  cJSON_AddStringToObject(line, "version", s->version);
  cJSON_AddStringToObject(line, "compiler", s->compiler);
  cJSON_AddStringToObject(line, "program", s->program);
  cJSON_AddStringToObject(line, "config_hash", s->config_hash);
  tsr_json_lines_add(w->lines, line, w->last.step, diags);
}

static void warn_of_new_chain(
    const tsr_run_lock_writer *w, const tsr_run_lock *head, const char *why, tsr_diags *diags) {
  tsr_diag_warning(
      diags, (tsr_location){.file = w->path},
      "the chain of hashes begins anew at step %" PRId64 ": %s", head->first.step, why);
}

/* The step of the file that the run resumes at, of the same recipe. NULL: there is none, which is a
 * warning where there is a file. */
static const tsr_locked_step *find_resumed(
    tsr_run_lock_writer *w, const tsr_run_lock *head, tsr_run_lock *ret_there, tsr_diags *diags) {
  int64_t step = head->first.step;
  tsr_diags *errors = tsr_diags_new(w->arena);
  if (!w->existed || !step) return NULL;
  if (!tsr_run_lock_read_up_to(w->arena, w->path, step, ret_there, errors))
    return warn_of_new_chain(w, head, tsr_diags_first_error(errors), diags), NULL;
  const tsr_locked_step *there = tsr_run_lock_at(ret_there, step);
  if (!there) warn_of_new_chain(w, head, "it has no such step", diags);
  else if (strcmp(ret_there->recipe_hash, head->recipe_hash))
    warn_of_new_chain(w, head, "it is of another recipe", diags);
  else return there;
  return NULL;
}

bool tsr_run_lock_begin(tsr_run_lock_writer *w, const tsr_run_lock *head, tsr_diags *diags) {
  tsr_run_lock there;
  const tsr_locked_step *resumed = find_resumed(w, head, &there, diags);
  const tsr_lock_start *start = &head->starts[head->starts_count - 1];
  w->last = head->first;
  if (resumed && resumed->weights != head->first.weights)
    return tsr_diag_failure(
        diags, (tsr_location){.file = w->path},
        "the run resumes with other weights than it had after step %" PRId64 ": their hash is "
        "%016" PRIx64 ", not %016" PRIx64,
        head->first.step, head->first.weights, resumed->weights);
  if (resumed) w->last = *resumed;
  else tsr_run_lock_begin_chain(w->arena, head->recipe, head->recipe_count, &w->last);
  if (!tsr_json_lines_begin(w->lines, resumed ? head->first.step : 0, diags)) return false;
  if (!resumed) add_head(w, head, diags);
  add_start(w, start, diags);
  w->existed = true;
  return true;
}

void tsr_run_lock_add(tsr_run_lock_writer *w, tsr_locked_step *step, tsr_diags *diags) {
  float loss;
  memcpy(&loss, &step->loss, sizeof loss);
  tsr_run_lock_continue_chain(w->sha, &w->last, step);
  w->last = *step;
  cJSON *line = begin_line("step");
  tsr_json_add_int(line, "step", step->step);
  if (isfinite(loss)) cJSON_AddNumberToObject(line, "loss", (double)loss);
  else cJSON_AddNullToObject(line, "loss");
  add_hex(line, "loss_bits", step->loss, 8);
  add_hex(line, "weights", step->weights, 16);
  cJSON_AddStringToObject(line, "chain", step->chain);
  tsr_json_lines_add(w->lines, line, step->step, diags);
}

bool tsr_run_lock_finish(tsr_run_lock_writer *w, tsr_diags *diags) {
  return tsr_json_lines_finish(w->lines, diags);
}

void tsr_run_lock_close(tsr_run_lock_writer *w) { tsr_json_lines_close(w->lines); }
