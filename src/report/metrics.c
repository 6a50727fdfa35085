// SPDX-License-Identifier: Apache-2.0
#include "report/metrics.h"
#include "base/file_ops.h"
#include "base/file_read.h"
#include "base/new_file.h"
#include "base/text.h"
#include "base/utf8.h"
#include <assert.h>
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct tsr_metrics {
  const char *path;
  int fd; /* -1: nothing is written */
  bool is_made, has_begun;
  bool is_pipe;      /* or a device: what it takes is gone, and it is never waited for */
  tsr_text late;     /* lines that could not be written yet */
  bool is_told;      /* that they could not */
  int64_t late_step; /* of the first of them */
  off_t part_at;     /* where a line begins that was written in part; -1: there is none */
};

/* Of a line that this file has written; -1: it names none. */
static int64_t step_of_line(const char *line) {
  static const char key[] = "\"step\":";
  const char *at = strstr(line, key);
  return at ? strtoll(at + sizeof key - 1, NULL, 10) : -1;
}

/* Adds the file's next line, which `at` is the begin of, with its newline; without one at the end.
 * False with errno set. */
static bool read_line(int fd, off_t at, tsr_text *line) {
  char block[TSR_DISK_BLOCK];
  for (ptrdiff_t got; (got = tsr_disk_read_at(fd, block, sizeof block, at)); at += got) {
    if (got < 0) return false;
    const char *newline = memchr(block, '\n', (size_t)got);
    tsr_text_add_bytes(line, block, newline ? (size_t)(newline - block) + 1 : (size_t)got);
    if (newline) break;
  }
  return true;
}

/* The bytes before the first line of a step behind `step`; -1 with errno set. */
static off_t bytes_up_to(int fd, int64_t step) {
  off_t bytes = 0;
  for (bool ends = false; !ends;) {
    tsr_text line = {0};
    if (!read_line(fd, bytes, &line)) bytes = -1;
    ends = bytes < 0 || !line.length || line.data[line.length - 1] != '\n' || line.data[0] != '{' ||
           step_of_line(line.data) > step;
    if (!ends) bytes += (off_t)line.length;
    tsr_text_free(&line);
  }
  return bytes;
}

/* Also a line that was cut off by a crash, which must not swallow the next one. */
static bool cut_behind(const tsr_metrics *metrics, int64_t step) {
  struct stat info;
  if (fstat(metrics->fd, &info)) return false;
  if (!S_ISREG(info.st_mode)) return true;
  off_t bytes = step > 0 ? bytes_up_to(metrics->fd, step) : 0;
  return bytes >= 0 && tsr_disk_truncate(metrics->fd, bytes);
}

/* Whether these are the first bytes of metrics, as many as there are of them. */
static bool is_metrics(const char *text, size_t length) {
  static const char *const begins[] = {
      "{\"event\":\"start\",\"config\":", "{\"event\":\"step\",\"step\":",
      "{\"event\":\"eval\",\"step\":", "{\"event\":\"sample\",\"step\":",
      "{\"event\":\"end\",\"step\":"};
  bool found = false;
  for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
    size_t wanted = strlen(begins[i]);
    found |= !memcmp(text, begins[i], length < wanted ? length : wanted);
  }
  return found;
}

/* A power cut may leave the length of a file, and zeros where lines were: those that are left, from
 * the first newline behind the zeros on, are metrics. */
static bool is_lost(int fd) {
  char block[TSR_DISK_BLOCK];
  off_t at = 0;
  ptrdiff_t got, i = 0;
  while ((got = tsr_disk_read_at(fd, block, sizeof block, at)) > 0) {
    for (i = 0; i < got && !block[i]; i++) continue;
    if (i < got) break;
    at += got;
  }
  if (got <= 0) return !got;
  tsr_text line = {0};
  bool ok = at + i > 0 && read_line(fd, at + i, &line);
  at += i + (off_t)line.length;
  tsr_text_free(&line);
  got = ok ? tsr_disk_read_at(fd, block, 32, at) : -1;
  return got >= 0 && is_metrics(block, (size_t)got);
}

