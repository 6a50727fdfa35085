// SPDX-License-Identifier: Apache-2.0
#include "tui/dashboard.h"
#include "base/text.h"
#include "base/utf8.h"
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tsr_dashboard_init(tsr_dashboard *d) {
  *d = (tsr_dashboard){.loss = NAN, .lr = NAN, .grad_norm = NAN, .checkpoint_step = -1};
  d->sample_step = -1;
  d->tokens_per_s = d->step_ms = d->mfu = d->tokens = d->elapsed_s = d->eta_s = NAN;
  d->validation = d->best_validation = d->accuracy = d->resident_bytes = d->peak_bytes = NAN;
}

void tsr_dashboard_set_validation(tsr_dashboard *d, int64_t step, double loss) {
  d->validation = loss;
  d->validation_step = step;
  if (!(d->best_validation <= loss) && isfinite(loss))
    d->best_validation = loss, d->best_step = step;
  tsr_curve_add(&d->validations, step, loss);
}

void tsr_dashboard_set_sample(tsr_dashboard *d, int64_t step, const char *text, size_t length) {
  size_t used = 0;
  uint32_t code;
  for (int bytes;
       used < length && (bytes = tsr_utf8_next(text + used, length - used, &code)) > 0;) {
    if (used + (size_t)bytes >= sizeof d->sample) break;
    used += (size_t)bytes;
  }
  memcpy(d->sample, text, used);
  d->sample[used] = 0;
  d->sample_step = step;
}

/* ---- numbers ---- */

