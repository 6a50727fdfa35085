// SPDX-License-Identifier: Apache-2.0
/* Runs that are asked to stop, or to keep their state and go on: SIGTERM, SIGINT, SIGUSR1, a time
 * limit. Whatever was asked, the run that goes on, on another mesh, ends with the bits of one that
 * was not.
 *
 * usage: test_stops PROGRAM */
#include "base/file_read.h"
#include "checkpoint/folder.h"
#include "runner.h"
#include "tests/check.h"
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

enum { STEPS = 300, EARLY = 10 };

static runner r;
static const char *sha256;
static double seconds; /* of a run that nothing stops */
static const char *const *losses;

static words command(const char *folder) {
  words w = words_run(&r, folder);
  static const char *const sets[] = {
      "training_config.max_steps=300", "training_config.num_epochs=1000",
      "training_config.model_save_interval=0"};
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
    words_add(&r, &w, "--set");
    words_add(&r, &w, "%s", sets[i]);
  }
  return w;
}

static const char *folder_of(const char *name) { return tsr_path_join(r.arena, r.scratch, name); }
static const char *checkpoints_of(const char *folder) {
  return tsr_path_join(r.arena, folder, "checkpoints");
}
static const char *metrics_of(const char *folder) {
  return tsr_path_join(r.arena, folder, "metrics.jsonl");
}

/* Steps that the metrics have. */
static int steps_of(const char *folder) {
  const char *const *list, *wrong = "";
  int count = 0;
  bool ok = read_losses(&r, metrics_of(folder), &list, &count, &wrong);
  CHECK_AT(ok, "%s", wrong);
  return count;
}

/* On two ranks, to the end. */
static void check_goes_on(const char *folder) {
  words w = command(folder);
  words_add(&r, &w, "--resume");
  static const char *const sets[] = {"mesh.axes=[dp]", "mesh.shape=[2]", "zero.stage=3"};
  for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
    words_add(&r, &w, "--set");
    words_add(&r, &w, "%s", sets[i]);
  }
  ending e = run(&r, &w, NULL, -1, 0);
  CHECK_AT(e.status == 0, "exit %d: %s", e.status, e.said);
  CHECK_STR(sha256_of(&r, e.said), sha256);
  const char *wrong = compare_losses(&r, metrics_of(folder), losses, STEPS, sha256);
  CHECK_AT(!wrong, "%s", wrong);
}

static void test_whole(void) {
  const char *folder = folder_of("whole"), *wrong = "";
  words w = command(folder);
  ending e = run(&r, &w, NULL, -1, 0);
  int count = 0;
  CHECK_AT(e.status == 0, "exit %d: %s", e.status, e.said);
  sha256 = sha256_of(&r, e.said);
  seconds = e.seconds;
  CHECK(read_losses(&r, metrics_of(folder), &losses, &count, &wrong));
  CHECK_INT(count, STEPS);
  kept k = look(checkpoints_of(folder));
  CHECK(k.named == 1 && k.newest_whole == STEPS);
}

/* The state after the very step that was the last. */
static void test_ended_by(const char *name, int signal) {
  const char *folder = folder_of(name);
  words w = command(folder);
  ending e = run_until(&r, &w, metrics_of(folder), EARLY, signal);
  CHECK_AT(e.status == 128 + signal, "%s: exit %d: %s", name, e.status, e.said);
  int steps = steps_of(folder);
  kept k = look(checkpoints_of(folder));
  CHECK_AT(steps >= EARLY && steps < STEPS, "%s: %d steps", name, steps);
  CHECK_INT(k.named, 1);
  CHECK_INT(k.newest_whole, steps);
  check_goes_on(folder);
}

static void test_asked(void) {
  const char *folder = folder_of("USR1");
  words w = command(folder);
  ending e = run_until(&r, &w, metrics_of(folder), EARLY, SIGUSR1);
  CHECK_AT(e.status == 0, "exit %d: %s", e.status, e.said);
  CHECK_STR(sha256_of(&r, e.said), sha256);
  tsr_checkpoint_entry *entries;
  int count = 0;
  tsr_diags *diags = tsr_diags_new(r.arena);
  CHECK(tsr_checkpoints_list(r.arena, checkpoints_of(folder), &entries, &count, diags));
  CHECK_INT(count, 2);
  CHECK_INT(look(checkpoints_of(folder)).whole, 2);
  if (count != 2) return;
  CHECK(entries[0].step >= EARLY && entries[0].step < STEPS && entries[1].step == STEPS);
  folder_remove(entries[1].path); /* from the one that was asked for */
  check_goes_on(folder);
}

/* Again and again, until all is done. A second of a limit is its margin; the rest begins as a part
 * of a whole run's time, and grows where few steps fit into it. */