/* A file system without locks is a warning, as for a folder (base/folder_lock.h). */
static bool lock(const tsr_metrics *metrics, tsr_diags *diags) {
  tsr_location location = {.file = metrics->path};
  if (tsr_disk_lock(metrics->fd)) return true;
  if (errno == EWOULDBLOCK)
    return tsr_diag_error(diags, location, "another run writes its metrics here");
  if (!tsr_disk_has_no_locks(errno))
    return tsr_file_cannot("lock", metrics->path, errno, location, diags);
  tsr_diag_warning(
      diags, location, "it cannot be locked (%s): no other run may use it", strerror(errno));
  return true;
}

/* That the file is one of metrics, and no other process writes it. */
static bool check_file(const tsr_metrics *metrics, tsr_diags *diags) {
  tsr_location location = {.file = metrics->path};
  char text[32];
  struct stat info;
  if (fstat(metrics->fd, &info) || !S_ISREG(info.st_mode)) return true;
  if (!lock(metrics, diags)) return false;
  size_t length = (size_t)info.st_size < sizeof text ? (size_t)info.st_size : sizeof text;
  if (tsr_disk_read_at(metrics->fd, text, length, 0) != (ptrdiff_t)length)
    return tsr_file_cannot("read", metrics->path, errno, location, diags);
  return is_metrics(text, length) || is_lost(metrics->fd) ||
         tsr_diag_error(diags, location, "the file has no metrics, and would be emptied for them");
}

/* Not through a descriptor for reading: the run would be its own reader, and wait for itself. A
 * reader that is started beside the run may come a little later. */
static int open_pipe(const char *path, const volatile sig_atomic_t *stop) {
  enum { TRIES = 500, REST_NS = 20000000 };
  for (int i = 0;; i++) {
    int fd = tsr_disk_open_pipe(path);
    if (fd >= 0 || errno != ENXIO || i == TRIES) return fd;
    if (stop && *stop) return errno = EINTR, -1; /* a signal may have come before the rest */
    if (nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL)) return -1;
  }
}

static bool cannot_open(const tsr_metrics *metrics, int error, tsr_diags *diags) {
  tsr_location location = {.file = metrics->path};
  if (metrics->is_pipe && error == ENXIO)
    return tsr_diag_error(diags, location, "nobody reads this pipe");
  if (error == EINTR)
    tsr_diag_warning(diags, location, "ended by a signal: nobody reads this pipe");
  if (error == EINTR) return false;
  return tsr_file_cannot("write", metrics->path, error, location, diags);
}

bool tsr_metrics_open(
    tsr_arena *arena, const char *path, const volatile sig_atomic_t *stop,
    tsr_metrics **ret_metrics, tsr_diags *diags) {
  tsr_metrics *metrics = *ret_metrics = tsr_arena_alloc(arena, sizeof *metrics);
  *metrics = (tsr_metrics){.path = path, .fd = -1, .part_at = -1};
  if (!path) return true;
  if (!tsr_file_check_output(path, diags)) return false;
  metrics->is_made = !tsr_file_exists(path);
  struct stat info;
  metrics->is_pipe = !stat(path, &info) && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode);
  metrics->fd = metrics->is_pipe ? open_pipe(path, stop) : tsr_disk_open_append(path);
  if (metrics->fd < 0) return cannot_open(metrics, errno, diags);
  if (check_file(metrics, diags)) return true;
  tsr_metrics_close(metrics);
  return false;
}

bool tsr_metrics_begin(tsr_metrics *metrics, int64_t step, tsr_diags *diags) {
  metrics->has_begun = true;
  if (metrics->fd < 0 || cut_behind(metrics, step)) return true;
  return tsr_file_cannot(
      "write", metrics->path, errno, (tsr_location){.file = metrics->path}, diags);
}