/* "0:07", "1:23:45", "3d 02:03" */
static void format_time(double seconds, char ret[32]) {
  if (!(seconds >= 0 && seconds < 1e9)) {
    strcpy(ret, "-");
    return;
  }
  long long s = (long long)(seconds + 0.5);
  if (s >= 86400) snprintf(ret, 32, "%lldd %02lld:%02lld", s / 86400, s / 3600 % 24, s / 60 % 60);
  else if (s >= 3600) snprintf(ret, 32, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
  else snprintf(ret, 32, "%lld:%02lld", s / 60, s % 60);
}

typedef struct {
  const char *name;
  char text[96];
} field;

enum { FIELDS_MAX = 16 };
typedef struct {
  field items[FIELDS_MAX];
  int count;
} fields;

__attribute__((format(printf, 4, 5))) static void
add(fields *f, bool is_known, const char *name, const char *format, ...) {
  va_list values;
  if (!is_known || f->count == FIELDS_MAX) return;
  field *to = &f->items[f->count++];
  to->name = name;
  va_start(values, format);
  vsnprintf(to->text, sizeof to->text, format, values);
  va_end(values);
}

static void add_number(fields *f, const char *name, const char *unit, double value) {
  add(f, !isnan(value), name, "%.4g%s", value, unit);
}

/* Of numbers in a file that no run has written, too. */
static int64_t whole(double value) {
  const double limit = 9e18;
  return (int64_t)(value < -limit ? -limit : value > limit ? limit : value);
}

/* Of what is not known nothing is added. */
static void add_count(fields *f, const char *name, double value) {
  if (isfinite(value)) add(f, true, name, "%s", tsr_text_count(whole(value + 0.5)).text);
}

static void add_bytes(fields *f, const char *name, double value) {
  if (isfinite(value)) add(f, true, name, "%s", tsr_text_bytes(whole(value)).text);
}

static void add_checkpoint(const tsr_dashboard *d, fields *f) {
  static const char name[] = "checkpoint";
  if (d->checkpoint_step < 0) add(f, d->is_saving, name, "saving");
  else add(f, true, name, "@ %" PRId64 "%s", d->checkpoint_step, d->is_saving ? ", saving" : "");
}

/* By importance: those at the end are left out first. */
static void make_fields(const tsr_dashboard *d, fields *f) {
  bool has_better = !isnan(d->best_validation) && d->best_step != d->validation_step;
  *f = (fields){.count = 0};
  add(f, d->step > 0, "loss", "%.4f", d->loss);
  add_count(f, d->is_samples ? "samples/s" : "tokens/s", d->tokens_per_s);
  add(f, !isnan(d->validation), "val", "%.4f @ %" PRId64, d->validation, d->validation_step);
  add(f, has_better, "best", "%.4f @ %" PRId64, d->best_validation, d->best_step);
  add_number(f, "accuracy", "", d->accuracy);
  add_number(f, "grad norm", "", d->grad_norm);
  add(f, !isnan(d->lr), "lr", "%.3e", d->lr);
  add_number(f, "step time", " ms", d->step_ms);
  add_number(f, "MFU", " %", 100 * d->mfu);
  add_checkpoint(d, f);
  add_bytes(f, "memory", d->resident_bytes);
  add_bytes(f, "peak", d->peak_bytes);
  add_count(f, d->is_samples ? "samples" : "tokens", d->tokens);
}

/* Fields side by side, in columns of one width; the rows that they take, at most `rows`. */
static int draw_fields(tsr_screen *s, const fields *f, int row, int rows, bool draws) {
  enum { BETWEEN = 2, LEAST = 19 };
  int across = (s->columns + BETWEEN) / (LEAST + BETWEEN), used = 0;
  if (across < 1) across = 1;
  if (across > 4) across = 4;
  int width = (s->columns + BETWEEN) / across - BETWEEN;
  for (int i = 0; i < f->count && i / across < rows; i++) {
    int column = i % across * (width + BETWEEN), end = column + width;
    used = i / across + 1;
    if (!draws) continue;
    int at = tsr_screen_text(s, row + i / across, column, end, f->items[i].name, TSR_STYLE_SOFT);
    tsr_screen_text(s, row + i / across, at + 1, end, f->items[i].text, TSR_STYLE_PLAIN);
  }
  return used;
}

/* ---- lines ---- */

static int format_step(const tsr_dashboard *d, char ret[64]) {
  if (!d->steps) return snprintf(ret, 64, "step %" PRId64, d->step);
  return snprintf(ret, 64, "step %" PRId64 "/%" PRId64, d->step, d->steps);
}

/* "title, state         step 12/100" */
static void draw_head(const tsr_dashboard *d, tsr_screen *s, int row) {
  char step[64];
  int width = format_step(d, step), begin = s->columns - width;
  int end = tsr_screen_text(s, row, 0, begin - 1, d->title, TSR_STYLE_STRONG);
  if (*d->state && end + 2 < begin - 1)
    tsr_screen_text(s, row, end + 2, begin - 1, d->state, TSR_STYLE_SOFT);
  tsr_screen_text(s, row, begin > 0 ? begin : 0, s->columns, step, TSR_STYLE_STRONG);
}

/* "[#####-----]  42 %  0:12, ETA 0:16" */
static void draw_bar(const tsr_dashboard *d, tsr_screen *s, int row) {
  char text[128], elapsed[32], eta[32];
  double done = d->steps ? fmin((double)d->step / (double)d->steps, 1) : 0;
  format_time(d->elapsed_s, elapsed);
  format_time(d->eta_s, eta);
  snprintf(text, sizeof text, "%3.0f %%  %s, ETA %s", 100 * done, elapsed, eta);
  if (!d->steps) snprintf(text, sizeof text, "%s", elapsed);
  int cells = d->steps ? s->columns - (int)strlen(text) - 4 : 0, full = (int)(done * cells), at = 0;
  if (cells >= 8) {
    tsr_screen_put(s, row, at++, '[', TSR_STYLE_SOFT);
    for (int i = 0; i < cells; i++)
      tsr_screen_put(
          s, row, at++, i < full ? '#' : '-', i < full ? TSR_STYLE_CURVE : TSR_STYLE_SOFT);
    tsr_screen_put(s, row, at++, ']', TSR_STYLE_SOFT);
    at += 1;
  }
  tsr_screen_text(s, row, at, s->columns, text, TSR_STYLE_PLAIN);
}

/* What is left of a text behind `columns` characters, which may be less than none. */
static const char *behind(const char *text, int columns) {
  for (; *text && columns > 0; columns--)
    for (text++; ((unsigned char)*text & 0xc0) == 0x80;) text++;
  return text;
}

static int draw_sample(const tsr_dashboard *d, tsr_screen *s, int row, int rows) {
  char head[64];
  if (d->sample_step < 0 || rows < 1) return 0;
  snprintf(head, sizeof head, "sample @ %" PRId64 ":", d->sample_step);
  int column = tsr_screen_text(s, row, 0, s->columns, head, TSR_STYLE_SOFT) + 1, used = 0;
  for (const char *text = d->sample; used < rows && (*text || !used); used++, column = 0) {
    bool is_last = used == rows - 1;
    tsr_screen_text(
        s, row + used, column, is_last ? s->columns : s->columns + 1, text, TSR_STYLE_PLAIN);
    text = behind(text, s->columns - column);
  }
  return used;
}

/* Quoted lines, carets and hints are below their message, and begin with a blank. */
static bool is_message(const char *line) { return *line && *line != ' ' && *line != '\n'; }

/* The newest messages, the newest one last. */
static void draw_messages(const tsr_dashboard *d, tsr_screen *s, int row, int rows) {
  const char *end = d->messages + strlen(d->messages);
  for (int i = rows - 1; i >= 0 && end > d->messages;) {
    char line[TSR_DASHBOARD_TEXT];
    const char *begin = end;
    while (begin > d->messages && begin[-1] != '\n') begin--;
    snprintf(line, sizeof line, "%.*s", (int)(end - begin), begin);
    if (is_message(line)) tsr_screen_text(s, row + i--, 0, s->columns, line, TSR_STYLE_WARNING);
    end = begin > d->messages ? begin - 1 : begin;
  }
}

static int count_messages(const char *text, int most) {
  int lines = 0;
  for (const char *at = text; *at && lines < most;) {
    lines += is_message(at);
    at += strcspn(at, "\n");
    at += *at == '\n';
  }
  return lines;
}

/* ---- the screen ---- */

void tsr_dashboard_draw(const tsr_dashboard *d, tsr_screen *s) {
  enum { SMALL = 6, MIDDLE = 10, LARGE = 18, CURVE_MIN = 3 };
  const tsr_curve *curves[] = {&d->losses, &d->validations};
  static const tsr_style styles[] = {TSR_STYLE_CURVE, TSR_STYLE_OTHER};
  fields f;
  make_fields(d, &f);
  int top = 0, bottom = s->rows;
  if (s->rows >= 1) draw_head(d, s, top++);
  if (s->rows >= 3) draw_bar(d, s, top++);
  int messages = count_messages(d->messages, s->rows >= LARGE ? 3 : s->rows >= SMALL ? 1 : 0);
  bottom -= messages;
  draw_messages(d, s, bottom, messages);
  int samples = s->rows >= LARGE ? 3 : s->rows >= MIDDLE ? 1 : 0;
  if (samples && d->sample_step >= 0) {
    int needed =
        (tsr_screen_width(d->sample) + 16 + s->columns - 1) / (s->columns ? s->columns : 1);
    if (needed < samples) samples = needed;
    bottom -= samples;
    draw_sample(d, s, bottom, samples);
  }
  int room = bottom - top, most = room / 2 > 0 ? room / 2 : room;
  int rows = draw_fields(s, &f, 0, most, false);
  if (room - rows < CURVE_MIN) rows = draw_fields(s, &f, 0, room, false);
  draw_fields(s, &f, bottom - rows, rows, true);
  bottom -= rows;
  if (bottom - top >= CURVE_MIN)
    tsr_curve_draw(s, (tsr_area){top, 0, bottom - top, s->columns}, curves, styles, 2);
}
