// SPDX-License-Identifier: Apache-2.0
#include "runner.h"
#include "base/file_read.h"
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* splitmix64 */
uint64_t draw(runner *r, uint64_t below) {
  uint64_t x = r->random += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return below ? x % below : 0;
}

/* ---- folders ---- */

static const char recipe[] = "training_config:\n"
                             "  data_path: %s\n"
                             "  seed: 11\n"
                             "  tokenizer_type: char\n"
                             "  batch_size: 8\n"
                             "  sequence_length: 8\n"
                             "  max_steps: 24\n"
                             "  model_save_interval: 3\n"
                             "  eval_every: 0\n"
                             "  sample_tokens: 0\n"
                             "  use_clip_grad_norm: true\n"
                             "  clip_grad_norm_max_norm: 1.0\n"
                             "  optimizer: {type: AdamW, lr: 0.003, weight_decay: 0.1}\n"
                             "scheduler_config: {type: cosine, warmup_steps: 4}\n"
                             "transformer_config:\n"
                             "  model_type: gpt2\n"
                             "  vocab_size: 0\n"
                             "  embedding_dim: 16\n"
                             "  num_blocks: 4\n"
                             "  num_heads: 2\n"
                             "  max_sequence_length: 8\n"
                             "  dropout_prob: 0.1\n"
                             "  weight_tying: enabled\n"
                             "numerics:\n"
                             "  units: {batch: 4, sequence: 2, tp: 2}\n"
                             "  threads: 1\n";

static bool write_recipe(const char *path, const char *data) {
  FILE *f = fopen(path, "w");
  if (!f) return false;
  bool ok = fprintf(f, recipe, data) > 0;
  return fclose(f) == 0 && ok;
}

static bool write_data(const char *path) {
  FILE *f = fopen(path, "w");
  if (!f) return false;
  for (int i = 0; i < 60; i++)
    fprintf(f, "%d bottles of %s on the wall, %d in all.\n", i, i % 3 ? "milk" : "beer", i * i);
  return fclose(f) == 0;
}

const char *scratch_new(tsr_arena *arena) {
  const char *said = getenv("TMPDIR"), *folders[] = {said, said ? NULL : "/dev/shm", "/tmp"};
  for (int i = 0; i < 3; i++) {
    if (!folders[i]) continue;
    char *path = tsr_arena_printf(arena, "%s/tessera-faults-XXXXXX", folders[i]);
    if (!mkdtemp(path)) continue;
    const char *data = tsr_path_join(arena, path, "text.txt");
    if (write_recipe(tsr_path_join(arena, path, "run.yaml"), data) && write_data(data)) return path;
    folder_remove(path);
  }
  return NULL;
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *location) {
  (void)info, (void)kind, (void)location;
  return remove(path);
}

void folder_remove(const char *path) { nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS); }

/* ---- commands ---- */

void words_add(runner *r, words *w, const char *format, ...) {
  va_list args;
  va_start(args, format);
  if (w->count < WORDS_MAX - 1) w->items[w->count++] = tsr_arena_vprintf(r->arena, format, args);
  va_end(args);
}

words words_run(runner *r, const char *folder) {
  words w = {{r->program, "--config"}, 2};
  words_add(r, &w, "%s", r->config);
  words_add(r, &w, "--out");
  words_add(r, &w, "%s", folder);
  return w;
}

static void set(runner *r, words *w, const char *text) {
  words_add(r, w, "--set");
  words_add(r, w, "%s", text);
}

static void set_number(runner *r, words *w, const char *key, int value) {
  words_add(r, w, "--set");
  words_add(r, w, "%s=%d", key, value);
}

/* The 8 samples of a step are 4 units, so dp x microbatches divides 4. */
static void microbatches(runner *r, words *w, int dp, bool pipeline, bool most) {
  int count = most ? 4 / dp : 1 << draw(r, dp == 4 ? 1 : dp == 2 ? 2 : 3);
  if (pipeline) {
    set_number(r, w, "pipeline.microbatches", 4 / dp);
    return;
  }
  set_number(r, w, "training_config.gradient_accumulation_steps", count);
  set_number(r, w, "training_config.batch_size", 8 / count);
}

