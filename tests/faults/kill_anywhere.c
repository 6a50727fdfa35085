// SPDX-License-Identifier: Apache-2.0
/* A run that is stopped anywhere goes on, on another mesh, and ends with the same bits.
 *
 * usage: kill_anywhere PROGRAM SEED COUNT
 *
 * COUNT runs are killed: at a random time, inside or behind a random file operation of a
 * checkpoint, behind a rename whose data never reached the disk; some several times in a row, each
 * time on a mesh drawn anew. COUNT / 5 more meet a disk that fails, is full or slow, and must not
 * stop. After each the checkpoints that have a name are whole, none that was there is lost, and the
 * run that goes on (without a fault) ends with the weights and the losses of a run that nobody
 * stopped. */
#include "runner.h"
#include "base/file_read.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 2, STEPS = 24, LAST_OPERATIONS = 60 };

typedef enum {
  AT_A_TIME,
  KILL,
  KILLED,
  TORN,
  IN_A_ROW,
  FAILS,
  FAILS_ONCE,
  SHORT,
  SLOW,
  FULL,
  KINDS
} kind;
static const char *const kind_names[KINDS] = {
    "SIGKILL at a random time",    "SIGKILL inside a file operation",
    "SIGKILL behind one",          "torn rename, SIGKILL",
    "several of them in a row",    "ENOSPC for some operations",
    "ENOSPC or EIO once",          "short writes",
    "an operation takes a second", "ENOSPC for ever"};

/* How a case went; what a process hands back. */
typedef struct {
  int index, kind, kills;
  bool ok;
} verdict;

/* What an uninterrupted run does. */
typedef struct {
  const char *sha256;
  const char *const *losses;
  double seconds;
  uint64_t operations;        /* of files */
  uint64_t fewest_operations; /* of the mesh and options that have the fewest */
} reference;

typedef struct {
  runner *r;
  const reference *want;
  const char *folder, *checkpoints;
  const char *story; /* the commands so far */
  kept before;
  int index, kills, tries;
  bool begun; /* a run has begun in the folder */
} attempt;

static bool lost(attempt *a, const char *what) {
  printf("LOST: %s\n%s\n%s\n", what, a->story, "----");
  return false;
}

static bool lost_by(attempt *a, const char *what, const ending *e) {
  return lost(a, tsr_arena_printf(a->r->arena, "%s (exit %d):\n%s", what, e->status, e->said));
}

static words command(attempt *a) {
  words w = words_run(a->r, a->folder);
  /* where no checkpoint can be read the user decides (tests/train/test_out_folder.sh) */
  bool unreadable = a->before.named && !a->before.whole;
  if (a->begun) words_add(a->r, &w, unreadable ? "--overwrite" : "--resume");
  words_mesh(a->r, &w);
  a->begun = true;
  return w;
}

static void tell(attempt *a, const words *w, const char *fault, double after_s, int status) {
  const char *when =
      after_s < 0 ? "" : tsr_arena_printf(a->r->arena, " # SIGKILL after %g s", after_s);
  a->story = tsr_arena_printf(
      a->r->arena, "%s%s%s -> %d\n", a->story, words_text(a->r, w, fault), when, status);
}

/* All that have a name are whole, but one where a rename was torn; the newest one is none before
 * that which was there. */
static bool check_kept(attempt *a, bool torn) {
  kept k = look(a->checkpoints);
  kept before = a->before;
  a->before = k;
  if (k.newest_whole < before.newest_whole)
    return lost(
        a, tsr_arena_printf(
               a->r->arena, "the newest whole checkpoint is of step %lld, and was of step %lld",
               (long long)k.newest_whole, (long long)before.newest_whole));
  int damaged = k.named - k.whole, damaged_before = before.named - before.whole;
  if (damaged > damaged_before + torn)
    return lost(
        a, tsr_arena_printf(a->r->arena, "%d of %d checkpoints are damaged", damaged, k.named));
  return true;
}

