// SPDX-License-Identifier: Apache-2.0
#include "comm/peer_memory.h"
#include "base/memory.h"
#include "comm/bootstrap.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { REASON_BYTES = 120 };

/* What a process says after it has tried. */
typedef struct {
  char reason[REASON_BYTES]; /* empty: it maps all */
} outcome;

static bool is_mapped(const tsr_transport *t, const int *hosts, int process) {
  return process != t->process && (!hosts || hosts[process] == hosts[t->process]);
}

static void map_all(
    const tsr_transport *t, const int *hosts, const tsr_shared_memory *all, int each,
    tsr_peer_block *ret_mapped, outcome *ret) {
  for (int w = 0; w < t->processes; w++)
    for (int i = w * each; i < (w + 1) * each && is_mapped(t, hosts, w); i++) {
      if (all[i].file < 0 || *ret->reason) continue;
      ret_mapped[i] = (tsr_peer_block){tsr_shared_memory_map(&all[i]), all[i].bytes};
      if (!ret_mapped[i].memory)
        snprintf(
            ret->reason, sizeof ret->reason, "process %d cannot map the memory of process %d: %s",
            t->process, w, strerror(errno));
    }
}

static void unmap_all(int count, tsr_peer_block *mapped) {
  for (int i = 0; i < count; i++) {
    if (mapped[i].memory) munmap(mapped[i].memory, (size_t)mapped[i].bytes);
    mapped[i] = (tsr_peer_block){0};
  }
}

bool tsr_peer_memory_map(
    const tsr_transport *t, const int *hosts, tsr_shared_memory *blocks, int each, bool ok,
    tsr_peer_block *ret_mapped, double timeout_s, char *why) {
  tsr_shared_memory *all = tsr_memory_new(sizeof *all * (size_t)(t->processes * each + 1));
  outcome mine = {""}, *outcomes = tsr_memory_new(sizeof *outcomes * (size_t)t->processes);
  int64_t bytes = (int64_t)sizeof *all * each;
  if (!ok) snprintf(mine.reason, sizeof mine.reason, "process %d has no shared memory", t->process);
  bool answered = tsr_transport_gather(t, blocks, bytes, all, timeout_s, why);
  if (answered) map_all(t, hosts, all, each, ret_mapped, &mine);
  answered = answered && tsr_transport_gather(t, &mine, sizeof mine, outcomes, timeout_s, why);
  int failed = 0;
  while (answered && failed < t->processes && !*outcomes[failed].reason) failed++;
  if (!answered || failed < t->processes) unmap_all(t->processes * each, ret_mapped);
  if (answered) *why = 0;
  if (answered && failed < t->processes)
    snprintf(why, TSR_WHY_BYTES, "%s", outcomes[failed].reason);
  for (int i = 0; i < each; i++) tsr_shared_memory_close(&blocks[i]);
  free(outcomes);
  free(all);
  return answered;
}
