// SPDX-License-Identifier: Apache-2.0
/* Linked with the program's objects and -Wl,--wrap=tsr_executable_run: flips bits of parameters and
 * optimizer state between the steps of a training, as a fault of memory would. TESSERA_FLIP is a list
 * of STEP:RANK:TENSOR:BIT:TIMES, separated by spaces: after step STEP, from 1, the bit (of the rank's
 * part as it is stored, from 0, or from the end, from -1) is inverted; of a step that is made again at most TIMES times. Each
 * is reported on standard error. TESSERA_AFTER=STEP:COMMAND runs a command of the shell after a
 * step, the first time; its parent is the program. */
#include "runtime/executable_internal.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FLIPS_MAX = 8 };

void __real_tsr_executable_run(tsr_executable *, int64_t, tsr_fill_row *, void *);
void __wrap_tsr_executable_run(tsr_executable *, int64_t, tsr_fill_row *, void *);

static void refuse(const char *flip, const char *why) {
  fprintf(stderr, "TESSERA_FLIP: '%s': %s\n", flip, why);
  abort();
}

static int find_value(const tsr_graph *g, const char *name) {
  for (int v = 0; v < g->values_count; v++) {
    tsr_value_kind kind = g->values[v].kind;
    bool lasts = kind == TSR_VALUE_PARAM || kind == TSR_VALUE_STATE;
    if (lasts && !strcmp(g->values[v].name, name)) return v;
  }
  return -1;
}

static void flip(tsr_executable *b, int64_t step, const char *text, int *done) {
  long long at;
  int rank, times;
  long bit;
  char name[256];
  if (sscanf(text, "%lld:%d:%255[^: ]:%ld:%d", &at, &rank, name, &bit, &times) != 5)
    refuse(text, "not STEP:RANK:TENSOR:BIT:TIMES");
  int value = find_value(b->programs->graph, name);
  if (value < 0) refuse(text, "no such tensor");
  if (rank >= b->process->options.parallel->ranks || !tsr_executable_holds(b, value, rank))
    refuse(text, "the rank has no part of it");
  if (at != step + 1 || *done >= times || !tsr_executable_is_here(b, rank)) return;
  long bits = 8 * (long)tsr_tensor_bytes(&tsr_executable_program(b, rank)->tensors[value]);
  if (bit >= bits) refuse(text, "the part has less bits");
  long from_begin = bit < 0 ? bits + bit : bit;
  tsr_device_view view;
  unsigned char *part =
      tsr_executable_view(b, value, rank, 0, TSR_VIEW_READ | TSR_VIEW_WRITE, &view);
  part[from_begin / 8] ^= (unsigned char)(1u << from_begin % 8);
  tsr_device_view_close(&view);
  ++*done;
  fprintf(stderr, "flipped bit %ld of '%s' on rank %d after step %lld\n", bit, name, rank, at);
}

static void run_command(int64_t step) {
  static bool done;
  const char *text = getenv("TESSERA_AFTER");
  const char *command = text ? strchr(text, ':') : NULL;
  if (done || !command || atoll(text) != step + 1) return;
  done = true;
  if (system(command + 1)) refuse(text, "the command fails");
}

void __wrap_tsr_executable_run(tsr_executable *b, int64_t step, tsr_fill_row *fill, void *context) {
  static int done[FLIPS_MAX];
  const char *at = getenv("TESSERA_FLIP");
  __real_tsr_executable_run(b, step, fill, context);
  if (b != b->process->executable) return; /* an evaluation */
  run_command(step);
  for (int i = 0; at && *at; i++) {
    if (i == FLIPS_MAX) refuse(at, "too many");
    flip(b, step, at, &done[i]);
    at += strcspn(at, " ");
    at += strspn(at, " ");
  }
}
