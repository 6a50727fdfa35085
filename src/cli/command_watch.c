// SPDX-License-Identifier: Apache-2.0
/* The command `watch`: the page of `report`, which follows runs. A signal ends it at once: it
 * leaves nothing. With --tui: watch_dashboard.h. */
#include "cli/console.h"
#include "cli/listen_at.h"
#include "cli/watch_dashboard.h"
#include "cli/watched_run.h"
#include "http/host.h"
#include "watch/find_runs.h"
#include "watch/page_server.h"
#include <string.h>
#include <time.h>

typedef struct {
  app *a;
  tsr_feed *feed;
  watched_run *runs[TSR_FOUND_RUNS_MAX];
  int count;
  bool is_full; /* which was said */
} watching;

static bool has(const watching *w, const char *path) {
  for (int i = 0; i < w->count; i++)
    if (!strcmp(w->runs[i]->path, path)) return true;
  return false;
}

static void add(watching *w, const char *path) {
  app *a = w->a;
  if (has(w, path)) return;
  if (w->count == TSR_FOUND_RUNS_MAX) {
    if (!w->is_full)
      tsr_diag_warning(
          a->diags, TSR_NOWHERE, "'%s' is not followed: there are %d runs already", path, w->count);
    w->is_full = true;
    return;
  }
  watched_run *run = tsr_arena_alloc(a->arena, sizeof *run);
  watched_run_open(a->arena, tsr_arena_strdup(a->arena, path), run);
  w->runs[w->count++] = run;
}

/* Adds the runs that are new, and names the paths that have none. */
static void find(watching *w) {
  const tsr_words *paths = &w->a->options.arguments;
  const char *waiting[TSR_WORDS_MAX];
  int count = 0;
  tsr_arena *scratch = tsr_arena_new();
  tsr_found_runs *found = tsr_arena_alloc(scratch, sizeof *found);
  for (int i = 0; i < paths->count; i++) {
    tsr_find_runs(scratch, paths->items[i], found);
    for (int k = 0; k < found->count; k++) add(w, found->paths[k]);
    if (!found->count) waiting[count++] = paths->items[i];
  }
  tsr_feed_lock(w->feed);
  tsr_feed_set_waiting(w->feed, waiting, count);
  tsr_feed_unlock(w->feed);
  tsr_arena_free(scratch);
  tsr_diags_print(w->a->diags, stderr);
}

static void look(watching *w) {
  for (int i = 0; i < w->count; i++) watched_run_look(w->a, w->runs[i], w->feed, i);
}

static void follow(watching *w) {
  enum { REST_NS = 500000000, FIND_EVERY = 4 };
  for (int i = 1;; i++) {
    nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
    if (i % FIND_EVERY == 0) find(w);
    look(w);
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
  *w = (watching){.a = a, .feed = tsr_feed_new(a->arena, TSR_VERSION)};
  find(w);
  look(w);
  if (!tsr_page_server_open(a->arena, socket, loopback, w->feed, a->diags))
    return console_finish(a, false);
  listen_at_print(a, port);
  follow(w);
  return 0;
}
