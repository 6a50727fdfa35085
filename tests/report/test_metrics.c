// SPDX-License-Identifier: Apache-2.0
/* The metrics file: exact lines, numbers that keep their bits, and what happens when it cannot be
 * written. */
#include "base/fault.h"
#include "report/metrics.h"
#include "tests/check.h"
#include "tests/data/scratch.h"
#include <math.h>
#include <stdlib.h>
#include <sys/wait.h>

static const char *file_text(const char *path) {
  static char text[4096];
  FILE *file = fopen(path, "rb");
  size_t length = file ? fread(text, 1, sizeof text - 1, file) : 0;
  if (file) fclose(file);
  text[length] = 0;
  return text;
}

static void test_lines(tsr_arena *arena, tsr_diags *diags) {
  tsr_metrics *metrics;
  CHECK(
      tsr_metrics_open(arena, "m.jsonl", NULL, &metrics, diags) &&
      tsr_metrics_begin(metrics, 0, diags));
  tsr_metrics_write_start(
      metrics,
      &(tsr_metrics_start){
          "a \"b\".yaml", "gpt2", "dp=2 tp=4", 8, 10000000001, UINT64_MAX, "deterministic",
          "x86-64-v3", 2, "c0de"},
      diags);
  tsr_metrics_step step = {1, 4.25, 0.1, 3e-4, 9007199254740993, 12345.5, NAN};
  tsr_metrics_write_step(metrics, &step, diags);
  step = (tsr_metrics_step){2, NAN, INFINITY, 0, 64, -INFINITY, 1.0 / 3};
  tsr_metrics_write_step(metrics, &step, diags);
  tsr_metrics_write_eval(metrics, &(tsr_metrics_eval){.step = 2, .loss = 0}, diags);
  tsr_metrics_write_eval(metrics, &(tsr_metrics_eval){.step = 2, .loss = 1000}, diags);
  tsr_metrics_write_sample(metrics, 2, "\xc3\xa9\"\n\xff\0z", 7, diags);
  tsr_metrics_write_sample(metrics, 2, "", 0, diags);
  CHECK_STR(/* whole before it is closed */
            file_text("m.jsonl"),
            "{\"event\":\"start\",\"config\":\"a "
            "\\\"b\\\".yaml\",\"module\":\"gpt2\",\"mesh\":\"dp=2 "
            "tp=4\",\"ranks\":8,"
            "\"parameters\":10000000001,\"seed\":18446744073709551615,\"policy\":\"deterministic\","
            "\"isa\":\"x86-64-v3\",\"threads\":2,\"recipe\":\"c0de\"}\n"
            "{\"event\":\"step\",\"step\":1,\"loss\":4.25,\"grad_norm\":0.1,\"lr\":0.0003,"
            "\"tokens\":9007199254740993,\"tokens_per_s\":12345.5,\"ms\":null}\n"
            "{\"event\":\"step\",\"step\":2,\"loss\":null,\"grad_norm\":null,\"lr\":0,\"tokens\":"
            "64,"
            "\"tokens_per_s\":null,\"ms\":0.33333333333333331}\n"
            "{\"event\":\"eval\",\"step\":2,\"loss\":0,\"perplexity\":1}\n"
            "{\"event\":\"eval\",\"step\":2,\"loss\":1000,\"perplexity\":null}\n"
            "{\"event\":\"sample\",\"step\":2,\"text\":"
            "\"\xc3\xa9\\\"\\n\xef\xbf\xbd\xef\xbf\xbdz\"}\n"
            "{\"event\":\"sample\",\"step\":2,\"text\":\"\"}\n");
  tsr_metrics_close(metrics);
  tsr_metrics_close(metrics);
}

/* A reader has the double of the run, not a neighbour: both may be another f32. */
static void test_digits(tsr_arena *arena, tsr_diags *diags) {
  static const char key[] = "\"ms\":";
  tsr_metrics *metrics;
  int longer = 0;
  CHECK(tsr_metrics_open(arena, "digits.jsonl", NULL, &metrics, diags));
  for (int i = 1; i <= 500; i++) {
    char fifteen[32];
    tsr_metrics_step step = {.step = 1, .ms = 1e-3 + exp(i * 0.03) / 7};
    CHECK(tsr_metrics_begin(metrics, 0, diags));
    tsr_metrics_write_step(metrics, &step, diags);
    const char *at = strstr(file_text("digits.jsonl"), key);
    CHECK(at && strtod(at + sizeof key - 1, NULL) == step.ms);
    snprintf(fifteen, sizeof fifteen, "%.15g", step.ms);
    longer += strtod(fifteen, NULL) != step.ms;
  }
  CHECK(longer > 100 && longer < 500);
  tsr_metrics_close(metrics);
}

