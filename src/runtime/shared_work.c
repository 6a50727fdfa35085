// SPDX-License-Identifier: Apache-2.0
/* Work memory that the processes of a host share: all-reduces read and write it where it lies. A
 * rank has one work segment, which is a block of its own. */
#include "comm/peer_memory.h"
#include "runtime/executable_internal.h"
#include <string.h>
#include <sys/mman.h>

void tsr_process_plan_shared_work(tsr_arena *arena, tsr_process *w) {
  const tsr_rank_map *h = &w->options.rank_map;
  bool shares = h->processes > 1 && h->transport->shares_memory && w->device == w->host &&
                w->options.all_reduce == TSR_ALL_REDUCE_AUTO;
  if (!shares) return;
  w->shared = tsr_arena_array(arena, tsr_shared_memory, w->options.parallel->ranks);
  for (int r = 0; r < w->options.parallel->ranks; r++) w->shared[r].file = -1;
}

/* Ranks of a process, ascending, are its blocks. */
static int count_blocks(const tsr_process *w) {
  int ranks = w->options.parallel->ranks, processes = w->options.rank_map.processes;
  return (ranks + processes - 1) / processes;
}

static int find_rank(const tsr_process *w, int process, int block) {
  for (int r = 0; r < w->options.parallel->ranks; r++)
    if (tsr_rank_map_process(&w->options.rank_map, r) == process && !block--) return r;
  return -1;
}

static void set_work(tsr_process *w, int rank, void *memory) {
  for (int i = 0; i < w->executables_count; i++)
    w->executable[i].ranks[rank].base[TSR_SEGMENT_WORK] = memory;
}

void *tsr_process_new_shared_work(tsr_process *w, int rank, int64_t bytes) {
  if (!w->shared) return NULL;
  void *memory = tsr_shared_memory_new(bytes, &w->shared[rank]);
  if (memory) w->blocks[w->blocks_count++] = (struct tsr_block){memory, bytes, NULL, false};
  if (memory) w->bytes += bytes;
  return memory;
}

void tsr_process_share_work(tsr_arena *arena, tsr_process *w, bool ok, tsr_diags *diags) {
  const tsr_rank_map *h = &w->options.rank_map;
  char why[TSR_WHY_BYTES] = "";
  if (!w->shared) return;
  int each = count_blocks(w);
  tsr_shared_memory *blocks = tsr_arena_array(arena, tsr_shared_memory, each);
  tsr_peer_block *mapped = tsr_arena_array(arena, tsr_peer_block, h->processes * each);
  for (int i = 0; i < each; i++) {
    int rank = find_rank(w, h->process, i);
    blocks[i] = rank < 0 ? (tsr_shared_memory){.file = -1} : w->shared[rank];
    bool has_work = rank >= 0 && w->executable[0].ranks[rank].base[TSR_SEGMENT_WORK];
    ok = ok && (!has_work || blocks[i].file >= 0);
  }
  if (!tsr_peer_memory_map(
          h->transport, h->hosts, blocks, each, ok, mapped, w->options.timeout_s, why))
    tsr_wait_lost(
        &(tsr_waiting){.executable = w->executable, .stage = -1, .what = "shares memory"}, why);
  for (int i = 0; i < h->processes * each; i++) {
    if (!mapped[i].memory) continue;
    set_work(w, find_rank(w, i / each, i % each), mapped[i].memory);
    w->blocks[w->blocks_count++] =
        (struct tsr_block){mapped[i].memory, mapped[i].bytes, NULL, false};
  }
  if (!*why) return;
  h->transport->shares_memory = false;
  tsr_diag_note(
      diags, TSR_NOWHERE, "all-reduces between processes go by messages, not by shared memory: %s",
      why);
}