/* The run to the end, without faults. */
static bool check_end(attempt *a) {
  words w = command(a);
  ending e = run(a->r, &w, NULL, -1, 0);
  tell(a, &w, NULL, -1, e.status);
  if (e.status) return lost_by(a, "the run does not go on", &e);
  if (strcmp(sha256_of(a->r, e.said), a->want->sha256)) return lost_by(a, "other weights", &e);
  const char *metrics = tsr_path_join(a->r->arena, a->folder, "metrics.jsonl");
  const char *wrong = compare_losses(a->r, metrics, a->want->losses, STEPS, a->want->sha256);
  if (wrong) return lost(a, wrong);
  kept k = look(a->checkpoints);
  if (k.newest_whole != STEPS) return lost(a, "the last step has no whole checkpoint");
  return true;
}

static void fresh(attempt *a) {
  folder_remove(a->folder);
  mkdir(a->folder, 0777);
  a->story = "";
  a->begun = false;
  a->kills = 0;
  a->before = (kept){0, 0, -1, -1};
}

/* ---- kills ---- */

/* The operation that kills. First ones follow each other in large strides, so that few cases meet
 * all sorts of operations; what goes on has fewer left. */
static const char *draw_kill(attempt *a, kind k) {
  unsigned long long most = a->want->operations - (k == TORN ? 12 : 0);
  unsigned long long n = 1 + draw(a->r, most);
  if (k != TORN && !a->tries) n = 1 + (n % 3 + (unsigned)a->index * 101u) % most;
  if (a->begun) n = 1 + n * (unsigned long long)(STEPS - a->before.newest_whole) / (STEPS + 2);
  const char *format = k == TORN ? "torn@%llu-" : k == KILL ? "kill@%llu" : "killed@%llu";
  char text[32];
  snprintf(text, sizeof text, format, n);
  return tsr_arena_strdup(a->r->arena, text);
}

/* One run that a fault kills; one that came to its end before it could is no interruption. */
static bool kill_once(attempt *a, kind k) {
  bool at_a_time = k == AT_A_TIME;
  double after_s = at_a_time ? a->want->seconds * (double)draw(a->r, 1000) / 1000 : -1;
  const char *fault = at_a_time ? NULL : draw_kill(a, k);
  words w = command(a);
  ending e = run(a->r, &w, fault, after_s, SIGKILL);
  tell(a, &w, fault, after_s, e.status);
  if (e.status != 0 && e.status != 128 + SIGKILL) return lost_by(a, "it ended by itself", &e);
  a->kills += e.status != 0;
  return check_kept(a, k == TORN && e.status != 0);
}

static bool kill_some(attempt *a, kind k) {
  int want = k == IN_A_ROW ? 2 + (int)draw(a->r, 2) : 1;
  fresh(a);
  for (a->tries = 0; a->kills < want && a->tries < 20; a->tries++) {
    if (a->kills == 0) fresh(a); /* the first one is to be in a new folder */
    if (!kill_once(a, k == IN_A_ROW ? (kind)draw(a->r, 4) : k)) return false;
    if (a->before.newest_whole == STEPS && a->kills) break;
  }
  return check_end(a);
}

/* ---- faults that stop nothing ---- */

static const char *draw_fault(attempt *a, kind k) {
  runner *r = a->r;
  /* Behind the folder's making, and so far before the end that the last checkpoint can be tried
   * again; one that fails takes two operations. */
  unsigned long long most = a->want->fewest_operations - LAST_OPERATIONS;
  unsigned long long n = 2 + draw(r, most - 2);
  switch (k) {
  case FAILS:
    return tsr_arena_printf(r->arena, "ENOSPC@%llu-%llu", n, n + 1 + draw(r, 5));
  case FAILS_ONCE:
    return tsr_arena_printf(r->arena, "%s@%llu", draw(r, 2) ? "ENOSPC" : "EIO", n);
  case SHORT:
    return tsr_arena_printf(r->arena, "short@%d-", 1 + (int)draw(r, 50));
  case SLOW:
    return tsr_arena_printf(r->arena, "slow@%llu", n);
  default:
    return tsr_arena_printf(r->arena, "ENOSPC@%llu-", n);
  }
}

