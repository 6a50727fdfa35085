#include "report/metrics.h"
#include "base/file.h"
#include "base/text.h"
#include "data/utf8.h"
#include <assert.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tsr_metrics {
  const char *path;
  int fd; /* -1: nothing is written, or not any more */
};

/* A line cut off by a crash must not swallow the next one. */
static bool ends_a_line(int fd) {
  char last;
  off_t size = lseek(fd, 0, SEEK_END);
  return size <= 0 || pread(fd, &last, 1, size - 1) != 1 || last == '\n';
}

bool tsr_metrics_open(
    tsr_arena *arena, const char *path, bool append, tsr_metrics **ret_metrics, tsr_diags *diags) {
  tsr_metrics *metrics = *ret_metrics = tsr_arena_alloc(arena, sizeof *metrics);
  *metrics = (tsr_metrics){.path = path, .fd = -1};
  if (!path) return true;
  int flags = O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | (append ? 0 : O_TRUNC);
  metrics->fd = open(path, flags, 0666);
  bool ok = metrics->fd >= 0;
  if (ok && append && !ends_a_line(metrics->fd)) ok = tsr_file_write_all(metrics->fd, "\n", 1);
  if (ok) return true;
  tsr_diag_error(diags, (tsr_place){.file = path}, "cannot write the metrics: %s", strerror(errno));
  tsr_metrics_close(metrics);
  return false;
}

/* Of a line that this file has written; -1: it names none. */
static int64_t step_of_line(const char *line) {
  static const char key[] = "\"step\":";
  const char *at = strstr(line, key);
  return at ? strtoll(at + sizeof key - 1, NULL, 10) : -1;
}

/* The bytes before the first line of a step behind `step`; -1 with errno set. */
static off_t bytes_up_to(const char *path, int64_t step) {
  FILE *file = fopen(path, "r");
  if (!file) return -1;
  char *line = NULL;
  size_t capacity = 0;
  off_t bytes = 0;
  for (ssize_t n; (n = getline(&line, &capacity, file)) >= 0; bytes += n)
    if (step_of_line(line) > step) break;
  free(line);
  fclose(file);
  return bytes;
}

bool tsr_metrics_rewind(tsr_metrics *metrics, int64_t step, tsr_diags *diags) {
  struct stat info;
  if (metrics->fd < 0 || fstat(metrics->fd, &info) || !S_ISREG(info.st_mode)) return true;
  off_t bytes = bytes_up_to(metrics->path, step);
  if (bytes >= 0 && !ftruncate(metrics->fd, bytes)) return true;
  return tsr_diag_failure(
      diags, (tsr_place){.file = metrics->path}, "cannot cut the metrics behind step %" PRId64 ": %s",
      step, strerror(errno));
}

void tsr_metrics_close(tsr_metrics *metrics) {
  if (metrics->fd >= 0) close(metrics->fd);
  metrics->fd = -1;
}

static void add_text(cJSON *line, const char *name, const char *text) {
  if (text) cJSON_AddStringToObject(line, name, text);
  else cJSON_AddNullToObject(line, name);
}

static void add_double(cJSON *line, const char *name, double value) {
  if (isfinite(value)) cJSON_AddNumberToObject(line, name, value);
  else cJSON_AddNullToObject(line, name);
}

/* cJSON's numbers are doubles, which lose bits above 2^53. */
static void add_int(cJSON *line, const char *name, int64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%" PRId64, value);
  cJSON_AddRawToObject(line, name, text);
}

static void add_unsigned(cJSON *line, const char *name, uint64_t value) {
  char text[24];
  snprintf(text, sizeof text, "%" PRIu64, value);
  cJSON_AddRawToObject(line, name, text);
}

/* NULL when nothing is to be written. */
static cJSON *begin_line(const tsr_metrics *metrics, const char *event) {
  if (metrics->fd < 0) return NULL;
  cJSON *line = cJSON_CreateObject();
  add_text(line, "event", event);
  return line;
}

/* Writes and frees the line. */
static bool end_line(tsr_metrics *metrics, cJSON *line, int64_t step, tsr_diags *diags) {
  char *json = cJSON_PrintUnformatted(line);
  cJSON_Delete(line);
  assert(json); /* only without memory */
  size_t length = strlen(json);
  json[length] = '\n'; /* in place of the NUL */
  bool ok = tsr_file_write_all(metrics->fd, json, length + 1);
  int error = errno;
  cJSON_free(json);
  if (ok) return true;
  tsr_metrics_close(metrics);
  return tsr_diag_failure(
      diags, (tsr_place){.file = metrics->path}, "cannot write the metrics of step %" PRId64 ": %s",
      step, strerror(error));
}

bool tsr_metrics_write_start(
    tsr_metrics *metrics, const tsr_metrics_start *start, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "start");
  if (!line) return true;
  add_text(line, "config", start->config);
  add_text(line, "mesh", start->mesh);
  add_int(line, "ranks", start->ranks);
  add_int(line, "parameters", start->parameters);
  add_unsigned(line, "seed", start->seed);
  add_text(line, "policy", start->policy);
  add_text(line, "isa", start->isa);
  add_int(line, "threads", start->threads);
  return end_line(metrics, line, 0, diags);
}

bool tsr_metrics_write_step(tsr_metrics *metrics, const tsr_metrics_step *step, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "step");
  if (!line) return true;
  add_int(line, "step", step->step);
  add_double(line, "loss", step->loss);
  add_double(line, "grad_norm", step->grad_norm);
  add_double(line, "lr", step->lr);
  add_int(line, "tokens", step->tokens);
  add_double(line, "tokens_per_s", step->tokens_per_s);
  add_double(line, "ms", step->ms);
  if (step->loss_scale > 0) add_double(line, "loss_scale", step->loss_scale);
  if (step->saving) cJSON_AddBoolToObject(line, "saving", true);
  return end_line(metrics, line, step->step, diags);
}

bool tsr_metrics_write_eval(tsr_metrics *metrics, int64_t step, double loss, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "eval");
  if (!line) return true;
  add_int(line, "step", step);
  add_double(line, "loss", loss);
  add_double(line, "perplexity", exp(loss));
  return end_line(metrics, line, step, diags);
}

/* The text as UTF-8 that a JSON string can hold. */
static void clean_text(const char *text, size_t length, tsr_text *ret_clean) {
  for (size_t at = 0; at < length;) {
    uint32_t code;
    int bytes = tsr_utf8_next(text + at, length - at, &code);
    if (bytes && code) tsr_text_add_bytes(ret_clean, text + at, (size_t)bytes);
    else tsr_text_add(ret_clean, "\xef\xbf\xbd");
    at += bytes ? (size_t)bytes : 1;
  }
}

bool tsr_metrics_write_sample(
    tsr_metrics *metrics, int64_t step, const char *text, size_t length, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "sample");
  if (!line) return true;
  tsr_text clean = {0};
  clean_text(text, length, &clean);
  add_int(line, "step", step);
  add_text(line, "text", clean.data ? clean.data : "");
  tsr_text_free(&clean);
  return end_line(metrics, line, step, diags);
}

bool tsr_metrics_write_end(
    tsr_metrics *metrics, int64_t step, double loss, const char *weights_sha256, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "end");
  if (!line) return true;
  add_int(line, "step", step);
  add_double(line, "loss", loss);
  add_text(line, "weights_sha256", weights_sha256);
  return end_line(metrics, line, step, diags);
}
