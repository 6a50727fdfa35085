// SPDX-License-Identifier: Apache-2.0
/* Whether a trace file is one, and says what the printed profile says.
 *
 *   check_trace TRACE PROFILE
 *
 * TRACE: the JSON file; PROFILE: what `profile` printed. Every event has what its phase needs, lies
 * in its step and nests on its track; a rank's sums, counted anew from the file, are the table's.
 */
#include "tests/check.h"
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdlib.h>

enum { RANKS_MAX = 64, STEPS_MAX = 64, TRACKS = 4, KINDS = 5 };
static const char *const kinds[KINDS] = {"compute", "input", "communication", "wait", "step"};

typedef struct {
  double begin, end; /* microseconds */
  int kind, rank, track, step;
} span;

typedef struct {
  span *spans;
  int spans_count;
  span steps[STEPS_MAX];
  int steps_count, ranks;
  int seq[RANKS_MAX + 1]; /* per rank: its next */
} trace;

static char *read_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (!file) return NULL;
  fseek(file, 0, SEEK_END);
  long length = ftell(file);
  rewind(file);
  char *text = malloc((size_t)length + 1);
  size_t got = fread(text, 1, (size_t)length, file);
  text[got] = 0;
  fclose(file);
  return text;
}

static double number(const cJSON *object, const char *name) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
  CHECK_AT(cJSON_IsNumber(item), "an event has no number '%s'", name);
  return item ? item->valuedouble : 0;
}

static const char *word(const cJSON *object, const char *name) {
  const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
  CHECK_AT(cJSON_IsString(item) && *item->valuestring, "an event has no text '%s'", name);
  return item && item->valuestring ? item->valuestring : "";
}

static int kind_of(const cJSON *event) {
  const char *category = word(event, "cat");
  for (int k = 0; k < KINDS; k++)
    if (!strcmp(category, kinds[k])) return k;
  CHECK_AT(false, "an event of the category '%s'", category);
  return 0;
}

static void read_event(trace *t, const cJSON *event) {
  const cJSON *args = cJSON_GetObjectItemCaseSensitive(event, "args");
  CHECK(cJSON_IsObject(args));
  word(event, "name");
  span s = {.rank = (int)number(event, "pid"), .track = (int)number(event, "tid")};
  if (!strcmp(word(event, "ph"), "M")) {
    word(args, "name");
    if (!strcmp(word(event, "name"), "process_name") && s.rank > t->ranks) t->ranks = s.rank;
    return;
  }
  CHECK_STR(word(event, "ph"), "X");
  s.begin = number(event, "ts");
  s.end = s.begin + number(event, "dur");
  s.kind = kind_of(event);
  s.step = (int)number(args, "step");
  CHECK(s.begin >= 0 && s.end >= s.begin);
  CHECK(s.track >= 0 && s.track < TRACKS && s.rank >= 0 && s.rank <= RANKS_MAX);
  if (!strcmp(kinds[s.kind], "step")) {
    CHECK_INT(s.step, t->steps_count);
    if (t->steps_count < STEPS_MAX) t->steps[t->steps_count++] = s;
    return;
  }
  CHECK(number(args, "microbatch") >= 0);
  if (!strcmp(kinds[s.kind], "communication")) {
    CHECK(number(args, "bytes") > 0);
    CHECK_INT(number(args, "seq"), t->seq[s.rank]++);
  }
  if (strcmp(kinds[s.kind], "input")) word(args, "op"), word(args, "section");
  t->spans[t->spans_count++] = s;
}

static int by_begin(const void *a, const void *b) {
  const span *x = a, *y = b;
  if (x->rank != y->rank) return x->rank - y->rank;
  if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
  return (x->end > y->end) - (x->end < y->end);
}

/* Rounding of doubles; times are in thousandths. */
static const double SLACK = 1e-4;