void words_mesh(runner *r, words *w) {
  static const struct {
    const char *axes, *shape;
    int dp;
    bool pipeline, positions;
  } meshes[] = {{"", "", 1, false, false},         {"dp", "2", 2, false, false},
                {"dp", "4", 4, false, false},      {"tp", "2", 1, false, false},
                {"pp", "2", 1, true, false},       {"cp", "2", 1, false, true},
                {"dp,tp", "2,2", 2, false, false}, {"dp,pp", "2,2", 2, true, false},
                {"tp,pp", "2,2", 1, true, false},  {"cp,dp", "2,2", 2, false, true}};
  static const char *const orders[] = {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_v"};
  static const char *const recomputes[] = {"none", "selective", "full", "cheap"};
  size_t i = draw(r, sizeof meshes / sizeof *meshes);
  if (*meshes[i].axes) {
    set(r, w, tsr_arena_printf(r->arena, "mesh.axes=[%s]", meshes[i].axes));
    set(r, w, tsr_arena_printf(r->arena, "mesh.shape=[%s]", meshes[i].shape));
  }
  if (meshes[i].dp > 1 && !meshes[i].positions) set_number(r, w, "zero.stage", (int)draw(r, 4));
  microbatches(r, w, meshes[i].dp, meshes[i].pipeline, meshes[i].positions);
  if (meshes[i].pipeline)
    set(r, w, tsr_arena_printf(r->arena, "pipeline.schedule=%s", orders[draw(r, 5)]));
  set(r, w, tsr_arena_printf(r->arena, "schedule.recompute=%s", recomputes[draw(r, 4)]));
  set(r, w, draw(r, 2) ? "schedule.overlap=true" : "schedule.overlap=false");
  set(r, w, draw(r, 3) ? "checkpoint.background=true" : "checkpoint.background=false");
  set_number(r, w, "checkpoint.keep_last", 1 + (int)draw(r, 3));
  set_number(r, w, "training_config.model_save_interval", 2 + (int)draw(r, 3));
}

const char *words_text(runner *r, const words *w, const char *fault) {
  const char *text = fault ? tsr_arena_printf(r->arena, "TESSERA_FAULT=%s", fault) : "";
  for (int i = 0; i < w->count; i++)
    text = tsr_arena_printf(r->arena, "%s%s'%s'", text, *text ? " " : "", w->items[i]);
  return text;
}

/* ---- runs ---- */

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static pid_t start(runner *r, const words *w, const char *fault) {
  const char *log = tsr_path_join(r->arena, r->scratch, "said");
  pid_t child = fork();
  if (child) return child;
  int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fault) setenv("TESSERA_FAULT", fault, 1);
  else unsetenv("TESSERA_FAULT");
  if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0) _exit(126);
  const char *items[WORDS_MAX + 1] = {NULL};
  for (int i = 0; i < w->count; i++) items[i] = w->items[i];
  execv(items[0], (char *const *)items);
  _exit(127);
}

static void rest(double seconds) {
  nanosleep(&(struct timespec){(time_t)seconds, (long)((seconds - (int)seconds) * 1e9)}, NULL);
}

static const char *text_of(runner *r, const char *path) {
  char *text;
  size_t length;
  tsr_diags *diags = tsr_diags_new(r->arena);
  return tsr_file_read(r->arena, path, 1 << 24, TSR_NOWHERE, &text, &length, diags) ? text : "";
}

static ending finish(runner *r, pid_t child, int status, double begin) {
  ending e = {.seconds = now() - begin};
  if (child < 0) return (ending){-1, 0, "cannot fork"};
  e.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  e.said = text_of(r, tsr_path_join(r->arena, r->scratch, "said"));
  return e;
}

ending run(runner *r, const words *w, const char *fault, double after_s, int signal) {
  double begin = now();
  pid_t child = start(r, w, fault);
  int status = 0;
  bool ended = false;
  while (child > 0 && after_s >= 0 && !ended && now() - begin < after_s) {
    double left = after_s - (now() - begin);
    rest(left < 0 ? 0 : left < 1e-3 ? left : 1e-3);
    ended = waitpid(child, &status, WNOHANG) == child;
  }
  if (child > 0 && !ended) {
    if (after_s >= 0) kill(child, signal);
    waitpid(child, &status, 0);
  }
  return finish(r, child, status, begin);
}

