// SPDX-License-Identifier: Apache-2.0
#include "html_report/feed.h"
#include "base/json.h"
#include "base/memory.h"
#include "html_report/page.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* What the series of a run were at a revision. */
typedef struct {
  int64_t revision, begins;
  tsr_run_known known;
} series_mark;

enum { MARKS = 64 }; /* of the newest revisions; a page that is behind them gets whole series */

typedef struct {
  const tsr_page_run *run;
  tsr_text parts[TSR_RUN_PARTS];    /* SERIES is empty: it is made for each asker */
  int64_t revisions[TSR_RUN_PARTS]; /* of each part's last change */
  series_mark marks[MARKS];         /* a ring */
  int64_t marks_count;
} fed_run;

struct tsr_feed {
  pthread_mutex_t lock;
  const char *version;
  char session[33];
  int64_t revision;
  fed_run **runs;
  int count, capacity;
  tsr_text waiting; /* JSON */
  int left_out;
  int read, found; /* runs; found -1: it is not known yet */
};

tsr_feed *tsr_feed_new(tsr_arena *arena, const char *version) {
  tsr_feed *f = tsr_arena_alloc(arena, sizeof *f);
  struct timespec now;
  pthread_mutex_init(&f->lock, NULL);
  timespec_get(&now, TIME_UTC);
  snprintf(
      f->session, sizeof f->session, "%" PRIx64 "%08lx", (int64_t)now.tv_sec,
      (unsigned long)now.tv_nsec ^ (unsigned long)getpid());
  f->version = version;
  f->found = -1;
  tsr_text_add(&f->waiting, "[]");
  return f;
}

void tsr_feed_lock(tsr_feed *f) { pthread_mutex_lock(&f->lock); }
void tsr_feed_unlock(tsr_feed *f) { pthread_mutex_unlock(&f->lock); }

/* ---- changes ---- */

static const series_mark *newest_mark(const fed_run *r) {
  return r->marks_count ? &r->marks[(r->marks_count - 1) % MARKS] : NULL;
}

static bool update_series(fed_run *r, int64_t revision, int64_t begins) {
  const series_mark *last = newest_mark(r);
  series_mark now = {.revision = revision, .begins = begins};
  for (int i = 0; i < TSR_SERIES_COUNT; i++) now.known.known[i] = r->run->metrics->series[i].count;
  if (last && last->begins == begins && !memcmp(&last->known, &now.known, sizeof now.known))
    return false;
  r->marks[r->marks_count++ % MARKS] = now;
  return true;
}

static bool update_part(fed_run *r, tsr_run_part part) {
  tsr_text now = {0};
  tsr_run_json_part(r->run, part, NULL, &now);
  bool same = now.length == r->parts[part].length &&
              (!now.length || !memcmp(now.data, r->parts[part].data, now.length));
  tsr_text_free(same ? &now : &r->parts[part]);
  if (!same) r->parts[part] = now;
  return !same;
}

static fed_run *run_of(tsr_feed *f, int index) {
  if (index < f->count) return f->runs[index];
  if (f->count == f->capacity) {
    f->capacity = 2 * f->capacity + 8;
    f->runs = tsr_memory_grow(f->runs, sizeof *f->runs * (size_t)f->capacity);
  }
  return f->runs[f->count++] = tsr_memory_new(sizeof(fed_run));
}

void tsr_feed_update(tsr_feed *f, int index, const tsr_page_run *run, int64_t begins) {
  fed_run *r = run_of(f, index);
  int64_t revision = f->revision + 1;
  r->run = run;
  for (tsr_run_part part = 0; part < TSR_RUN_PARTS; part++) {
    bool series = part == TSR_RUN_PART_SERIES;
    if (!(series ? update_series(r, revision, begins) : update_part(r, part))) continue;
    r->revisions[part] = f->revision = revision;
  }
}

void tsr_feed_set_waiting(tsr_feed *f, const char *const *paths, int count) {
  tsr_text now = {0};
  tsr_text_add(&now, "[");
  for (int i = 0; i < count; i++) {
    if (i) tsr_text_add(&now, ",");
    tsr_json_add_text(&now, paths[i], strlen(paths[i]));
  }
  tsr_text_add(&now, "]");
  tsr_text_free(&f->waiting);
  f->waiting = now;
}

