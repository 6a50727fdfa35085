// SPDX-License-Identifier: Apache-2.0
#include "html_report/series.h"
#include "base/json.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void tsr_series_add(tsr_arena *arena, tsr_series *s, int64_t step, double value) {
  tsr_arena_grow(arena, (void **)&s->points, sizeof *s->points, s->count, &s->capacity);
  s->points[s->count++] = (tsr_series_point){step, value};
}

void tsr_series_cut(tsr_series *s, int64_t step) {
  while (s->count && s->points[s->count - 1].step >= step) s->count--;
}

void tsr_series_print_number(double value, tsr_text *json) {
  char text[32];
  if (!isfinite(value)) {
    tsr_text_add(json, "null");
    return;
  }
  for (int digits = 6; digits <= 17; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (strtod(text, NULL) == value) break;
  }
  tsr_text_add(json, "%s", text);
}

/* ---- buckets ---- */

typedef struct {
  double step, mean, low, high; /* NaN: no value is finite */
} bucket;

static bucket bucket_of(const tsr_series_point *points, int count) {
  bucket b = {.low = NAN, .high = NAN};
  long double sum = 0; /* which the sum of doubles does not exceed */
  int finite = 0, middle = count / 2;
  for (int i = 0; i < count; i++) {
    double v = points[i].value;
    if (!isfinite(v)) continue;
    if (!finite || v < b.low) b.low = v;
    if (!finite || v > b.high) b.high = v;
    sum += v;
    finite++;
  }
  b.step = (double)points[middle].step;
  b.mean = finite ? (double)(sum / finite) : NAN;
  return b;
}

/* The first and the last point are buckets of their own. */
static int make_buckets(const tsr_series *s, bucket ret[TSR_SERIES_BUCKETS + 2]) {
  int inner = s->count - 2, count = 0;
  ret[count++] = bucket_of(s->points, 1);
  for (int b = 0; b < TSR_SERIES_BUCKETS; b++) {
    int begin = 1 + (int)((int64_t)inner * b / TSR_SERIES_BUCKETS);
    int end = 1 + (int)((int64_t)inner * (b + 1) / TSR_SERIES_BUCKETS);
    ret[count++] = bucket_of(s->points + begin, end - begin);
  }
  ret[count++] = bucket_of(s->points + s->count - 1, 1);
  return count;
}

/* ---- JSON ---- */

/* Six digits: less than a pixel. */
static void add_short(double value, bool first, tsr_text *json) {
  if (!first) tsr_text_add(json, ",");
  if (isfinite(value)) tsr_text_add(json, "%.6g", value);
  else tsr_text_add(json, "null");
}

static void print_buckets(const tsr_series *s, tsr_text *json) {
  bucket buckets[TSR_SERIES_BUCKETS + 2];
  int count = make_buckets(s, buckets);
  tsr_text_add(json, ",\"x\":[");
  for (int i = 0; i < count; i++) tsr_text_add(json, "%s%.0f", i ? "," : "", buckets[i].step);
  tsr_text_add(json, "],\"y\":[");
  for (int i = 0; i < count; i++) add_short(buckets[i].mean, !i, json);
  tsr_text_add(json, "],\"lo\":[");
  for (int i = 0; i < count; i++) add_short(buckets[i].low, !i, json);
  tsr_text_add(json, "],\"hi\":[");
  for (int i = 0; i < count; i++) add_short(buckets[i].high, !i, json);
  tsr_text_add(json, "]");
}

static void print_points(const tsr_series *s, int from, tsr_text *json) {
  if (from) tsr_text_add(json, ",\"from\":%d", from);
  tsr_text_add(json, ",\"x\":[");
  for (int i = from; i < s->count; i++)
    tsr_text_add(json, "%s%" PRId64, i > from ? "," : "", s->points[i].step);
  tsr_text_add(json, "],\"y\":[");
  for (int i = from; i < s->count; i++) add_short(s->points[i].value, i == from, json);
  tsr_text_add(json, "]");
}

static void print_end(const char *name, const tsr_series_point *point, tsr_text *json) {
  tsr_text_add(json, ",\"%s\":[%" PRId64 ",", name, point->step);
  tsr_series_print_number(point->value, json);
  tsr_text_add(json, "]");
}

static void print_missing(const tsr_series *s, tsr_text *json) {
  enum { SHOWN_MAX = 20 };
  int missing = 0;
  tsr_text_add(json, ",\"missing_steps\":[");
  for (int i = 0; i < s->count; i++) {
    if (isfinite(s->points[i].value)) continue;
    if (missing++ < SHOWN_MAX)
      tsr_text_add(json, "%s%" PRId64, missing > 1 ? "," : "", s->points[i].step);
  }
  tsr_text_add(json, "],\"missing\":%d", missing);
}

void tsr_series_print(const tsr_series *s, int known, tsr_text *json) {
  tsr_text_add(json, "{\"tag\":");
  tsr_json_add_text(json, s->tag, strlen(s->tag));
  if (known && known == s->count) {
    tsr_text_add(json, ",\"same\":true}");
    return;
  }
  tsr_text_add(json, ",\"count\":%d", s->count);
  if (s->count > 2 * TSR_SERIES_BUCKETS) print_buckets(s, json);
  else print_points(s, known, json);
  if (s->count) print_end("first", &s->points[0], json);
  if (s->count) print_end("last", &s->points[s->count - 1], json);
  print_missing(s, json);
  tsr_text_add(json, "}");
}