static bool says_so(const char *said) {
  return strstr(said, "warning: no checkpoint after step") ||
         strstr(said, "warning: old checkpoints stay after step") ||
         strstr(said, "warning: cannot write the metrics of step") ||
         strstr(said, "warning: cannot write the hashes of a run of step");
}

/* A run that cannot take its folder says so, and has not begun. */
static bool is_refused(const attempt *a, const ending *e) {
  const char *metrics = tsr_path_join(a->r->arena, a->folder, "metrics.jsonl"), *wrong;
  const char *const *losses;
  int steps;
  bool began = read_losses(a->r, metrics, &losses, &steps, &wrong) && steps > 0;
  return e->status == 1 && !began && look(a->checkpoints).named == 0 &&
         strstr(e->said, "error: cannot ") && strstr(e->said, a->folder);
}

static bool check_said(attempt *a, kind k, const ending *e) {
  bool fails = k == FAILS || k == FAILS_ONCE || k == FULL;
  if (fails && is_refused(a, e)) return true;
  if (e->status != (k == FULL)) return lost_by(a, "it ended otherwise", e);
  if (fails && !says_so(e->said)) return lost_by(a, "nothing was said", e);
  if (!fails && strstr(e->said, "warning")) return lost_by(a, "a warning", e);
  if (k == FULL)
    return (strstr(e->said, "No space left on device") &&
            strstr(e->said, "error: the state after step 24, the last, is not on the disk")) ||
           lost_by(a, "it does not say why", e);
  return !strcmp(sha256_of(a->r, e->said), a->want->sha256) || lost_by(a, "other weights", e);
}

static bool fail_some(attempt *a, kind k) {
  fresh(a);
  const char *fault = draw_fault(a, k);
  words w = command(a);
  ending e = run(a->r, &w, fault, -1, 0);
  tell(a, &w, fault, -1, e.status);
  if (!check_said(a, k, &e) || !check_kept(a, false)) return false;
  if (k != FULL && !is_refused(a, &e) && a->before.newest_whole != STEPS)
    return lost(a, "the last step has no checkpoint");
  return check_end(a);
}

/* ---- all of them ---- */

static kind kind_of(int index, int count) {
  static const kind kills[] = {AT_A_TIME, KILL,     KILLED, IN_A_ROW, TORN,
                               AT_A_TIME, IN_A_ROW, KILL,   KILLED,   AT_A_TIME};
  static const kind others[] = {FAILS_ONCE, FAILS, FULL, SHORT, FAILS_ONCE, FAILS, FULL, SLOW};
  return index < count ? kills[index % 10] : others[(index - count) % 8];
}

static void
work(const runner *about, const reference *want, int process, uint64_t seed, int count, int out) {
  const char *scratch = tsr_arena_printf(about->arena, "%s/%d", about->scratch, process);
  mkdir(scratch, 0777);
  for (int i = process; i < count + count / 5; i += PROCESSES) {
    runner r = *about;
    r.arena = tsr_arena_new();
    r.scratch = scratch;
    r.random = seed * 1000003u + (uint64_t)i;
    attempt a = {&r, want, .index = i};
    a.folder = tsr_path_join(r.arena, scratch, "run");
    a.checkpoints = tsr_path_join(r.arena, a.folder, "checkpoints");
    kind k = kind_of(i, count);
    verdict v = {.index = i, .kind = k};
    v.ok = k <= IN_A_ROW ? kill_some(&a, k) : fail_some(&a, k);
    v.kills = a.kills;
    if (!v.ok) printf("case %d of seed %llu: %s\n\n", i, (unsigned long long)seed, kind_names[k]);
    fflush(stdout);
    tsr_arena_free(r.arena);
    if (write(out, &v, sizeof v) != sizeof v) break;
  }
}