void tsr_feed_set_left_out(tsr_feed *f, int count) { f->left_out = count; }

void tsr_feed_set_reading(tsr_feed *f, int read, int found) {
  f->read = read;
  f->found = found;
}

/* ---- answers ---- */

static void add_head(const tsr_feed *f, tsr_text *json) {
  struct timespec now;
  timespec_get(&now, TIME_UTC);
  tsr_text_add(json, "{\"format\":1,\"version\":");
  tsr_json_add_text(json, f->version, strlen(f->version));
  tsr_text_add(
      json,
      ",\"session\":\"%s\",\"revision\":%" PRId64 ",\"now\":%.3f,\"waiting\":%s,\"left_out\":%d",
      f->session, f->revision, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, f->waiting.data,
      f->left_out);
  if (f->read == f->found) tsr_text_add(json, ",\"reading\":null");
  else tsr_text_add(json, ",\"reading\":[%d,%d]", f->read, f->found < 0 ? 0 : f->found);
}

/* What an asker of a revision has; NULL: the series that it has are not known, or others. */
static const tsr_run_known *known_at(const fed_run *r, int64_t revision) {
  int64_t oldest = r->marks_count > MARKS ? r->marks_count - MARKS : 0;
  for (int64_t i = r->marks_count - 1; i >= oldest; i--) {
    const series_mark *m = &r->marks[i % MARKS];
    if (m->revision > revision) continue;
    return m->begins == newest_mark(r)->begins ? &m->known : NULL;
  }
  return NULL;
}

/* The parts that have changed behind a revision, each behind `between`, which is then a comma. */
static void add_parts(const fed_run *r, int64_t since, const char *between, tsr_text *json) {
  for (tsr_run_part part = 0; part < TSR_RUN_PARTS; part++) {
    if (r->revisions[part] <= since) continue;
    tsr_text_add(json, "%s", between);
    between = ",";
    if (part == TSR_RUN_PART_SERIES) tsr_run_json_part(r->run, part, known_at(r, since), json);
    else tsr_text_add_bytes(json, r->parts[part].data, r->parts[part].length);
  }
}

static bool has_changed(const fed_run *r, int64_t since) {
  for (int part = 0; part < TSR_RUN_PARTS; part++)
    if (r->revisions[part] > since) return true;
  return false;
}

static void add_whole(const tsr_feed *f, tsr_text *json) {
  tsr_text_add(json, ",\"runs\":[");
  for (int i = 0; i < f->count; i++) {
    tsr_text_add(json, i ? ",\n{" : "{");
    add_parts(f->runs[i], 0, "", json);
    tsr_text_add(json, "}");
  }
  tsr_text_add(json, "]}");
}

static void add_changes(const tsr_feed *f, int64_t since, tsr_text *json) {
  const char *between = "";
  tsr_text_add(json, ",\"changed\":[");
  for (int i = 0; i < f->count; i++) {
    if (!has_changed(f->runs[i], since)) continue;
    tsr_text_add(json, "%s{\"index\":%d", between, i);
    add_parts(f->runs[i], since, ",", json);
    tsr_text_add(json, "}");
    between = ",";
  }
  tsr_text_add(json, "]}");
}

/* -1: of another session, or of none. */
static int64_t revision_of(const tsr_feed *f, const char *since) {
  size_t length = strlen(f->session);
  if (!since || strncmp(since, f->session, length) != 0 || since[length] != '-') return -1;
  int64_t revision = strtoll(since + length + 1, NULL, 10);
  return revision <= f->revision ? revision : -1;
}

void tsr_feed_data(tsr_feed *f, const char *since, tsr_text *json) {
  pthread_mutex_lock(&f->lock);
  int64_t revision = revision_of(f, since);
  add_head(f, json);
  if (revision < 0) add_whole(f, json);
  else add_changes(f, revision, json);
  pthread_mutex_unlock(&f->lock);
}

void tsr_feed_page(tsr_feed *f, tsr_text *page) {
  tsr_text json = {0};
  tsr_feed_data(f, NULL, &json);
  tsr_report_page_make(&json, page);
  tsr_text_free(&json);
}
