// SPDX-License-Identifier: Apache-2.0
#include "report/comm_trace.h"
#include "comm/algorithm.h"
#include "comm/task_collective.h"
#include "runtime/device_communicators.h"
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

tsr_comm_trace tsr_comm_trace_start(tsr_arena *arena, int ranks) {
  return (tsr_comm_trace){.next = tsr_arena_array(arena, int64_t, ranks)};
}

int tsr_peer_of(const tsr_parallel *parallel, const tsr_program *p, const tsr_task *t, int rank) {
  const tsr_node *n = &p->graph->nodes[t->node];
  bool takes = t->op == TSR_OP_RECEIVE;
  int stage, chunk;
  tsr_pipeline_locate(
      p->pipeline, takes ? tsr_value_stage(p->graph, n->inputs[0]) : n->stage, &stage, &chunk);
  return tsr_parallel_member(parallel, rank, TSR_PP, stage);
}

/* Whether the devices' library adds, over the group that begins with a rank. */
static bool is_devices_library(
    const tsr_rank_map *h, const tsr_parallel *parallel, const tsr_task *t, int first,
    const tsr_placement *after, int groups) {
  const tsr_device_communicator *communicator =
      h->communicators->of_group[t->axis * parallel->ranks + first];
  if (!communicator || !h->communicators->fast) return false;
  bool one_each = parallel->size[t->axis] == communicator->count;
  for (int m = 0; m < parallel->size[t->axis] && one_each; m++)
    one_each = tsr_rank_map_process(h, tsr_parallel_member(parallel, first, t->axis, m)) ==
               communicator->processes[m];
  int64_t outer = 1;
  for (int d = 0; after->kind == TSR_SHARD && d < after->dim; d++) outer *= t->outputs[0].shape[d];
  return tsr_algorithm_has_device_library_sum(t->op, groups, outer, one_each);
}

/* Whether a library adds in its own way: MPI's, or the devices'. */
static bool is_library(
    const tsr_comm_trace *trace, const tsr_parallel *parallel, const tsr_program *p,
    const tsr_task *t, int rank) {
  const tsr_rank_map *h = trace->rank_map;
  if (!h || h->processes == 1) return false;
  int first = tsr_parallel_member(parallel, rank, t->axis, 0);
  const tsr_placement *before = &p->graph->values[t->inputs[0].value].placement[t->axis];
  const tsr_placement *after = &p->graph->values[t->outputs[0].value].placement[t->axis];
  int groups = before->groups > 1 || after->groups > 1 ? 2 : 1;
  if (h->communicators) return is_devices_library(h, parallel, t, first, after, groups);
  return h->groups[t->axis * parallel->ranks + first] &&
         tsr_algorithm_has_library_sum(
             t->op, t->inputs[0].dtype, groups,
             tsr_tensor_bytes(&t->inputs[0]) / tsr_dtype_bytes(t->inputs[0].dtype));
}

/* Whether the group's processes of a host add first: it has several hosts, and several processes on
 * one. */
static bool
is_by_host(const tsr_comm_trace *trace, const tsr_parallel *parallel, const tsr_task *t, int rank) {
  const tsr_rank_map *h = trace->rank_map;
  bool several_hosts = false, share_host = false;
  bool direct = trace->all_reduce == TSR_ALL_REDUCE_TREE && t->op == TSR_OP_ALL_REDUCE;
  if (!h || !h->hosts || direct) return false;
  for (int m = 1; m < parallel->size[t->axis]; m++) {
    int process = tsr_rank_map_process(h, tsr_parallel_member(parallel, rank, t->axis, m));
    for (int k = 0; k < m; k++) {
      int other = tsr_rank_map_process(h, tsr_parallel_member(parallel, rank, t->axis, k));
      several_hosts |= h->hosts[process] != h->hosts[other];
      share_host |= process != other && h->hosts[process] == h->hosts[other];
    }
  }
  return several_hosts && share_host;
}

/* Whether the group's processes, on one host, read and write each other's work memory. */
static bool
is_shared(const tsr_comm_trace *trace, const tsr_parallel *parallel, const tsr_task *t, int rank) {
  const tsr_rank_map *h = trace->rank_map;
  if (!h || h->processes == 1 || h->communicators || !h->transport->shares_memory) return false;
  bool several = false, one_host = true;
  for (int m = 0; m < parallel->size[t->axis]; m++) {
    int process = tsr_rank_map_process(h, tsr_parallel_member(parallel, rank, t->axis, m));
    int own = tsr_rank_map_process(h, rank);
    several = several || process != own;
    one_host = one_host && h->hosts[process] == h->hosts[own];
  }
  return several && one_host && t->op == TSR_OP_ALL_REDUCE &&
         trace->all_reduce == TSR_ALL_REDUCE_AUTO && t->inputs[0].segment == TSR_SEGMENT_WORK &&
         t->outputs[0].segment == TSR_SEGMENT_WORK;
}

