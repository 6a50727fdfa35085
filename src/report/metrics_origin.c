// SPDX-License-Identifier: Apache-2.0
#include "base/file_ops.h"
#include "base/json.h"
#include "report/json_lines.h"
#include "report/metrics_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
  tsr_arena *arena;
  const tsr_metrics_origin *origin;
  int fd;
  int64_t at; /* the begin of the next line */
} reader;

typedef enum { START, STEP, TEXT, OTHER } line_kind;

static line_kind kind_of(const char *line) {
  static const struct {
    const char *begin;
    line_kind kind;
  } kinds[] = {
      {"{\"event\":\"start\",", START},
      {"{\"event\":\"step\",\"step\":", STEP},
      {"{\"event\":\"eval\",\"step\":", TEXT},
      {"{\"event\":\"sample\",\"step\":", TEXT}};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (!strncmp(line, kinds[i].begin, strlen(kinds[i].begin))) return kinds[i].kind;
  return OTHER;
}

/* Whole lines up to the first of a step behind the origin's; false: there are no more. */
static bool next_line(reader *r, tsr_text *line) {
  bool ok = tsr_json_line_read(r->fd, r->at, line) && line->length &&
            line->data[line->length - 1] == '\n' &&
            tsr_json_line_step(line->data) <= r->origin->step;
  if (ok) r->at += (int64_t)line->length;
  else tsr_text_free(line);
  return ok;
}

static bool has_recipe(const reader *r, const tsr_text *start) {
  cJSON *line;
  if (!tsr_json_parse(
          r->arena, r->origin->path, start->data, start->length, &line, tsr_diags_new(r->arena)))
    return false;
  const cJSON *recipe = tsr_json_get(line, "recipe");
  return cJSON_IsString(recipe) && !strcmp(recipe->valuestring, r->origin->recipe);
}

/* Whether the step was made by the run of that recipe: by the start before it. */
static bool has_step(reader *r) {
  bool is_of_run = false, found = false;
  for (tsr_text line = {0}; next_line(r, &line); tsr_text_free(&line)) {
    line_kind kind = kind_of(line.data);
    if (kind == START) is_of_run = has_recipe(r, &line);
    if (kind == STEP && tsr_json_line_step(line.data) == r->origin->step) found = is_of_run;
  }
  return found;
}

static void add_lines(reader *r, tsr_metrics *metrics, tsr_diags *diags) {
  enum { FLUSHED = 1 << 16 };
  size_t waiting = 0;
  for (tsr_text line = {0}; next_line(r, &line); tsr_text_free(&line)) {
    line_kind kind = kind_of(line.data);
    int64_t step = tsr_json_line_step(line.data);
    if (kind != STEP && (kind != TEXT || step > r->origin->evaluations)) continue;
    tsr_json_lines_put(metrics->lines, line.data, line.length, step);
    waiting += line.length;
    if (waiting >= FLUSHED) tsr_json_lines_flush(metrics->lines, diags);
    if (waiting >= FLUSHED) waiting = 0;
  }
  tsr_json_lines_flush(metrics->lines, diags);
}

bool tsr_metrics_add_origin(
    tsr_arena *arena, tsr_metrics *metrics, const tsr_metrics_origin *origin, const char **ret_why,
    tsr_diags *diags) {
  struct stat info;
  reader r = {.arena = arena, .origin = origin};
  *ret_why = NULL;
  if (!tsr_json_lines_are_written(metrics->lines)) return true;
  r.fd = tsr_disk_open(origin->path, O_RDONLY | O_NONBLOCK); /* a pipe has no lines to be read */
  if (r.fd < 0) *ret_why = strerror(errno);
  else if (fstat(r.fd, &info) || !S_ISREG(info.st_mode)) *ret_why = "it is no file";
  else if (!has_step(&r)) *ret_why = "it has no such step of that run";
  else r.at = 0, add_lines(&r, metrics, diags);
  if (r.fd >= 0) close(r.fd);
  return !*ret_why;
}