static void test_append(tsr_arena *arena, tsr_diags *diags) {
  tsr_metrics *metrics;
  scratch_text("old.jsonl", "{\"event\":\"st"); /* cut off by a crash */
  for (int i = 0; i < 2; i++) {
    CHECK(tsr_metrics_open(arena, "old.jsonl", NULL, &metrics, diags));
    CHECK(tsr_metrics_begin(metrics, 9, diags));
    tsr_metrics_end end = {5 + i, 0.5, "max_steps", i ? "ab12" : NULL, "c0de"};
    tsr_metrics_write_end(metrics, &end, diags);
    tsr_metrics_close(metrics);
  }
  CHECK_STR(
      file_text("old.jsonl"),
      "{\"event\":\"end\",\"step\":5,\"loss\":0.5,\"reason\":\"max_steps\",\"weights_sha256\":null,"
      "\"recipe\":\"c0de\"}\n"
      "{\"event\":\"end\",\"step\":6,\"loss\":0.5,\"reason\":\"max_steps\",\"weights_sha256\":"
      "\"ab12\","
      "\"recipe\":\"c0de\"}\n");
  CHECK(tsr_metrics_open(arena, "old.jsonl", NULL, &metrics, diags));
  CHECK(tsr_metrics_begin(metrics, 0, diags));
  tsr_metrics_close(metrics);
  CHECK_STR(file_text("old.jsonl"), "");
}

static void test_failures(tsr_arena *arena, tsr_diags *diags) {
  tsr_metrics *metrics;
  CHECK(!tsr_metrics_open(arena, "no/such/m.jsonl", NULL, &metrics, diags));
  CHECK_STR(
      scratch_diags(diags),
      "no/such/m.jsonl: error: cannot write 'no/such/m.jsonl': No such file or directory\n");
  CHECK_INT(tsr_diags_exit_code(diags), 2);
  tsr_metrics_write_eval(
      metrics, &(tsr_metrics_eval){.step = 1, .loss = 1}, diags); /* closed: nothing to do */

  CHECK(tsr_metrics_open(arena, NULL, NULL, &metrics, diags));
  tsr_metrics_write_eval(metrics, &(tsr_metrics_eval){.step = 1, .loss = 1}, diags);
  tsr_metrics_close(metrics);

  scratch_text("notes.txt", "of the user's");
  CHECK(!tsr_metrics_open(arena, "notes.txt", NULL, &metrics, diags));
  CHECK_STR(
      scratch_diags(diags),
      "notes.txt: error: the file has no metrics, and would be emptied for them\n");
  CHECK_STR(file_text("notes.txt"), "of the user's");

  tsr_metrics *first;
  CHECK(tsr_metrics_open(arena, "m.jsonl", NULL, &first, diags));
  CHECK(!tsr_metrics_open(arena, "m.jsonl", NULL, &metrics, diags));
  CHECK_STR(scratch_diags(diags), "m.jsonl: error: another run writes its metrics here\n");
  CHECK_INT(tsr_diags_exit_code(diags), 2);
  CHECK(strlen(file_text("m.jsonl")) > 0);
  tsr_metrics_close(first);

  if (access("/dev/full", W_OK)) return;
  CHECK(tsr_metrics_open(arena, "/dev/full", NULL, &metrics, diags));
  CHECK(tsr_metrics_begin(metrics, 0, diags));
  tsr_metrics_write_step(metrics, &(tsr_metrics_step){.step = 12}, diags);
  tsr_metrics_write_step(metrics, &(tsr_metrics_step){.step = 13}, diags);
  CHECK_STR(
      scratch_diags(diags), "/dev/full: warning: cannot write the metrics of step 12, which is "
                            "tried again: No space left on device\n");
  CHECK(!tsr_metrics_finish(metrics, diags));
  CHECK_STR(
      scratch_diags(diags),
      "/dev/full: error: cannot write the metrics from step 12 on: No space left on device\n");
  CHECK_INT(tsr_diags_exit_code(diags), 1);
  tsr_metrics_close(metrics);
}

