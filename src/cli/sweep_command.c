// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_command.h"
#include "base/file_read.h"
#include "base/json.h"
#include "job/compute_device.h"
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static void add(sweep_words *w, const char *word) { w->items[w->count++] = (char *)word; }
static void add_pair(sweep_words *w, const char *option, const char *value) {
  add(w, option);
  add(w, value);
}

/* --launcher: its words, which blanks separate. */
static void add_launcher(app *a, sweep_words *w) {
  enum { LAUNCHER_WORDS_MAX = 200 };
  const char *at = a->options.launcher ? a->options.launcher : "";
  for (int i = 0; i < LAUNCHER_WORDS_MAX; i++) {
    at += strspn(at, " ");
    size_t length = strcspn(at, " ");
    if (!length) return;
    add(w, tsr_arena_strndup(a->arena, at, length));
    at += length;
  }
}

static const char *own_path(tsr_arena *arena) {
  char path[4096];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
  return n < 0 ? "tessera-train" : tsr_arena_strndup(arena, path, (size_t)n);
}

/* The threads of this process, divided among those at a time; a launcher binds its own. */
static void add_threads(app *a, const tsr_config *c, int jobs, sweep_words *w) {
  if (jobs < 2 || a->options.launcher || c->numerics.threads) return;
  int threads = tsr_compute_threads(&a->job) / jobs;
  add_pair(
      w, "--set", tsr_arena_printf(a->arena, "numerics.threads=%d", threads > 1 ? threads : 1));
}

/* One of the configuration would be that of all runs. */
static void add_checkpoint_dir(app *a, const char *folder, sweep_words *w) {
  const char *path = tsr_path_join(a->arena, folder, "checkpoints");
  tsr_text set = {0};
  tsr_text_add(&set, "training_config.checkpoint_dir=");
  tsr_json_add_text(&set, path, strlen(path));
  add_pair(w, "--set", tsr_arena_strdup(a->arena, set.data));
  tsr_text_free(&set);
}

void sweep_command(app *a, const sweep_request *r, const sweep_job *job, sweep_words *w) {
  tsr_set sets[TSR_SETS_MAX];
  int count;
  *w = (sweep_words){.count = 0};
  sweep_request_sets(a, r, job->run, sets, &count);
  add_launcher(a, w);
  add_pair(w, own_path(a->arena), "train");
  add_pair(w, "--config", a->options.config);
  if (a->options.mesh) add_pair(w, "--mesh", a->options.mesh);
  add_threads(a, r->config, job->jobs, w);
  for (int i = 0; i < count; i++) add_pair(w, "--set", sets[i].text);
  add_checkpoint_dir(a, job->folder, w);
  if (a->options.strict) add(w, "--strict");
  add_pair(w, "--out", job->folder);
  if (job->fork) add_pair(w, "--fork", job->fork);
  else add(w, "--resume");
  if (job->stop_at) add_pair(w, "--stop-at", tsr_arena_printf(a->arena, "%" PRId64, job->stop_at));
  add(w, NULL);
}