void tsr_metrics_close(tsr_metrics *metrics) {
  tsr_text_free(&metrics->late);
  if (metrics->fd < 0) return;
  if (metrics->is_made && !metrics->has_begun) tsr_disk_remove(metrics->path);
  close(metrics->fd);
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

static bool cut_part(tsr_metrics *metrics) {
  if (metrics->part_at >= 0 && !tsr_disk_truncate(metrics->fd, metrics->part_at)) return false;
  metrics->part_at = -1;
  return true;
}

/* Of what cannot be written whole nothing stays, so that readers see whole lines. Where that cannot
 * be cut off either, nothing is written behind it. */
static bool write_whole(tsr_metrics *metrics, const char *text, size_t length) {
  struct stat info;
  if (!cut_part(metrics)) return false;
  bool known = !fstat(metrics->fd, &info) && S_ISREG(info.st_mode);
  if (tsr_disk_write(metrics->fd, text, length)) return true;
  int error = errno;
  if (known) metrics->part_at = info.st_size;
  cut_part(metrics);
  errno = error;
  return false;
}

/* As much as the pipe takes. False with errno; EAGAIN: it is full. */
static bool write_pipe(tsr_metrics *metrics) {
  tsr_text *late = &metrics->late;
  while (late->length) {
    ptrdiff_t put = tsr_disk_write_some(metrics->fd, late->data, late->length);
    if (put < 0) return false;
    late->length -= (size_t)put;
    memmove(late->data, late->data + put, late->length + 1);
    int64_t step = step_of_line(late->data);
    if (step >= 0) metrics->late_step = step;
  }
  return true;
}

/* Writes the lines that are late. False with errno. */
static bool write_late(tsr_metrics *metrics) {
  bool ok = metrics->is_pipe ? write_pipe(metrics)
                             : write_whole(metrics, metrics->late.data, metrics->late.length);
  if (!ok) return false;
  tsr_text_free(&metrics->late);
  metrics->is_told = false;
  return true;
}

/* At the end the reader of a pipe is given time, but one that takes nothing for 2 s. */
static bool write_last(tsr_metrics *metrics) {
  enum { TIMEOUT_MS = 2000 };
  while (!write_late(metrics)) {
    struct pollfd room = {.fd = metrics->fd, .events = POLLOUT};
    if (!metrics->is_pipe || errno != EAGAIN) return false;
    if (!poll(&room, 1, TIMEOUT_MS)) return errno = EAGAIN, false;
  }
  return true;
}

bool tsr_metrics_finish(tsr_metrics *metrics, tsr_diags *diags) {
  if (!metrics->late.length || write_last(metrics)) return true;
  return tsr_diag_failure(
      diags, (tsr_location){.file = metrics->path},
      "cannot write the metrics from step %" PRId64 " on: %s", metrics->late_step,
      errno == EAGAIN ? "nobody reads this pipe" : strerror(errno));
}

/* The first line that comes to be late is a warning, but for a pipe that is full. */
static void try_late(tsr_metrics *metrics, tsr_diags *diags) {
  if (write_late(metrics) || metrics->is_told || (metrics->is_pipe && errno == EAGAIN)) return;
  metrics->is_told = true;
  tsr_diag_warning(
      diags, (tsr_location){.file = metrics->path},
      "cannot write the metrics of step %" PRId64 ", which is tried again: %s", metrics->late_step,
      strerror(errno));
}

/* Writes and frees the line. */
static void end_line(tsr_metrics *metrics, cJSON *line, int64_t step, tsr_diags *diags) {
  char *json = cJSON_PrintUnformatted(line);
  cJSON_Delete(line);
  assert(json); /* only without memory */
  if (!metrics->late.length) metrics->late_step = step;
  tsr_text_add(&metrics->late, "%s\n", json);
  cJSON_free(json);
  try_late(metrics, diags);
}

void tsr_metrics_write_start(
    tsr_metrics *metrics, const tsr_metrics_start *start, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "start");
  if (!line) return;
  add_text(line, "config", start->config);
  add_text(line, "module", start->module);
  add_text(line, "mesh", start->mesh);
  add_int(line, "ranks", start->ranks);
  add_int(line, "parameters", start->parameters);
  add_unsigned(line, "seed", start->seed);
  add_text(line, "policy", start->policy);
  add_text(line, "isa", start->isa);
  add_int(line, "threads", start->threads);
  add_text(line, "recipe", start->recipe);
  end_line(metrics, line, 0, diags);
}