static void write_ends(tsr_metrics *metrics, int first, int last, tsr_diags *diags) {
  for (int i = first; i <= last; i++)
    tsr_metrics_write_end(metrics, &(tsr_metrics_end){i, 0.5, "max_steps", NULL, "c0de"}, diags);
}

/* A disk that was full for some lines: in a process of its own, where the faults are counted. The
 * run returns from step `left` to 2; 0: it does not. */
static void test_late_lines(tsr_arena *arena, tsr_diags *diags, const char *fault, int left) {
  pid_t child = fork();
  if (!child) {
    tsr_metrics *metrics;
    setenv("TESSERA_FAULT", fault, 1); /* the file is made, locked, cut, and has a line by 4 */
    tsr_fault_read();
    bool ok = tsr_metrics_open(arena, "late.jsonl", NULL, &metrics, diags) &&
              tsr_metrics_begin(metrics, 0, diags);
    write_ends(metrics, 1, left, diags);
    ok = ok && (!left || tsr_metrics_begin(metrics, 2, diags));
    write_ends(metrics, left ? 3 : 1, 4, diags);
    _exit(ok && tsr_metrics_finish(metrics, diags) ? 0 : 1);
  }
  int status = 1;
  waitpid(child, &status, 0);
  CHECK_INT(status, 0);
  CHECK_STR(
      file_text("late.jsonl"),
      "{\"event\":\"end\",\"step\":1,\"loss\":0.5,\"reason\":\"max_steps\",\"weights_sha256\":null,"
      "\"recipe\":\"c0de\"}\n"
      "{\"event\":\"end\",\"step\":2,\"loss\":0.5,\"reason\":\"max_steps\",\"weights_sha256\":null,"
      "\"recipe\":\"c0de\"}\n"
      "{\"event\":\"end\",\"step\":3,\"loss\":0.5,\"reason\":\"max_steps\",\"weights_sha256\":null,"
      "\"recipe\":\"c0de\"}\n"
      "{\"event\":\"end\",\"step\":4,\"loss\":0.5,\"reason\":\"max_steps\",\"weights_sha256\":null,"
      "\"recipe\":\"c0de\"}\n");
}

/* What opening a file of metrics says where its locking fails, in a process of its own; its exit
 * code. */
static int open_without_lock(tsr_arena *arena, const char *fault, const char *want) {
  pid_t child = fork();
  if (!child) {
    tsr_metrics *metrics;
    tsr_diags *diags = tsr_diags_new(arena);
    setenv("TESSERA_FAULT", fault, 1);
    tsr_fault_read();
    check_count = check_failed = 0;
    bool ok = tsr_metrics_open(arena, "locked.jsonl", NULL, &metrics, diags);
    int code = tsr_diags_exit_code(diags);
    CHECK_INT(ok, code == 0);
    CHECK_STR(scratch_diags(diags), want);
    tsr_metrics_close(metrics);
    CHECK(access("locked.jsonl", F_OK) != 0); /* nothing was written */
    _exit(check_failed ? 99 : code);
  }
  int status = 99 << 8;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}

/* Only a file system without locks is used without one. */
static void test_lock_errors(tsr_arena *arena) {
  CHECK_INT(
      open_without_lock(
          arena, "EIO@2", "locked.jsonl: error: cannot lock 'locked.jsonl': Input/output error\n"),
      1);
  CHECK_INT(
      open_without_lock(
          arena, "ENOLCK@1-",
          "locked.jsonl: warning: it cannot be locked (No locks available): no other run may use "
          "it\n"),
      0);
}

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  char folder[64];
  scratch_enter(folder);
  test_lock_errors(arena);
  test_late_lines(arena, diags, "ENOSPC@5", 0);
  test_late_lines(
      arena, diags, "ENOSPC@5-8", 0);     /* what was written in part cannot be cut off at once */
  for (int left = 2; left <= 4; left++) { /* the lines from 2 on are late, as their parts stay */
    const char *const faults[] = {
        "", "ENOSPC@5",
        left == 2   ? "ENOSPC@5-6"
        : left == 3 ? "ENOSPC@5-7"
                    : "ENOSPC@5-8"};
    for (int i = 0; i < 3; i++) test_late_lines(arena, diags, faults[i], left);
  }
  test_lines(arena, diags);
  test_digits(arena, diags);
  test_append(arena, diags);
  test_failures(arena, diags);
  scratch_leave(folder);
  tsr_arena_free(arena);
  return check_done("metrics");
}
