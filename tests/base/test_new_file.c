// SPDX-License-Identifier: Apache-2.0
/* What stands beside a file that is written: of a process that was killed it is removed by the next
 * one that writes the file, of a living one it is not. */
#include "base/new_file.h"
#include "tests/check.h"
#include "tests/data/scratch.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static tsr_diags *diags;

static bool exists(const char *path) {
  struct stat info;
  return !lstat(path, &info);
}

static void touch(const char *path) {
  FILE *file = fopen(path, "wb");
  CHECK(file && fputs("left", file) >= 0 && !fclose(file));
}

static void check_text(const char *path, const char *want) {
  char text[4096];
  FILE *file = fopen(path, "rb");
  size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file) fclose(file);
  text[length] = 0;
  CHECK_STR(text, want);
}

static bool write_text(const char *path, const char *text) {
  return tsr_file_write(path, text, strlen(text), diags);
}

/* A process that has begun to write the file, and does not end; it says so by a byte. */
static pid_t start_writer(const char *path) {
  int ends[2];
  char byte;
  CHECK(pipe(ends) == 0);
  pid_t child = fork();
  if (!child) {
    tsr_new_file file;
    bool ok = tsr_new_file_open(path, &file, diags) && tsr_new_file_write(&file, "part", 4, diags);
    if (ok && write(ends[1], "x", 1) == 1) pause();
    _exit(1);
  }
  CHECK(read(ends[0], &byte, 1) == 1);
  close(ends[0]);
  close(ends[1]);
  return child;
}

static void kill_writer(pid_t child) {
  int status;
  CHECK(!kill(child, SIGKILL) && waitpid(child, &status, 0) == child && WIFSIGNALED(status));
}

static void test_killed(void) {
  pid_t first = start_writer("f"), second = start_writer("f");
  CHECK(exists("f.partial-0.tmp") && exists("f.partial-1.tmp") && !exists("f"));
  CHECK(write_text("f", "beside living ones"));
  CHECK(exists("f.partial-0.tmp") && exists("f.partial-1.tmp") && !exists("f.partial-2.tmp"));
  check_text("f", "beside living ones");
  kill_writer(second);
  CHECK(write_text("f", "beside a living one"));
  CHECK(exists("f.partial-0.tmp") && !exists("f.partial-1.tmp"));
  kill_writer(first);
  CHECK(write_text("f", "alone"));
  CHECK(!exists("f.partial-0.tmp"));
  check_text("f", "alone");
  first = start_writer("f"), second = start_writer("f");
  kill_writer(first);
  kill_writer(second);
  CHECK(write_text("f", "behind both"));
  CHECK(!exists("f.partial-0.tmp") && !exists("f.partial-1.tmp"));
}

/* Where nobody writes the name again. */
static void test_removed(void) {
  pid_t first = start_writer("r"), second = start_writer("r"), third = start_writer("r");
  kill_writer(first);
  kill_writer(third);
  tsr_new_file_remove_left("r");
  CHECK(!exists("r.partial-0.tmp") && exists("r.partial-1.tmp") && !exists("r.partial-2.tmp"));
  kill_writer(second);
  tsr_new_file_remove_left("r");
  CHECK(!exists("r.partial-1.tmp") && !exists("r"));
}

/* What is no file of a killed process stays. */
static void test_others(void) {
  static const char *const others[] = {"g.tmp", "g.partial-x.tmp", "g.partial-0.tmp.txt", "target"};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) touch(others[i]);
  CHECK(!symlink("target", "g.partial-0.tmp") && !mkdir("g.partial-1.tmp", 0777));
  CHECK(!mkfifo("g.partial-2.tmp", 0666));
  CHECK(write_text("g", "text"));
  check_text("g", "text");
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) check_text(others[i], "left");
  CHECK(exists("g.partial-0.tmp") && exists("g.partial-1.tmp") && exists("g.partial-2.tmp"));
  CHECK(!exists("g.partial-3.tmp"));
}

/* Many at once, some of which are killed: each writes whole files. */
static void test_at_once(void) {
  enum { PROCESSES = 4, ROUNDS = 100 };
  pid_t children[PROCESSES];
  int status;
  for (int i = 0; i < PROCESSES; i++) {
    children[i] = fork();
    if (children[i]) continue;
    bool ok = true;
    for (int k = 0; k < ROUNDS || !i; k++) ok = ok && write_text("h", "whole");
    _exit(ok ? 0 : 1);
  }
  for (int i = 1; i < PROCESSES; i++)
    CHECK(
        waitpid(children[i], &status, 0) == children[i] && WIFEXITED(status) &&
        WEXITSTATUS(status) == 0);
  kill_writer(children[0]);
  CHECK(write_text("h", "whole"));
  check_text("h", "whole");
  for (int i = 0; i < PROCESSES; i++) {
    char name[32];
    snprintf(name, sizeof name, "h.partial-%d.tmp", i);
    CHECK(!exists(name));
  }
}

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  diags = tsr_diags_new(arena);
  char folder[64];
  scratch_enter(folder);
  test_killed();
  test_removed();
  test_others();
  test_at_once();
  CHECK(tsr_diags_errors(diags) == 0);
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("base.new_file");
}
