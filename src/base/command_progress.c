// SPDX-License-Identifier: Apache-2.0
#include "base/command_progress.h"
#include "base/terminal_line.h"
#include "base/text.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static const double RENEW_S = 0.2;
enum { CELLS_MAX = 24, CELLS_MIN = 8 };

/* ---- the line ---- */

typedef struct {
  char share[16], counts[128], speed[96], eta[64];
} parts;

static tsr_short_text amount(const tsr_command_progress_state *s, double value) {
  return s->unit ? tsr_text_count((int64_t)(value + 0.5)) : tsr_text_bytes((int64_t)value);
}

static parts parts_of(const tsr_command_progress_state *s) {
  parts p = {""};
  const char *space = s->unit ? " " : "", *unit = s->unit ? s->unit : "";
  int64_t done = s->total && s->done > s->total ? s->total : s->done;
  double speed = s->seconds > 0 ? (double)s->done / s->seconds : 0;
  if (s->total) {
    snprintf(p.share, sizeof p.share, "%d%%", (int)(100.0 * (double)done / (double)s->total));
    snprintf(
        p.counts, sizeof p.counts, "%.40s of %.40s%s%.30s", amount(s, (double)done).text,
        amount(s, (double)s->total).text, space, unit);
    double left = speed > 0 ? (double)(s->total - done) / speed : -1;
    snprintf(p.eta, sizeof p.eta, "ETA %.40s", tsr_text_duration(left).text);
  } else {
    snprintf(p.counts, sizeof p.counts, "%.40s%s%.30s", amount(s, (double)done).text, space, unit);
    snprintf(p.eta, sizeof p.eta, "%.40s", tsr_text_duration(s->seconds).text);
  }
  if (!s->unit) snprintf(p.speed, sizeof p.speed, "%.40s/s", tsr_text_bytes((int64_t)speed).text);
  else if (speed >= 9.95) snprintf(p.speed, sizeof p.speed, "%.0f %.30s/s", speed, unit);
  else if (speed >= 0.0995) snprintf(p.speed, sizeof p.speed, "%.2g %.30s/s", speed, unit);
  return p;
}

static int add(char *line, int length, const char *between, const char *part) {
  if (!part[0]) return length;
  return length +
         snprintf(
             line + length, (size_t)(TSR_COMMAND_PROGRESS_BYTES - length), "%s%s", between, part);
}

int tsr_command_progress_format_line(
    const tsr_command_progress_state *state, char ret_line[TSR_COMMAND_PROGRESS_BYTES]) {
  parts p = parts_of(state);
  int length = snprintf(ret_line, TSR_COMMAND_PROGRESS_BYTES, "%.64s", state->what);
  const char *between = ": ";
  const char *all[] = {p.share, p.counts, p.speed, p.eta};
  for (int i = 0; i < 4; i++) {
    int before = length;
    length = add(ret_line, length, between, all[i]);
    if (length > before) between = ", ";
  }
  return length;
}

/* "[####----]" in what room there is, or nothing. */
static void format_cells(const tsr_command_progress_state *s, int room, char *ret_text) {
  int cells = room - 3 < CELLS_MAX ? room - 3 : CELLS_MAX;
  ret_text[0] = 0;
  if (cells < CELLS_MIN || !s->total) return;
  double share = (double)s->done / (double)s->total;
  int full = (int)((share < 1 ? share : 1) * cells);
  *ret_text++ = '[';
  memset(ret_text, '#', (size_t)full);
  memset(ret_text + full, '-', (size_t)(cells - full));
  strcpy(ret_text + cells, "]");
}