static cJSON *experts_object(const tsr_metrics_experts *e) {
  double all = 0, most = 0, entropy = 0;
  for (int64_t i = 0; i < e->experts; i++) all += e->counts[i];
  for (int64_t i = 0; i < e->experts; i++) {
    double share = all > 0 ? e->counts[i] / all : 0;
    if (share > 0) entropy -= share * log(share);
    if (e->counts[i] > most) most = e->counts[i];
  }
  cJSON *object = cJSON_CreateObject(), *load = cJSON_AddArrayToObject(object, "load");
  for (int64_t i = 0; i < e->experts; i++)
    cJSON_AddItemToArray(load, cJSON_CreateNumber(e->counts[i]));
  add_text(object, "layer", e->layer);
  add_double(object, "imbalance", all > 0 ? most * (double)e->experts / all : 1);
  add_double(object, "entropy", e->experts > 1 ? entropy / log((double)e->experts) : 1);
  add_double(object, "dropped", e->dropped);
  return object;
}

void tsr_metrics_write_step(tsr_metrics *metrics, const tsr_metrics_step *step, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "step");
  if (!line) return;
  add_int(line, "step", step->step);
  add_double(line, "loss", step->loss);
  add_double(line, "grad_norm", step->grad_norm);
  add_double(line, "lr", step->lr);
  add_int(line, "tokens", step->tokens);
  add_double(line, "tokens_per_s", step->tokens_per_s);
  add_double(line, "ms", step->ms);
  if (step->loss_scale > 0) add_double(line, "loss_scale", step->loss_scale);
  if (step->loss_scale > 0 && step->underflows >= 0) {
    add_int(line, "underflows", step->underflows);
    add_int(line, "overflows", step->overflows);
  }
  cJSON *experts = step->layers ? cJSON_AddArrayToObject(line, "experts") : NULL;
  for (int i = 0; i < step->layers; i++)
    cJSON_AddItemToArray(experts, experts_object(&step->experts[i]));
  if (step->saving) cJSON_AddBoolToObject(line, "saving", true);
  end_line(metrics, line, step->step, diags);
}

void tsr_metrics_write_eval(tsr_metrics *metrics, int64_t step, double loss, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "eval");
  if (!line) return;
  add_int(line, "step", step);
  add_double(line, "loss", loss);
  add_double(line, "perplexity", exp(loss));
  end_line(metrics, line, step, diags);
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

void tsr_metrics_write_sample(
    tsr_metrics *metrics, int64_t step, const char *text, size_t length, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "sample");
  if (!line) return;
  tsr_text clean = {0};
  clean_text(text, length, &clean);
  add_int(line, "step", step);
  add_text(line, "text", clean.data ? clean.data : "");
  tsr_text_free(&clean);
  end_line(metrics, line, step, diags);
}

void tsr_metrics_write_end(tsr_metrics *metrics, const tsr_metrics_end *end, tsr_diags *diags) {
  cJSON *line = begin_line(metrics, "end");
  if (!line) return;
  add_int(line, "step", end->step);
  add_double(line, "loss", end->loss);
  add_text(line, "reason", end->reason);
  add_text(line, "weights_sha256", end->weights_sha256);
  add_text(line, "recipe", end->recipe);
  end_line(metrics, line, end->step, diags);
}
