// SPDX-License-Identifier: Apache-2.0
#include "sweep/journal.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/json.h"
#include "html_report/series.h"
#include "train/out_folder.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

static const char begin[] = TSR_SWEEP_JOURNAL_BEGIN;

/* ---- writing ---- */

static bool write_line(tsr_sweep_journal *j, tsr_text *line, tsr_diags *diags) {
  tsr_text_add(line, "\n");
  bool ok = tsr_disk_write(j->fd, line->data, line->length) && tsr_disk_sync(j->fd);
  int error = errno;
  tsr_text_free(line);
  return ok || tsr_file_cannot("write", j->path, error, TSR_NOWHERE, diags);
}

static void add_text(const char *key, const char *value, tsr_text *line) {
  tsr_json_add_text(line, key, strlen(key));
  tsr_text_add(line, ":");
  tsr_json_add_text(line, value, strlen(value));
}

static bool write_definition(
    tsr_sweep_journal *j, const tsr_sweep_entry *definition, int entries, tsr_diags *diags) {
  tsr_text line = {0};
  tsr_text_add(&line, "%s\"format\":1,\"definition\":{", begin);
  for (int i = 0; i < entries; i++) {
    if (i) tsr_text_add(&line, ",");
    add_text(definition[i].key, definition[i].value, &line);
  }
  tsr_text_add(&line, "}}");
  return write_line(j, &line, diags);
}

bool tsr_sweep_journal_result(
    tsr_sweep_journal *j, int run, const tsr_sweep_result *r, tsr_diags *diags) {
  tsr_text line = {0};
  bool failed = r->state == TSR_SWEEP_FAILED;
  tsr_text_add(
      &line, "{\"event\":\"result\",\"run\":%d,\"rung\":%d,\"state\":\"%s\",\"step\":%" PRId64 ",",
      run, r->rung, failed ? "failed" : "done", r->step);
  tsr_text_add(&line, "\"objective\":");
  tsr_series_print_number(r->objective, &line);
  tsr_text_add(&line, ",");
  add_text("weights_sha256", r->sha256, &line);
  if (failed) tsr_text_add(&line, ",");
  if (failed) add_text("why", r->why, &line);
  tsr_text_add(&line, "}");
  return write_line(j, &line, diags);
}

bool tsr_sweep_journal_decision(
    tsr_sweep_journal *j, const int *ranking, int count, int kept, tsr_diags *diags) {
  tsr_text line = {0};
  tsr_text_add(&line, "{\"event\":\"rung\",\"rung\":%d,\"ranking\":[", j->rung);
  for (int i = 0; i < count; i++) tsr_text_add(&line, "%s%d", i ? "," : "", ranking[i]);
  tsr_text_add(&line, "],\"kept\":[");
  for (int i = 0; i < kept; i++) tsr_text_add(&line, "%s%d", i ? "," : "", ranking[i]);
  tsr_text_add(&line, "]}");
  j->rung++;
  return write_line(j, &line, diags);
}

/* ---- reading ---- */

typedef struct {
  tsr_arena *arena;
  tsr_sweep_journal *journal;
  tsr_sweep_result *results;
  int count, decisions, line;
  tsr_diags *diags;
} reader;

static bool refuse_line(const reader *r) {
  tsr_location at = {r->journal->path, r->line, 1, 1};
  return tsr_diag_error(r->diags, at, "this is no line of a sweep with %d runs", r->count);
}

static bool read_int(const cJSON *line, const char *key, int64_t last, int64_t *ret) {
  const cJSON *item = tsr_json_get(line, key);
  bool ok = cJSON_IsNumber(item) && item->valuedouble >= 0 && item->valuedouble <= (double)last &&
            item->valuedouble == floor(item->valuedouble);
  if (ok) *ret = (int64_t)item->valuedouble;
  return ok;
}

static const char *read_text(reader *r, const cJSON *line, const char *key) {
  const cJSON *item = tsr_json_get(line, key);
  return cJSON_IsString(item) ? tsr_arena_strdup(r->arena, item->valuestring) : "";
}

static bool read_result(reader *r, const cJSON *line) {
  int64_t run, rung, step;
  const cJSON *objective = tsr_json_get(line, "objective");
  if (!read_int(line, "run", r->count, &run) || run < 1 ||
      !read_int(line, "rung", r->journal->rung, &rung) || rung != r->journal->rung ||
      !read_int(line, "step", INT64_C(1) << 53, &step))
    return refuse_line(r);
  tsr_sweep_result *result = &r->results[run - 1];
  bool failed = !strcmp(read_text(r, line, "state"), "failed");
  *result =
      (tsr_sweep_result){.state = failed ? TSR_SWEEP_FAILED : TSR_SWEEP_DONE, .rung = (int)rung};
  result->step = step;
  result->objective = cJSON_IsNumber(objective) ? objective->valuedouble : NAN;
  result->sha256 = read_text(r, line, "weights_sha256");
  result->why = read_text(r, line, "why");
  return true;
}

/* Those of the ranking stop, those that are kept go on. */
static bool read_decision(reader *r, const cJSON *line) {
  static const char *const lists[] = {"ranking", "kept"};
  if (r->journal->rung >= r->decisions) return refuse_line(r);
  for (int k = 0; k < 2; k++) {
    const cJSON *list = tsr_json_get(line, lists[k]), *item;
    if (!cJSON_IsArray(list)) return refuse_line(r);
    cJSON_ArrayForEach(item, list) {
      double run = cJSON_IsNumber(item) ? item->valuedouble : 0;
      if (run < 1 || run > r->count || run != floor(run)) return refuse_line(r);
      tsr_sweep_result *result = &r->results[(int)run - 1];
      if (k) result->state = TSR_SWEEP_WAITS;
      else if (result->state == TSR_SWEEP_DONE) result->state = TSR_SWEEP_STOPPED;
    }
  }
  r->journal->rung++;
  return true;
}

