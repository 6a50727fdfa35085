// SPDX-License-Identifier: Apache-2.0
/* A file of JSON objects, one a line, that a run appends to and resumes behind a step. Each line is
 * written whole, by one write, so that a reader who follows the file and a crash at any time see
 * whole lines. A line's "step" is the first key of that name in it. */
#ifndef TSR_REPORT_JSON_LINES_H
#define TSR_REPORT_JSON_LINES_H
#include "base/diag.h"
#include "base/text.h"
#include <cjson/cJSON.h>
#include <signal.h>
#include <stdint.h>

typedef struct {
  const char *what;          /* "metrics", for messages */
  const char *const *begins; /* how lines of the kind begin; NULL ends the list */
} tsr_json_lines_kind;

typedef struct tsr_json_lines tsr_json_lines;

/* Opens the file and takes it for this process; nothing in it changes. `path` NULL: nothing is
 * written; it must outlive the lines. Errors: a file that cannot be opened, that this process
 * reads, that another run writes, or that has something else in it; a pipe without a reader, which
 * is waited for 10 s. False without an error where a signal ends that, which sets *stop (NULL:
 * none does). A pipe that is full is not waited for: its lines are late, until the end. */
bool tsr_json_lines_open(
    tsr_arena *arena, const char *path, const tsr_json_lines_kind *kind,
    const volatile sig_atomic_t *stop, tsr_json_lines **ret_lines, tsr_diags *diags);
/* The run begins behind step `step`, or returns to it: cuts off what is behind its lines; 0: all.
 * What has gone into a pipe stays. */
bool tsr_json_lines_begin(tsr_json_lines *lines, int64_t step, tsr_diags *diags);
/* A file that was made and has not begun is removed. */
void tsr_json_lines_close(tsr_json_lines *lines);

bool tsr_json_lines_are_written(const tsr_json_lines *lines); /* there is a path */

/* Whether a line begins so; of what is no file it is not known, which is true. False, too, where
 * the file cannot be read. */
bool tsr_json_lines_have(const tsr_json_lines *lines, const char *line_begin);

/* Writes and frees a line of a step. A run does not end because it cannot be written: the first
 * line that cannot is a warning, with the file and the step, and is written with the next ones. */
void tsr_json_lines_add(tsr_json_lines *lines, cJSON *line, int64_t step, tsr_diags *diags);
/* Whole lines of steps up to `step`, with their newlines, to be written by the next of these two: a
 * few thousand of them by one write. */
void tsr_json_lines_put(tsr_json_lines *lines, const char *text, size_t length, int64_t step);
void tsr_json_lines_flush(tsr_json_lines *lines, tsr_diags *diags);
/* At the end: a failure when lines are still not written. */
bool tsr_json_lines_finish(tsr_json_lines *lines, tsr_diags *diags);

/* ---- a file of lines ---- */

/* Adds the line that begins at `at`, with its newline; without one at the end. False with errno. */
bool tsr_json_line_read(int fd, int64_t at, tsr_text *line);
/* Of a line that a run has written; -1: it names none. */
int64_t tsr_json_line_step(const char *line);

void tsr_json_add_int(cJSON *line, const char *name, int64_t value);

#endif