static void test_time_limit(void) {
  const char *folder = folder_of("limit");
  int runs = 0, before = 0;
  for (double rest = seconds / 8; runs < 40 && before < STEPS; runs++) {
    words w = command(folder);
    if (runs) words_add(&r, &w, "--resume");
    words_add(&r, &w, "--time-limit");
    words_add(&r, &w, "%g", 1 + rest);
    ending e = run(&r, &w, NULL, -1, 0);
    CHECK_AT(e.status == 0, "exit %d: %s", e.status, e.said);
    int steps = steps_of(folder);
    if (steps < before + STEPS / 20) rest *= 1.5;
    CHECK(steps >= before);
    before = steps;
    if (!steps) continue;
    CHECK_INT(look(checkpoints_of(folder)).newest_whole, steps);
    if (steps == STEPS) break;
    const char *why =
        tsr_arena_printf(r.arena, "time limit: stops after step %d of %d\n", steps, STEPS);
    CHECK_AT(strstr(e.said, why), "%s", e.said);
  }
  CHECK_INT(before, STEPS);
  CHECK(runs > 0); /* the first run did not come to the end */
  const char *wrong = compare_losses(&r, metrics_of(folder), losses, STEPS, sha256);
  CHECK_AT(!wrong, "%s", wrong ? wrong : "");
}

/* Nothing but a step's checkpoints, of a run that all others begin from. */
static const char *copy_of(const char *folder, const char *name) {
  const char *copy = folder_of(name);
  folder_remove(copy);
  const char *command = tsr_arena_printf(r.arena, "cp -r '%s' '%s'", folder, copy);
  CHECK_INT(system(command), 0);
  return copy;
}

static words command_from(const char *folder, int step, int keep_last) {
  words w = words_run(&r, folder);
  words_add(&r, &w, "--set");
  words_add(&r, &w, "checkpoint.keep_last=%d", keep_last);
  words_add(&r, &w, "--resume");
  words_add(&r, &w, "%s/step-%08d", checkpoints_of(folder), step);
  return w;
}

/* A run that resumes from an older checkpoint writes the newer ones again. A full disk, whenever
 * it is full, then costs the new one of a step, not the one that is there. */
static void test_full_from_older(const char *folder, const char *want) {
  enum { LAST = 60 };
  int costs = 0;
  for (int n = 1; n <= LAST; n++) {
    const char *copy = copy_of(folder, "full");
    words w = command_from(copy, 3, 0);
    ending e = run(&r, &w, tsr_arena_printf(r.arena, "ENOSPC@%d-%d", n, n + 1), -1, 0);
    kept k = look(checkpoints_of(copy));
    CHECK_AT(k.named == 8 && k.whole == 8, "ENOSPC@%d: %d of %d are whole", n, k.whole, k.named);
    if (e.status == 1 && strstr(e.said, "error: cannot ")) continue; /* it has not begun */
    CHECK_AT(e.status == 0, "ENOSPC@%d: exit %d: %s", n, e.status, e.said);
    CHECK_STR(sha256_of(&r, e.said), want);
    costs += strstr(e.said, "warning: no checkpoint after step 6: ") != NULL;
  }
  CHECK_AT(costs > 3, "%d", costs);
}

/* No newer one makes the one just written too old. */
static void test_kill_from_older(const char *folder) {
  enum { FIRST = 16, LAST = 80, STRIDE = 3, WHOLE_STEPS = 24 };
  int kills = 0;
  for (int n = FIRST; n <= LAST; n += STRIDE) {
    const char *copy = copy_of(folder, "killed");
    words w = command_from(copy, 6, 1);
    ending e = run(&r, &w, tsr_arena_printf(r.arena, "kill@%d", n), -1, 0);
    kept k = look(checkpoints_of(copy));
    CHECK_AT(
        k.named == k.whole && k.newest_whole == WHOLE_STEPS,
        "kill@%d: %d of %d are whole, up to %lld", n, k.whole, k.named, (long long)k.newest_whole);
    kills += e.status == 128 + SIGKILL;
  }
  CHECK_AT(kills > 10, "%d", kills);
}

static void test_from_older(void) {
  const char *folder = folder_of("older");
  words w = words_run(&r, folder);
  words_add(&r, &w, "--set");
  words_add(&r, &w, "checkpoint.keep_last=0");
  ending e = run(&r, &w, NULL, -1, 0);
  CHECK_INT(e.status, 0);
  CHECK_INT(look(checkpoints_of(folder)).whole, 8);
  test_full_from_older(folder, sha256_of(&r, e.said));
  test_kill_from_older(folder);
}

int main(int argc, char **argv) {
  if (argc != 2) return printf("usage: test_stops PROGRAM\n"), 2;
  r = (runner){.program = argv[1], .arena = tsr_arena_new(), .random = 3};
  r.scratch = scratch_new(r.arena);
  if (!r.scratch) return perror("test_stops"), 1;
  r.config = tsr_path_join(r.arena, r.scratch, "run.yaml");
  test_whole();
  if (!check_failed) {
    test_ended_by("TERM", SIGTERM);
    test_ended_by("INT", SIGINT);
    test_asked();
    test_time_limit();
    test_from_older();
  }
  folder_remove(r.scratch);
  tsr_arena_free(r.arena);
  return check_done("stops");
}
