// SPDX-License-Identifier: Apache-2.0
/* A run's folder of checkpoints: what is in it, the newest that can be read, what is thrown away,
 * who has it, what a killed run leaves in it. */
#include "../data/scratch.h"
#include "base/fault.h"
#include "base/file_read.h"
#include "checkpoint/folder.h"
#include "made.h"
#include "tests/check.h"
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>

static tsr_arena *arena;
static tsr_diags *diags;

static void make(const char *folder, int64_t step) {
  made_checkpoint(arena, tsr_checkpoint_path(arena, folder, step), step);
}

static const char *steps_in(const char *folder) {
  tsr_checkpoint_entry *entries;
  int count;
  const char *text = "";
  CHECK(tsr_checkpoints_list(arena, folder, &entries, &count, diags));
  for (int i = 0; i < count; i++)
    text = tsr_arena_printf(arena, "%s%s%lld", text, i ? " " : "", (long long)entries[i].step);
  return text;
}

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

static void test_list(void) {
  tsr_checkpoint_entry *entries;
  int count = 7;
  CHECK_STR(steps_in("nowhere"), "");
  mkdir("list", 0777);
  CHECK_STR(steps_in("list"), "");
  make("list", 100);
  make("list", 2);
  make("list", 1234567890);
  static const char *const others[] = {"step-", "step-12x", "step-00000003.partial", "step--5",
                                       "notes", "step-+7",  "Step-00000008"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    mkdir(tsr_path_join(arena, "list", others[i]), 0777);
  CHECK_STR(steps_in("list"), "2 100 1234567890");
  CHECK(tsr_checkpoints_list(arena, "list", &entries, &count, diags));
  CHECK_STR(entries[0].path, "list/step-00000002");
  CHECK_STR(entries[2].path, "list/step-1234567890");
  scratch_text("a_file", "");
  CHECK_STR(steps_in("a_file"), "");
}

static void test_newest(void) {
  tsr_manifest m;
  mkdir("newest", 0777);
  CHECK(!tsr_checkpoints_newest(arena, "newest", INT64_MAX, &m, diags));
  CHECK(!tsr_checkpoints_newest(arena, "nowhere", INT64_MAX, &m, diags));
  for (int64_t step = 2; step <= 8; step += 2) make("newest", step);
  CHECK(tsr_checkpoints_newest(arena, "newest", INT64_MAX, &m, diags) && m.state.step == 8);
  CHECK(tsr_checkpoints_newest(arena, "newest", 8, &m, diags) && m.state.step == 6);
  CHECK(tsr_checkpoints_newest(arena, "newest", 3, &m, diags) && m.state.step == 2);
  CHECK(!tsr_checkpoints_newest(arena, "newest", 2, &m, diags));
  CHECK_STR(scratch_diags(diags), "");
  /* what cannot be read is passed over, with a word */
  scratch_text("newest/step-00000008/manifest.json", "{");
  unlink("newest/step-00000006/manifest.json");
  CHECK(tsr_checkpoints_newest(arena, "newest", INT64_MAX, &m, diags) && m.state.step == 4);
  CHECK_STR(m.folder, "newest/step-00000004");
  CHECK_STR(
      scratch_diags(diags),
      "warning: 'newest/step-00000008' is skipped: newest/step-00000008/manifest.json: error: "
      "this is no manifest of a checkpoint: it does not begin with its hash\n"
      "warning: 'newest/step-00000006' is skipped: error: 'newest/step-00000006' is no "
      "checkpoint: it has no manifest.json\n");
  CHECK_INT(tsr_diags_errors(diags), 0);
}

static void check_not_found(const char *path, const char *want) {
  tsr_manifest m;
  CHECK(!tsr_checkpoint_find(arena, path, TSR_NOWHERE, &m, diags));
  CHECK_STR(scratch_diags(diags), want);
}

static void test_find(void) {
  tsr_manifest m;
  mkdir("find", 0777);
  mkdir("find/checkpoints", 0777);
  check_not_found(
      "find", "error: 'find' is no checkpoint and has none: it has no manifest.json and no folder "
              "step-…\n");
  check_not_found("findd", "error: there is no checkpoint 'findd'\n");
  make("find/checkpoints", 3);
  make("find/checkpoints", 5);
  static const char *const paths[] = {
      "find", "find/", "find/checkpoints", "find/checkpoints/step-00000005"};
  for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
    CHECK(tsr_checkpoint_find(arena, paths[i], TSR_NOWHERE, &m, diags) && m.state.step == 5);
  CHECK(tsr_checkpoint_find(arena, "find/checkpoints/step-00000003", TSR_NOWHERE, &m, diags));
  CHECK_INT(m.state.step, 3);
  scratch_text("find/checkpoints/step-00000003/manifest.json", "");
  check_not_found(
      "find/checkpoints/step-00000003",
      "find/checkpoints/step-00000003/manifest.json: error: this is no manifest of a checkpoint: "
      "it does not begin with its hash\n");
}

/* ---- what is thrown away ---- */

static uint64_t random_state = 5;

static int64_t draw(int64_t below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (int64_t)(random_state >> 33) % below;
}

/* Plainly: what should stay of `steps`. */
static const char *
kept_of(const bool *there, int64_t newest, const tsr_checkpoint_retention *keep) {
  const char *text = "";
  for (int64_t s = 0; s < 40; s++) {
    int64_t behind = 0;
    for (int64_t k = s + 1; k <= newest; k++) behind += there[k];
    bool stays =
        s > newest || !keep->last || behind < keep->last || (keep->every && s % keep->every == 0);
    for (int b = 0; b < keep->best->best_count; b++) stays |= keep->best->best[b].step == s;
    if (there[s] && stays)
      text = tsr_arena_printf(arena, "%s%s%lld", text, *text ? " " : "", (long long)s);
  }
  return text;
}

static void test_prune(void) {
  for (int i = 0; i < 60; i++) {
    const char *folder = tsr_arena_printf(arena, "prune-%d", i);
    bool there[40] = {false};
    int64_t newest = 20 + draw(20);
    mkdir(folder, 0777);
    for (int64_t s = 0; s < 40; s++) {
      there[s] = s == newest || draw(4) == 0;
      if (there[s]) make(folder, s);
    }
    tsr_validation_state best = {.best_count = (int)draw(4)};
    for (int b = 0; b < best.best_count; b++) best.best[b].step = draw(newest);
    tsr_checkpoint_retention keep = {draw(5), draw(2) ? 1 + draw(9) : 0, &best};
    CHECK(tsr_checkpoints_prune(arena, folder, NULL, newest, &keep, diags));
    CHECK_STR(steps_in(folder), kept_of(there, newest, &keep));
    CHECK(is_there(tsr_checkpoint_path(arena, folder, newest)));
  }
  CHECK_STR(scratch_diags(diags), "");
}

/* The name goes to the first of the best that is there, and is read as that checkpoint. */
static void test_best(void) {
  tsr_validation_state state = {.best = {{4, 1.0}, {2, 1.5}, {6, 2.0}}, .best_count = 3};
  tsr_manifest m;
  mkdir("run", 0777);
  mkdir("run/checkpoints", 0777);
  make("run/checkpoints", 2);
  make("run/checkpoints", 6);
  check_not_found("run/best", "error: there is no checkpoint 'run/best'\n");
  CHECK(tsr_checkpoints_name_best(arena, "run/checkpoints", &state, diags));
  CHECK(tsr_checkpoint_find(arena, "run/checkpoints/best", TSR_NOWHERE, &m, diags));
  CHECK_INT(m.state.step, 2);
  make("run/checkpoints", 4);
  CHECK(tsr_checkpoints_name_best(arena, "run/checkpoints", &state, diags));
  CHECK(tsr_checkpoint_find(arena, "run/best", TSR_NOWHERE, &m, diags));
  CHECK_STR(m.folder, "run/checkpoints/step-00000004");
  CHECK(tsr_checkpoint_find(arena, "run", TSR_NOWHERE, &m, diags) && m.state.step == 6);
  CHECK(tsr_checkpoints_name_best(arena, "run/checkpoints", &(tsr_validation_state){0}, diags));
  CHECK(tsr_checkpoint_find(arena, "run/best", TSR_NOWHERE, &m, diags) && m.state.step == 4);
  tsr_file_forget();
  CHECK(tsr_checkpoints_clean(arena, "run/checkpoints", true, diags));
  CHECK(!is_there("run/checkpoints/best"));
  CHECK_STR(scratch_diags(diags), "");
}

/* A folder that cannot be removed costs nothing but a word. */
static void test_prune_fails(void) {
  mkdir("stays", 0777);
  make("stays", 1);
  make("stays", 2);
  mkdir("stays/step-00000001/inner", 0777);
  tsr_checkpoint_retention keep = {.last = 1};
  CHECK(!tsr_checkpoints_prune(arena, "stays", NULL, 2, &keep, diags));
  CHECK_STR(
      scratch_diags(diags), "error: 'stays/step-00000001.partial' stays: 'inner' in it was not "
                            "written by this program\n");
  CHECK_STR(steps_in("stays"), "2"); /* it has lost its name */
}

/* Where the lock is unknown, a reader may have it: it stays, and that is said. */
static void test_prune_unlocked(void) {
  mkdir("unlocked", 0777);
  make("unlocked", 1);
  make("unlocked", 2);
  tsr_checkpoint_retention keep = {.last = 1};
  setenv("TESSERA_FAULT", "EIO@1", 1);
  tsr_fault_read();
  CHECK(!tsr_checkpoints_prune(arena, "unlocked", NULL, 2, &keep, diags));
  CHECK_STR(
      scratch_diags(diags), "error: cannot lock 'unlocked/step-00000001': Input/output error\n");
  CHECK_STR(steps_in("unlocked"), "1 2");
  setenv("TESSERA_FAULT", "ENOLCK@1", 1); /* a filesystem without locks */
  tsr_fault_read();
  CHECK(tsr_checkpoints_prune(arena, "unlocked", NULL, 2, &keep, diags));
  CHECK_STR(steps_in("unlocked"), "2");
  unsetenv("TESSERA_FAULT");
  tsr_fault_read();
}

/* ---- who has it ---- */

static const char *host_name(void) {
  static char name[256];
  gethostname(name, sizeof name - 1);
  return name;
}

static void test_lock(void) {
  int pipes[2], taken[2];
  tsr_folder_lock lock, other;
  char byte = 0;
  int piped = pipe(pipes) || pipe(taken);
  CHECK_INT(piped, 0);
  pid_t child = fork();
  if (!child) { /* has the folder until the pipe is closed */
    close(pipes[1]);
    bool ok = tsr_checkpoints_take_folder(arena, "deep/er/lock", TSR_NOWHERE, &lock, diags);
    bool told = write(taken[1], &byte, 1) == 1;
    ssize_t got = read(pipes[0], &byte, 1);
    _exit(ok && told && got == 0 ? 0 : 1);
  }
  close(pipes[0]);
  CHECK(read(taken[0], &byte, 1) == 1);
  mkdir("deep/er/lock/step-00000004.partial", 0777);
  CHECK(!tsr_checkpoints_take_folder(arena, "deep/er/lock", TSR_NOWHERE, &other, diags));
  char said[600];
  snprintf(
      said, sizeof said,
      "error: 'deep/er/lock' is in use by process %ld on %s\n"
      "      = it is free when that run has ended; another run needs another folder\n",
      (long)child, host_name());
  CHECK_STR(scratch_diags(diags), said);
  CHECK(is_there("deep/er/lock/step-00000004.partial")); /* the other run writes it */
  CHECK_INT(other.fd, -1);
  close(pipes[1]);
  int status = 1;
  waitpid(child, &status, 0);
  CHECK_INT(status, 0);
  CHECK(tsr_checkpoints_take_folder(arena, "deep/er/lock", TSR_NOWHERE, &lock, diags));
  CHECK(tsr_checkpoints_clean(arena, "deep/er/lock", false, diags));
  CHECK(!is_there("deep/er/lock/step-00000004.partial"));
  tsr_folder_lock_release(&lock);
  CHECK(!is_there("deep/er/lock/" TSR_FOLDER_LOCK_NAME));
}

static void test_leftovers(void) {
  tsr_folder_lock lock;
  mkdir("left", 0777);
  make("left", 4);
  make("left", 6);
  rename("left/step-00000006", "left/step-00000006.partial");
  mkdir("left/step-00000008.partial", 0777);
  mkdir("left/mine.partial", 0777);
  scratch_text("left/step-notes", "");
  CHECK(tsr_checkpoints_take_folder(arena, "left", TSR_NOWHERE, &lock, diags));
  CHECK(tsr_checkpoints_clean(arena, "left", false, diags));
  tsr_folder_lock_release(&lock);
  CHECK_STR(steps_in("left"), "4");
  CHECK(!is_there("left/step-00000006.partial") && !is_there("left/step-00000008.partial"));
  CHECK(is_there("left/mine.partial") && is_there("left/step-notes"));
  scratch_text("no_folder", "");
  CHECK(!tsr_checkpoints_take_folder(arena, "no_folder", TSR_NOWHERE, &lock, diags));
  CHECK_STR(scratch_diags(diags), "error: cannot make the folder 'no_folder': Not a directory\n");
  CHECK(!tsr_checkpoints_take_folder(arena, "no_folder/below", TSR_NOWHERE, &lock, diags));
  CHECK_STR(
      scratch_diags(diags), "error: cannot make the folder 'no_folder/below': Not a directory\n");
}

/* ---- writing into it ---- */

static void test_output(void) {
  tsr_checkpoint_writer *out;
  mkdir("out", 0777);
  make("out", 1);
  CHECK(!tsr_checkpoint_writer_begin(arena, "out/step-00000001", NULL, NULL, &out, diags));
  CHECK_STR(scratch_diags(diags), "error: 'out/step-00000001' is there already\n");
  CHECK(tsr_checkpoint_writer_begin(arena, "out/step-00000002", NULL, NULL, &out, diags));
  CHECK(tsr_checkpoint_writer_bytes(out, "config.yaml", "a: 1\n", 5, diags));
  CHECK_STR(steps_in("out"), "1"); /* not before the end */
  CHECK(is_there("out/step-00000002.partial/config.yaml"));
  tsr_checkpoint_writer_abandon(out);
  CHECK(!is_there("out/step-00000002.partial"));
  CHECK(!tsr_checkpoint_writer_begin(arena, "nowhere/step-00000002", NULL, NULL, &out, diags));
  CHECK_STR(
      scratch_diags(diags),
      "error: cannot write 'nowhere/step-00000002': No such file or directory\n");
}

int main(void) {
  char folder[64];
  arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  scratch_enter(folder);
  test_list();
  test_newest();
  test_find();
  test_prune();
  test_best();
  test_prune_fails();
  test_prune_unlocked();
  test_lock();
  test_leftovers();
  test_output();
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("folder");
}
