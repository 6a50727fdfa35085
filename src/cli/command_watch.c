// SPDX-License-Identifier: Apache-2.0
/* The command `watch`: the page of `report`, which follows runs. A signal ends it at once: it
 * leaves nothing. With --tui: watch_dashboard.h. */
#include "base/clock.h"
#include "cli/console.h"
#include "cli/listen_at.h"
#include "cli/watch_dashboard.h"
#include "cli/watched_run.h"
#include "http/host.h"
#include "watch/find_runs.h"
#include "watch/page_server.h"
#include <math.h>
#include <string.h>
#include <time.h>

enum { RUNS_MAX = 200 };

typedef struct {
  app *a;
  tsr_feed *feed;
  watched_run *runs[RUNS_MAX];
  int count, left_out;
  int next; /* whose files are read next */
} watching;

static bool has(const watching *w, const char *path) {
  for (int i = 0; i < w->count; i++)
    if (!strcmp(w->runs[i]->path, path)) return true;
  return false;
}

static void add(watching *w, const char *path) {
  app *a = w->a;
  watched_run *run = tsr_arena_alloc(a->arena, sizeof *run);
  watched_run_open(a->arena, tsr_arena_strdup(a->arena, path), run);
  w->runs[w->count++] = run;
}

/* Of more runs than are followed, those that were written to last. */
static int add_new(watching *w, tsr_found_runs *found) {
  int fresh = 0;
  for (int i = 0; i < found->count; i++)
    if (!has(w, found->items[i].path)) found->items[fresh++] = found->items[i];
  found->count = fresh;
  int most = fresh < RUNS_MAX - w->count ? fresh : RUNS_MAX - w->count;
  tsr_found_runs_sort_by_time(found);
  tsr_found_runs_sort_by_name(found, most);
  for (int i = 0; i < most; i++)
    if (!has(w, found->items[i].path)) add(w, found->items[i].path); /* which was given twice */
  return fresh - most;
}

static void say_left_out(watching *w, int left_out) {
  if (left_out > 0 && !w->left_out)
    tsr_diag_warning(
        w->a->diags, TSR_NOWHERE, "%d runs are left out: at most %d are followed", left_out,
        RUNS_MAX);
  if (left_out > 0 && !w->left_out)
    tsr_diag_hint(w->a->diags, "paths of single runs, or of a smaller folder, select others");
  w->left_out = left_out;
}

static int count_read(const watching *w) {
  int read = 0;
  for (int i = 0; i < w->count; i++) read += w->runs[i]->is_read;
  return read;
}

/* Adds the runs that are new, and names the paths that have none. */
static void find(watching *w) {
  const tsr_words *paths = &w->a->options.arguments;
  const char *waiting[TSR_WORDS_MAX];
  int count = 0;
  tsr_arena *scratch = tsr_arena_new();
  tsr_found_runs found = {0};
  for (int i = 0; i < paths->count; i++) {
    int before = found.count;
    tsr_find_runs(scratch, paths->items[i], &found);
    if (found.count == before) waiting[count++] = paths->items[i];
  }
  say_left_out(w, add_new(w, &found));
  tsr_feed_lock(w->feed);
  tsr_feed_set_waiting(w->feed, waiting, count);
  tsr_feed_set_left_out(w->feed, w->left_out);
  tsr_feed_set_reading(w->feed, count_read(w), w->count);
  tsr_feed_unlock(w->feed);
  tsr_arena_free(scratch);
  tsr_diags_print(w->a->diags, stderr);
}

static void rest(long nanoseconds) { nanosleep(&(struct timespec){.tv_nsec = nanoseconds}, NULL); }

/* Metrics are read of all runs, each time. Of files that have changed as many are read as half a
 * second allows, or one, so that curves do not wait for the plans of other runs. */
static void look(watching *w) {
  const long lock_ns = 1000000; /* in which a request gets the feed's lock */
  const double reading_s = 0.5;
  for (int i = 0; i < w->count; i++) {
    watched_run_look(w->runs[i], w->feed, i);
    rest(lock_ns);
  }
  double end = tsr_seconds_now() + reading_s;
  for (int n = 0; n < w->count && (!n || tsr_seconds_now() < end); n++) {
    w->next = (w->next + 1) % w->count;
    watched_run_read(w->a, w->runs[w->next], w->feed, w->next);
    tsr_feed_lock(w->feed);
    tsr_feed_set_reading(w->feed, count_read(w), w->count);
    tsr_feed_unlock(w->feed);
  }
}

static void follow(watching *w) {
  enum { REST_NS = 500000000 };
  const double find_s = 2;
  for (double found = -INFINITY;;) {
    if (tsr_seconds_now() - found >= find_s) find(w), found = tsr_seconds_now();
    look(w);
    if (count_read(w) == w->count) rest(REST_NS);
  }
}

int app_run_watch(app *a) {
  enum { PORT = 8008 };
  watching *w = tsr_arena_alloc(a->arena, sizeof *w);
  int socket, port;
  if (a->options.tui) return watch_dashboard(a);
  bool loopback = tsr_host_is_loopback(listen_at_host(a));
  if (!page_run_check_machine(a) || !listen_at_open(a, PORT, &socket, &port))
    return console_finish(a, false);
  if (!loopback)
    tsr_diag_warning(
        a->diags, TSR_NOWHERE,
        "--host: other machines may reach the page, which shows configurations and samples");
  *w = (watching){.a = a, .feed = tsr_feed_new(a->arena, TSR_VERSION), .next = -1};
  if (!tsr_page_server_open(a->arena, socket, loopback, w->feed, a->diags))
    return console_finish(a, false);
  listen_at_print(a, port);
  follow(w);
  return 0;
}