static void check_tracks(const trace *t) {
  for (int rank = 0; rank < t->ranks; rank++)
    for (int track = 0; track < TRACKS; track++) {
      double until = 0;
      for (int i = 0; i < t->spans_count; i++) {
        const span *s = &t->spans[i];
        if (s->rank != rank || s->track != track) continue;
        CHECK_AT(s->begin >= until - SLACK, "rank %d, track %d: two at once", rank, track);
        until = s->end;
        CHECK(s->step < t->steps_count);
        CHECK(s->begin >= t->steps[s->step].begin - SLACK);
        CHECK(s->end <= t->steps[s->step].end + SLACK);
      }
    }
}

typedef struct {
  double of[KINDS], overlapped, idle;
} sums;

static sums sum_rank(const trace *t, int rank) {
  sums s = {0};
  double whole = 0, covered = 0, until = 0;
  for (int i = 0; i < t->steps_count; i++) whole += t->steps[i].end - t->steps[i].begin;
  for (int i = 0; i < t->spans_count; i++) {
    const span *e = &t->spans[i];
    if (e->rank != rank) continue;
    s.of[e->kind] += e->end - e->begin;
    if (!strcmp(kinds[e->kind], "wait")) continue;
    double begin = e->begin > until ? e->begin : until;
    if (e->end > begin) covered += e->end - begin;
    if (e->end > until) until = e->end;
  }
  s.overlapped = s.of[0] + s.of[1] + s.of[2] - covered;
  s.idle = whole - covered;
  return s;
}

/* The table shows seconds with six decimals. */
static void check_cell(const char *what, int rank, double shown, double microseconds) {
  CHECK_AT(
      fabs(shown - microseconds * 1e-6) < 0.6e-6, "rank %d: %s %.6f s, but %.7f in the file", rank,
      what, shown, microseconds * 1e-6);
}

static void check_table(const trace *t, const char *text) {
  int rows = 0;
  const char *at = strstr(text, "\n  rank  stage ");
  CHECK(at != NULL);
  if (!at) return;
  for (at = strchr(at + 1, '\n'); at; at = strchr(at + 1, '\n')) {
    int rank, stage;
    double c, in, m, o, w, idle;
    if (sscanf(at, " %d %d %lf %lf %lf %lf %lf %lf", &rank, &stage, &c, &in, &m, &o, &w, &idle) !=
        8)
      break;
    sums s = sum_rank(t, rank);
    CHECK_INT(rank, rows++);
    CHECK(s.of[0] > 0);
    check_cell("compute", rank, c, s.of[0]);
    check_cell("input", rank, in, s.of[1]);
    check_cell("communication", rank, m, s.of[2]);
    check_cell("waiting", rank, w, s.of[3]);
    check_cell("overlapped", rank, o, s.overlapped);
    check_cell("idle", rank, idle, s.idle);
  }
  CHECK_INT(rows, t->ranks);
}

int main(int argc, char **argv) {
  if (argc != 3) return fprintf(stderr, "usage: check_trace TRACE PROFILE\n"), 2;
  char *json = read_file(argv[1]), *text = read_file(argv[2]);
  CHECK(json != NULL && text != NULL);
  if (!json || !text) return check_done("trace");
  cJSON *root = cJSON_ParseWithOpts(json, NULL, true);
  const cJSON *events = cJSON_GetObjectItemCaseSensitive(root, "traceEvents"), *event;
  CHECK_AT(cJSON_IsArray(events), "no traceEvents");
  trace t = {.spans = malloc(sizeof(span) * (size_t)(cJSON_GetArraySize(events) + 1))};
  cJSON_ArrayForEach(event, events) read_event(&t, event);
  CHECK(t.steps_count > 0 && t.ranks > 0);
  qsort(t.spans, (size_t)t.spans_count, sizeof *t.spans, by_begin);
  check_tracks(&t);
  check_table(&t, text);
  cJSON_Delete(root);
  free(t.spans);
  free(json);
  free(text);
  return check_done("trace");
}