static bool is_ring(const tsr_comm_trace *trace, const tsr_task *t) {
  return trace->all_reduce == TSR_ALL_REDUCE_RING && t->op == TSR_OP_ALL_REDUCE;
}

typedef struct {
  const char *transport, *path;
} route;

/* Between the ranks of a group over an axis, or between a rank and its peer. A library of devices
 * crosses the links of the mesh's GPUs; the others move what is in the hosts' memory. */
static route find_route(
    const tsr_comm_trace *trace, const tsr_parallel *parallel, const tsr_program *p,
    const tsr_task *t, int rank, bool between) {
  const tsr_rank_map *h = trace->rank_map;
  int own = h ? tsr_rank_map_process(h, rank) : 0;
  bool one_process = true, one_host = true;
  for (int m = 0; h && h->processes > 1 && m < (between ? 1 : parallel->size[t->axis]); m++) {
    int other = tsr_rank_map_process(
        h, between ? tsr_peer_of(parallel, p, t, rank)
                   : tsr_parallel_member(parallel, rank, t->axis, m));
    one_process = one_process && other == own;
    one_host = one_host && (other == own || (h->hosts && h->hosts[other] == h->hosts[own]));
  }
  tsr_mesh_shape shape = {.arch = TSR_ARCH_CPU};
  if (!one_process && h->communicators) {
    shape.arch = TSR_ARCH_CUDA;
    if (parallel->mesh && parallel->mesh->shape.arch == TSR_ARCH_CUDA)
      shape = parallel->mesh->shape;
  }
  return (route){
      one_process        ? "memory"
      : h->communicators ? "nccl"
                         : h->transport->table->name,
      tsr_mesh_path_name(&shape, one_host)};
}

static void print_event(
    tsr_comm_trace *trace, const tsr_record *record, const tsr_event *e, int64_t step,
    tsr_text *text) {
  const tsr_parallel *parallel = record->parallel;
  const tsr_program *p = record->programs->of_stage[tsr_parallel_coord(parallel, e->rank, TSR_PP)];
  const tsr_task *t = &p->tasks[e->task];
  bool between = t->op == TSR_OP_SEND || t->op == TSR_OP_RECEIVE;
  bool adds = tsr_op_sums_members(t->op);
  tsr_text_add(
      text, "comm step=%lld rank=%d seq=%lld op=%s axis=%s bytes=%lld ", (long long)step, e->rank,
      (long long)trace->next[e->rank]++, tsr_op_name(t->op),
      tsr_axis_name(between ? TSR_PP : t->axis), (long long)tsr_tensor_bytes(&t->inputs[0]));
  bool library = adds && is_library(trace, parallel, p, t, e->rank);
  if (between) tsr_text_add(text, "peer=%d", tsr_peer_of(parallel, p, t, e->rank));
  else
    tsr_text_add(
        text, "algo=%s",
        !adds                                                 ? "copy"
        : !library && is_ring(trace, t)                       ? "ring"
        : !library && is_shared(trace, parallel, t, e->rank)  ? "shared"
        : !library && is_by_host(trace, parallel, t, e->rank) ? "hier"
        : !library                                            ? "tree"
        : trace->rank_map->communicators                      ? "nccl"
                                                              : "mpi");
  tsr_text_add(
      text, " tree=%s policy=%s",
      !adds || library                                ? "none"
      : tsr_collective_of(p, t).tree == TSR_TREE_FLAT ? "flat"
                                                      : "binary",
      trace->fast ? "fast" : "deterministic");
  route r = find_route(trace, parallel, p, t, e->rank, between);
  tsr_text_add(
      text, " transport=%s path=%s ms=%.3f what=%s\n", r.transport, r.path,
      1e-6 * (double)(e->end - e->begin), p->graph->nodes[t->node].name);
}

void tsr_comm_trace_print(
    tsr_comm_trace *trace, const tsr_record *record, int64_t step, tsr_text *text) {
  for (int64_t i = 0; i < record->events_count; i++)
    if (record->events[i].kind == TSR_EVENT_COMMUNICATION)
      print_event(trace, record, &record->events[i], step, text);
}

/* The whole lines that fit into one write to a pipe; of a longer line all of it. */
static size_t lines_at_once(const char *text, size_t length) {
  size_t most = length < PIPE_BUF ? length : PIPE_BUF;
  const char *end = memrchr(text, '\n', most);
  if (!end) end = memchr(text, '\n', length);
  return end ? (size_t)(end + 1 - text) : length;
}

void tsr_comm_trace_write(const tsr_text *text) {
  for (size_t at = 0; at < text->length;) {
    size_t end = at + lines_at_once(text->data + at, text->length - at);
    while (at < end) {
      ssize_t n = write(STDERR_FILENO, text->data + at, end - at);
      if (n < 0 && errno != EINTR) return;
      if (n > 0) at += (size_t)n;
    }
  }
}
