// SPDX-License-Identifier: Apache-2.0
#include "effect.h"
#include "runtime/executable_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STEPS = 2 };

/* Bits that no program has written are NaN, so that whoever reads them shows it. */
static void poison(harness *h) {
  for (int r = 0; r < h->parallel.ranks; r++) {
    const tsr_program *p = tsr_executable_program(h->executable, r);
    char *work = h->executable->ranks[r].base[TSR_SEGMENT_WORK];
    if (work) memset(work, 0xff, (size_t)p->bytes[TSR_SEGMENT_WORK]);
  }
}

harness_trace effect_train(tsr_arena *arena, harness *h, bool poisoned) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_process_options options = {
      .parallel = &h->parallel, .kernels = h->cpu.k, .threads = 1, .seed = HARNESS_SEED};
  harness_trace t = {0};
  int64_t n;
  if (!tsr_process_open(arena, &options, &h->programs, 1, &h->process, &h->executable, diags))
    abort();
  for (int step = 0; step < STEPS; step++) {
    if (poisoned) poison(h);
    harness_step(h, step);
    float *loss = harness_read(arena, h, "loss", &n);
    harness_keep(arena, &t, loss, n);
    float *clip = harness_read(arena, h, "clip", &n);
    if (clip) harness_keep(arena, &t, clip, n);
  }
  harness_keep_weights(arena, h, &t);
  harness_close(h);
  return t;
}

bool effect_same(const harness_trace *a, const harness_trace *b) {
  return a->count == b->count && !memcmp(a->data, b->data, sizeof *a->data * (size_t)a->count);
}

/* The wait that ends a bucket's task: the first one behind it; -1: nothing waits. */
static int find_wait(const tsr_program *p, int task) {
  for (int k = 1; k < p->tasks_count; k++) {
    int i = (task + k) % p->tasks_count;
    if (p->tasks[i].op == TSR_OP_WAIT && p->tasks[i].bucket == p->tasks[task].bucket) return i;
  }
  return -1;
}

/* The executor moves a bucket's data when it begins. The other extreme is when it is waited for. */
static void delay(tsr_arena *arena, tsr_program *p) {
  for (int i = 0; i < p->tasks_count;) {
    tsr_task t = p->tasks[i];
    if (!t.bucket || t.op == TSR_OP_WAIT) {
      i++;
      continue;
    }
    int wait = find_wait(p, i), part = wait < 0 ? -1 : sample_part_of(p, wait);
    if (wait < 0) {
      i++;
      continue;
    }
    t.bucket = 0;
    t.last_only = false;
    sample_insert_task(arena, p, wait, t, part);
    sample_remove_task(p, i + (wait <= i));
    if (wait <= i) i++;
  }
}

static bool gives(
    tsr_arena *arena, const harness *sound, tsr_programs programs, const harness_trace *want,
    int seconds) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    alarm((unsigned)seconds);
    if (!freopen("/dev/null", "w", stderr)) _exit(2);
    harness h = *sound;
    h.programs = programs;
    harness_trace got = effect_train(arena, &h, true);
    _exit(!effect_same(&got, want));
  }
  int status = -1;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

bool effect_is_harmless(
    tsr_arena *arena, const harness *sound, tsr_programs programs, const harness_trace *want,
    int seconds) {
  tsr_programs late = sample_copy_all(arena, &programs);
  for (int s = 0; s < programs.pipeline->stages; s++) delay(arena, late.of_stage[s]);
  return gives(arena, sound, programs, want, seconds) &&
         (!sound->options.overlap || gives(arena, sound, late, want, seconds));
}