/* The value of a key of the definition there; NULL: it has none. */
static const char *value_there(const cJSON *definition, const char *key) {
  const cJSON *item = tsr_json_get(definition, key);
  return cJSON_IsString(item) ? item->valuestring : NULL;
}

static bool
check_definition(reader *r, const cJSON *line, const tsr_sweep_entry *definition, int entries) {
  enum { SHOWN_MAX = 5 };
  const cJSON *there = tsr_json_get(line, "definition"), *item;
  int differing = 0;
  tsr_text hints[SHOWN_MAX] = {0};
  for (int i = 0; i < entries; i++) {
    const char *value = value_there(there, definition[i].key);
    if (value && !strcmp(value, definition[i].value)) continue;
    if (differing++ < SHOWN_MAX)
      tsr_text_add(
          &hints[differing - 1], "'%s' is %s in this sweep, and %s in that one", definition[i].key,
          definition[i].value, value ? value : "not there");
  }
  cJSON_ArrayForEach(item, there) {
    int i = 0;
    while (i < entries && strcmp(definition[i].key, item->string)) i++;
    if (i < entries || !cJSON_IsString(item)) continue;
    if (differing++ < SHOWN_MAX)
      tsr_text_add(
          &hints[differing - 1], "'%s' is not there in this sweep, and %s in that one",
          item->string, item->valuestring);
  }
  if (!differing) return true;
  tsr_diag_error(
      r->diags, (tsr_location){.file = r->journal->path}, "the folder has another sweep's runs");
  for (int i = 0; i < differing && i < SHOWN_MAX; i++) {
    tsr_diag_hint(r->diags, "%s", hints[i].data);
    tsr_text_free(&hints[i]);
  }
  if (differing > SHOWN_MAX) tsr_diag_hint(r->diags, "%d more keys differ", differing - SHOWN_MAX);
  tsr_diag_hint(r->diags, "another --out begins a new sweep");
  return false;
}

static bool read_line(
    reader *r, const char *text, size_t length, const tsr_sweep_entry *definition, int entries) {
  cJSON *line;
  r->line++;
  if (!tsr_json_parse(r->arena, r->journal->path, text, length, &line, tsr_diags_new(r->arena)))
    return refuse_line(r);
  const char *event = read_text(r, line, "event");
  if (r->line == 1 && !strcmp(event, "sweep"))
    return check_definition(r, line, definition, entries);
  if (r->line > 1 && !strcmp(event, "result")) return read_result(r, line);
  if (r->line > 1 && !strcmp(event, "rung")) return read_decision(r, line);
  return refuse_line(r);
}

/* Whole lines, and where they end. */
static bool read_lines(reader *r, const tsr_sweep_entry *definition, int entries, size_t *ret_end) {
  enum { BYTES_MAX = 1 << 28 };
  char *text;
  size_t length, at = 0;
  if (!tsr_file_read_nofollow(
          r->arena, r->journal->path, BYTES_MAX, TSR_NOWHERE, &text, &length, r->diags))
    return false;
  for (const char *end; (end = memchr(text + at, '\n', length - at)); at = *ret_end) {
    *ret_end = (size_t)(end - text) + 1;
    if (!read_line(r, text + at, (size_t)(end - text) - at, definition, entries)) return false;
  }
  size_t cut = strlen(begin) < length ? strlen(begin) : length;
  bool own = *ret_end || !memcmp(text, begin, cut);
  if (own) return true;
  r->line = 1;
  return refuse_line(r);
}

/* What was not decided about is tried again. */
static void forget_failures(tsr_sweep_result *results, int count, int rung) {
  for (int i = 0; i < count; i++)
    if (results[i].state == TSR_SWEEP_FAILED && results[i].rung == rung)
      results[i].state = TSR_SWEEP_WAITS, results[i].rung = rung - 1;
}

bool tsr_sweep_journal_open(
    tsr_arena *arena, const char *folder, const tsr_sweep_entry *definition, int entries,
    int decisions, tsr_sweep_result *results, int count, tsr_sweep_journal *j, tsr_diags *diags) {
  *j = (tsr_sweep_journal){tsr_path_join(arena, folder, TSR_SWEEP_JOURNAL_NAME), -1, 0};
  for (int i = 0; i < count; i++)
    results[i] = (tsr_sweep_result){.rung = -1, .objective = NAN, .sha256 = "", .why = ""};
  reader r = {arena, j, results, count, decisions, 0, diags};
  size_t end = 0;
  bool is_there = tsr_file_exists(j->path);
  if (is_there && !read_lines(&r, definition, entries, &end)) return false;
  forget_failures(results, count, j->rung);
  j->fd = tsr_disk_open_append(j->path);
  if (j->fd < 0 || (is_there && !tsr_disk_truncate(j->fd, (int64_t)end)))
    return tsr_file_cannot("write", j->path, errno, TSR_NOWHERE, diags);
  if (end) return true;
  return write_definition(j, definition, entries, diags) &&
         (tsr_disk_sync_folder(folder) ||
          tsr_file_cannot("flush the folder", folder, errno, TSR_NOWHERE, diags));
}

void tsr_sweep_journal_close(tsr_sweep_journal *j) {
  if (j->fd >= 0) tsr_disk_close(j->fd);
  j->fd = -1;
}