/* Of how many file operations a run is made. */
static uint64_t count_operations(runner *r, const char *folder, const words *w) {
  uint64_t low = 1, high = 4096; /* it is killed inside operation `low`, and not inside `high` */
  while (high - low > 1) {
    uint64_t middle = (low + high) / 2;
    folder_remove(folder);
    const char *fault = tsr_arena_printf(r->arena, "kill@%llu", (unsigned long long)middle);
    ending e = run(r, w, fault, -1, 0);
    *(e.status ? &low : &high) = middle;
  }
  return low;
}

/* The run that nobody stops. */
static bool measure(runner *r, reference *want) {
  const char *folder = tsr_path_join(r->arena, r->scratch, "whole"), *wrong = "";
  words w = words_run(r, folder);
  ending e = run(r, &w, NULL, -1, 0);
  int count;
  want->sha256 = sha256_of(r, e.said);
  want->seconds = e.seconds;
  if (e.status || !*want->sha256 ||
      !read_losses(
          r, tsr_path_join(r->arena, folder, "metrics.jsonl"), &want->losses, &count, &wrong) ||
      count != STEPS)
    return printf("the uninterrupted run: exit %d %s\n%s", e.status, wrong, e.said), false;
  want->operations = count_operations(r, folder, &w);
  /* The rarest checkpoints of words_mesh, of which most are kept. */
  words_add(r, &w, "--set");
  words_add(r, &w, "training_config.model_save_interval=4");
  words_add(r, &w, "--set");
  words_add(r, &w, "checkpoint.keep_last=3");
  want->fewest_operations = count_operations(r, folder, &w);
  int fewest = (int)want->fewest_operations;
  return fewest > 2 * LAST_OPERATIONS || (printf("%d operations only\n", fewest), false);
}

static int count_up(int in, int count) {
  int cases[KINDS] = {0}, kills[KINDS] = {0}, losses[KINDS] = {0};
  int all_cases = 0, all_kills = 0, all_losses = 0;
  for (verdict v; read(in, &v, sizeof v) == sizeof v; all_cases++) {
    cases[v.kind]++;
    kills[v.kind] += v.kills;
    losses[v.kind] += !v.ok;
    all_kills += v.kills;
    all_losses += !v.ok;
  }
  printf("%-32s %6s %6s %6s\n", "", "cases", "kills", "losses");
  for (int k = 0; k < KINDS; k++)
    printf("%-32s %6d %6d %6d\n", kind_names[k], cases[k], kills[k], losses[k]);
  printf("%d interruptions, %d losses\n", all_kills, all_losses);
  bool all = all_cases == count + count / 5 && all_kills >= count;
  if (!all) printf("%d cases and %d kills are not all\n", all_cases, all_kills);
  return all && !all_losses ? 0 : 1;
}

int main(int argc, char **argv) {
  if (argc != 4) return printf("usage: kill_anywhere PROGRAM SEED COUNT\n"), 2;
  runner r = {.program = argv[1], .arena = tsr_arena_new()};
  uint64_t seed = strtoull(argv[2], NULL, 10);
  int count = atoi(argv[3]), pipes[2];
  reference want;
  r.scratch = scratch_new(r.arena);
  if (!r.scratch || pipe(pipes)) return perror("kill_anywhere"), 1;
  r.config = tsr_path_join(r.arena, r.scratch, "run.yaml");
  int code = 1;
  if (measure(&r, &want)) {
    printf(
        "a run: %.2f s, %llu file operations, weights sha256 %s\n", want.seconds,
        (unsigned long long)want.operations, want.sha256);
    fflush(stdout);
    for (int i = 0; i < PROCESSES; i++)
      if (!fork()) work(&r, &want, i, seed, count, pipes[1]), fflush(stdout), _exit(0);
    close(pipes[1]);
    code = count_up(pipes[0], count);
    while (wait(NULL) > 0) continue;
  }
  folder_remove(r.scratch);
  tsr_arena_free(r.arena);
  return code;
}