int tsr_command_progress_format_bar(
    const tsr_command_progress_state *state, int width, char ret_line[TSR_COMMAND_PROGRESS_BYTES]) {
  parts p = parts_of(state);
  char cells[CELLS_MAX + 3];
  if (width > TSR_COMMAND_PROGRESS_BYTES - 1) width = TSR_COMMAND_PROGRESS_BYTES - 1;
  if (width < 0) width = 0;
  /* Room is given by importance, which is not the order on the line. */
  int used = (int)strlen(state->what);
  char *by_importance[] = {p.share, p.eta, p.counts, p.speed};
  for (int i = 0; i < 4; i++) {
    int more = (int)strlen(by_importance[i]) + 2;
    if (used + more <= width) used += more;
    else by_importance[i][0] = 0;
  }
  format_cells(state, width - used, cells);
  int length = snprintf(ret_line, (size_t)width + 1, "%s", state->what);
  if (length > width) return width;
  length = add(ret_line, length, " ", cells);
  length = add(ret_line, length, "  ", p.share);
  length = add(ret_line, length, "  ", p.counts);
  length = add(ret_line, length, "  ", p.speed);
  return add(ret_line, length, "  ", p.eta);
}

/* ---- the process's own ---- */

static struct {
  double delay_s; /* < 0: nothing is shown */
  bool is_live;   /* on a terminal */
  const char *what, *unit;
  int64_t total;
  double begin_s, next_s; /* when it began; when it is shown next */
  atomic_int depth;
  _Atomic int64_t done;
  atomic_bool is_shown; /* the line stands on the terminal */
  pthread_mutex_t lock; /* of what is shown */
} progress = {.delay_s = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void tsr_command_progress_enable(double delay_s, bool lines) {
  progress.is_live = tsr_terminal_line_is_live();
  progress.delay_s = progress.is_live || lines ? delay_s : -1;
}

void tsr_command_progress_disable(void) {
  progress.delay_s = -1;
  atomic_store(&progress.is_shown, false);
}

void tsr_command_progress_begin(const char *what, int64_t total, const char *unit) {
  if (progress.delay_s < 0 || atomic_fetch_add(&progress.depth, 1) > 0) return;
  pthread_mutex_lock(&progress.lock);
  progress.what = what;
  progress.unit = unit;
  progress.total = total;
  progress.begin_s = now();
  progress.next_s = progress.begin_s + progress.delay_s;
  atomic_store(&progress.done, 0);
  pthread_mutex_unlock(&progress.lock);
}

/* In one write, as other processes may print too. */
static void show(double time) {
  tsr_command_progress_state state = {
      progress.what, progress.unit, atomic_load(&progress.done), progress.total,
      time - progress.begin_s};
  char line[TSR_COMMAND_PROGRESS_BYTES];
  if (!progress.is_live) {
    progress.next_s = time + progress.delay_s;
    tsr_command_progress_format_line(&state, line);
    fprintf(stderr, "%s\n", line);
    return;
  }
  progress.next_s = time + RENEW_S;
  atomic_store(&progress.is_shown, true);
  /* The last column stays free: some terminals break the line when it is written. */
  tsr_command_progress_format_bar(&state, tsr_terminal_line_columns() - 1, line);
  fprintf(stderr, TSR_TERMINAL_LINE_CLEAR "%s", line);
  fflush(stderr);
}

void tsr_command_progress_add(int64_t done) {
  if (progress.delay_s < 0 || atomic_load(&progress.depth) != 1) return;
  atomic_fetch_add(&progress.done, done);
  double time = now();
  if (pthread_mutex_trylock(&progress.lock)) return; /* another thread shows it */
  if (time >= progress.next_s) show(time);
  pthread_mutex_unlock(&progress.lock);
}

void tsr_command_progress_clear(void) {
  pthread_mutex_lock(&progress.lock);
  if (atomic_exchange(&progress.is_shown, false)) {
    fputs(TSR_TERMINAL_LINE_CLEAR, stderr);
    fflush(stderr);
  }
  pthread_mutex_unlock(&progress.lock);
}

bool tsr_command_progress_is_shown(void) { return atomic_load(&progress.is_shown); }

void tsr_command_progress_end(void) {
  if (progress.delay_s < 0 || atomic_fetch_sub(&progress.depth, 1) > 1) return;
  tsr_command_progress_clear();
}