static bool has_step(const char *path, int step) {
  char line[4096], want[32];
  bool found = false;
  FILE *f = fopen(path, "r");
  if (!f) return false;
  snprintf(want, sizeof want, "\"step\":%d,", step);
  while (!found && fgets(line, sizeof line, f)) found = strstr(line, want) != NULL;
  fclose(f);
  return found;
}

ending run_until(runner *r, const words *w, const char *metrics, int step, int signal) {
  double begin = now();
  pid_t child = start(r, w, NULL);
  int status = 0;
  bool ended = child < 0;
  while (!ended && !has_step(metrics, step)) {
    rest(1e-3);
    ended = waitpid(child, &status, WNOHANG) == child;
  }
  if (!ended) {
    kill(child, signal);
    waitpid(child, &status, 0);
  }
  return finish(r, child, status, begin);
}

const char *sha256_of(runner *r, const char *said) {
  static const char before[] = "weights sha256 ";
  const char *at = strstr(said, before);
  if (!at || strspn(at + sizeof before - 1, "0123456789abcdef") != 64) return "";
  return tsr_arena_strndup(r->arena, at + sizeof before - 1, 64);
}

/* ---- what is left ---- */

static bool is_whole(tsr_arena *arena, const char *path) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_manifest m;
  tsr_checkpoint_reader *in;
  if (!tsr_manifest_read(arena, path, TSR_NOWHERE, &m, diags)) return false;
  if (!tsr_checkpoint_reader_open(arena, &m, true, &in, diags)) return false;
  bool ok = tsr_checkpoint_reader_verify(in, diags);
  tsr_checkpoint_reader_close(in);
  return ok;
}

kept look(const char *checkpoints) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_checkpoint_entry *entries;
  int count = 0;
  kept k = {0, 0, -1, -1};
  tsr_checkpoints_list(arena, checkpoints, &entries, &count, diags);
  for (int i = 0; i < count; i++) {
    k.named++;
    k.newest = entries[i].step;
    if (!is_whole(arena, entries[i].path)) continue;
    k.whole++;
    k.newest_whole = entries[i].step;
  }
  tsr_arena_free(arena);
  return k;
}

bool read_losses(
    runner *r, const char *metrics, const char *const **ret, int *ret_count,
    const char **ret_wrong) {
  char *text = tsr_arena_strdup(r->arena, text_of(r, metrics)), *next;
  const char **losses = NULL;
  int capacity = 0;
  *ret_count = 0;
  for (char *line = text; *line; line = next) {
    next = line + strcspn(line, "\n");
    if (!*next) return *ret_wrong = "the metrics end inside a line", false;
    *next++ = 0;
    int step;
    if (!strstr(line, "\"event\":\"step\"")) continue;
    char *loss = strstr(line, "\"loss\""), *end = strstr(line, ",\"lr\"");
    if (sscanf(strstr(line, "\"step\":"), "\"step\":%d", &step) != 1 || !loss || !end)
      return *ret_wrong = tsr_arena_printf(r->arena, "what is '%s'?", line), false;
    if (step != *ret_count + 1) {
      *ret_wrong = tsr_arena_printf(r->arena, "step %d behind step %d", step, *ret_count);
      return false;
    }
    *end = 0;
    tsr_arena_grow(r->arena, (void **)&losses, sizeof *losses, *ret_count, &capacity);
    losses[(*ret_count)++] = loss;
  }
  *ret = losses;
  return true;
}

const char *compare_losses(
    runner *r, const char *metrics, const char *const *losses, int count, const char *sha256) {
  const char *const *here, *wrong = "";
  int steps;
  if (!read_losses(r, metrics, &here, &steps, &wrong)) return wrong;
  if (steps != count)
    return tsr_arena_printf(r->arena, "the metrics have %d steps, not %d", steps, count);
  for (int i = 0; i < count; i++)
    if (strcmp(here[i], losses[i]))
      return tsr_arena_printf(r->arena, "step %d has %s, not %s", i + 1, here[i], losses[i]);
  const char *text = text_of(r, metrics), *end = strstr(text, "\"event\":\"end\"");
  for (const char *at = end; at; at = strstr(at + 1, "\"event\":\"end\"")) {
    if (!strstr(at, sha256)) return "the metrics end with other weights";
    end = at;
  }
  bool last = end && end[strcspn(end, "\n") + 1] == 0;
  return last ? NULL : "the metrics do not end with their end";
}
