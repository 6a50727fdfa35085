// SPDX-License-Identifier: Apache-2.0
#include "cli/sweep_prefixes.h"
#include "base/file_read.h"
#include "checkpoint/folder.h"

const char *sweep_prefixes_checkpoint(const sweep_prefixes *p, int node) {
  if (node < 0) return NULL;
  const char *folder = tsr_path_join(p->arena, p->folder, tsr_prefix_folder(p->arena, node));
  return tsr_checkpoint_path(
      p->arena, tsr_path_join(p->arena, folder, "checkpoints"), p->tree.nodes[node].step);
}

int64_t sweep_prefixes_newest(tsr_arena *arena, const char *run_folder) {
  tsr_checkpoint_entry *entries;
  int count;
  bool listed = tsr_checkpoints_list(
      arena, tsr_path_join(arena, run_folder, "checkpoints"), &entries, &count,
      tsr_diags_new(arena));
  return listed && count ? entries[count - 1].step : -1;
}

void sweep_prefixes_begin(
    tsr_arena *arena, const char *folder, tsr_prefix_tree tree, sweep_prefixes *ret) {
  *ret = (sweep_prefixes){.arena = arena, .folder = folder, .tree = tree};
  ret->states = tsr_arena_array(arena, prefix_state, tree.count + 1);
  for (int n = 0; n < tree.count; n++)
    if (tsr_file_is_folder(sweep_prefixes_checkpoint(ret, n))) ret->states[n] = PREFIX_DONE;
}

void sweep_prefixes_need(sweep_prefixes *p, int run) {
  int node = p->tree.leaf[run];
  for (; node >= 0 && p->states[node] == PREFIX_IDLE; node = p->tree.nodes[node].parent)
    p->states[node] = PREFIX_NEEDED;
}

static bool is_pending(const sweep_prefixes *p, int node) {
  return node >= 0 && (p->states[node] == PREFIX_NEEDED || p->states[node] == PREFIX_RUNNING);
}

int sweep_prefixes_next(const sweep_prefixes *p) {
  for (int n = 0; n < p->tree.count; n++)
    if (p->states[n] == PREFIX_NEEDED && !is_pending(p, p->tree.nodes[n].parent)) return n;
  return -1;
}

bool sweep_prefixes_are_ready(const sweep_prefixes *p, int run) {
  return !is_pending(p, p->tree.leaf[run]);
}

static int nearest(const sweep_prefixes *p, int node) {
  while (node >= 0 && p->states[node] != PREFIX_DONE) node = p->tree.nodes[node].parent;
  return node;
}

int sweep_prefixes_of_run(const sweep_prefixes *p, int run) {
  return nearest(p, p->tree.leaf[run]);
}

int sweep_prefixes_above(const sweep_prefixes *p, int node) {
  return nearest(p, p->tree.nodes[node].parent);
}
