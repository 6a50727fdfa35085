// SPDX-License-Identifier: Apache-2.0
#include "report/trace_report.h"
#include "plan/path.h"
#include "report/comm_trace.h"

enum { PEERS_SHOWN = 16 };

/* ---- who the rank is ---- */

static void print_members(const tsr_parallel *p, int rank, int axis, tsr_text *text) {
  int size = p->size[axis], shown = size < PEERS_SHOWN ? size : PEERS_SHOWN;
  for (int m = 0; m < shown; m++)
    tsr_text_add(text, "%s%d", m ? " " : "", tsr_parallel_member(p, rank, axis, m));
  if (shown < size) tsr_text_add(text, " … %d", tsr_parallel_member(p, rank, axis, size - 1));
}

static void print_rank(const tsr_parallel *p, int rank, tsr_text *text) {
  int groups = 0;
  tsr_text_add(text, "rank %d of %d", rank, p->ranks);
  for (int dim = 0; dim < p->ndim; dim++) {
    int a = p->axis_of_dim[dim];
    if (p->size[a] > 1)
      tsr_text_add(
          text, "%s %s %d", groups++ ? "," : ":", tsr_axis_name(a), tsr_parallel_coord(p, rank, a));
  }
  tsr_text_add(text, "\n");
  for (int dim = 0; dim < p->ndim; dim++) {
    int a = p->axis_of_dim[dim];
    if (p->size[a] < 2) continue;
    tsr_text_add(text, "  its group over %s, %d ranks: ", tsr_axis_name(a), p->size[a]);
    print_members(p, rank, a, text);
    tsr_text_add(text, "\n");
  }
}

/* ---- its communication ---- */

/* An event is named after the receive that it is for, in the graph's order; after its bucket. */
static void name_event(const tsr_program *p, const tsr_task *t, char ret_name[24]) {
  int number = 0;
  ret_name[0] = 0;
  if (t->bucket > 0) {
    snprintf(ret_name, 24, "b%d", t->bucket);
  } else if (t->op == TSR_OP_SEND || t->op == TSR_OP_RECEIVE || t->op == TSR_OP_WAIT) {
    for (int i = 0; i < t->node; i++) number += p->graph->nodes[i].op == TSR_OP_RECEIVE;
    snprintf(ret_name, 24, "e%d", number);
  }
}

static bool is_communication(const tsr_task *t) {
  return t->op == TSR_OP_SEND || t->op == TSR_OP_RECEIVE || t->op == TSR_OP_WAIT ||
         tsr_op_is_collective(t->op) || tsr_op_copies_to_or_from_host(t->op);
}

static void print_others(const tsr_parallel *p, int rank, int axis, tsr_text *text) {
  int coord = tsr_parallel_coord(p, rank, axis), shown = 0;
  for (int m = 0; m < p->size[axis] && shown < PEERS_SHOWN; m++)
    if (m != coord)
      tsr_text_add(text, "%s%d", shown++ ? " " : "", tsr_parallel_member(p, rank, axis, m));
  if (shown < p->size[axis] - 1) tsr_text_add(text, " … of %d", p->size[axis] - 1);
}

/* Where a group has several hosts and several ranks on one, those add first. */
static const char *
algorithm_of(const tsr_lowering_request *r, const tsr_task *t, const tsr_path *path) {
  if (!tsr_op_sums_members(t->op)) return "-";
  bool chosen = t->op == TSR_OP_ALL_REDUCE;
  if (chosen && r->all_reduce == TSR_ALL_REDUCE_RING) return "ring";
  if (chosen && r->all_reduce == TSR_ALL_REDUCE_TREE) return "tree";
  return path->by_host ? "hier" : "tree";
}

/* Between the members of a rank's group, or between a rank and its peer. */
static tsr_path
path_of(const tsr_lowering_request *r, const tsr_program *p, const tsr_task *t, int rank) {
  tsr_path none = {.name = ""};
  if (!r->machine) return none;
  if (tsr_op_is_collective(t->op)) {
    tsr_machine_group g = tsr_path_group(r->parallel, p, t);
    return tsr_path_of(
        p->graph->arena, r->machine, rank - rank / g.stride % g.members * g.stride, g.members,
        g.stride);
  }
  if ((t->op == TSR_OP_WAIT && t->bucket) || tsr_op_copies_to_or_from_host(t->op)) return none;
  int peer = tsr_peer_of(r->parallel, p, t, rank);
  return tsr_path_of(
      p->graph->arena, r->machine, rank < peer ? rank : peer, 2,
      rank < peer ? peer - rank : rank - peer);
}

static void print_task(
    const tsr_lowering_request *r, const tsr_program *p, int rank, int index, tsr_text *text) {
  const tsr_parallel *parallel = r->parallel;
  const tsr_task *t = &p->tasks[index];
  bool begins = t->op == TSR_OP_SEND || (t->bucket > 0 && t->op != TSR_OP_WAIT);
  bool waits = t->op == TSR_OP_RECEIVE || t->op == TSR_OP_WAIT;
  bool copies = tsr_op_copies_to_or_from_host(t->op);
  bool between = t->op == TSR_OP_SEND || (waits && !t->bucket);
  int axis = between ? TSR_PP : t->axis;
  char event[24], words[40];
  tsr_path path = path_of(r, p, t, rank);
  name_event(p, t, event);
  snprintf(words, sizeof words, "%s%s", begins ? "ends in " : waits ? "after " : "-", event);
  tsr_text_add(
      text, "%5d  %-8s  %-14s  %6d  %-12s  %-4s  %-8s  %-4s  ", index, tsr_section_name(t->section),
      tsr_op_name(t->op), copies ? 2 : begins, words, axis < 0 ? "-" : tsr_axis_name(axis),
      *path.name ? path.name : "-", algorithm_of(r, t, &path));
  bool moves = t->op != TSR_OP_WAIT && t->inputs_count;
  tsr_text_add(text, "%14s  ", moves ? tsr_text_count(tsr_tensor_bytes(&t->inputs[0])).text : "-");
  int64_t times = t->last_only ? 1 : tsr_program_times(p, index);
  tsr_text_add(text, "%5lld  %s", (long long)times, p->graph->nodes[t->node].name);
  if (between)
    tsr_text_add(
        text, ", %s %d",
        t->op == TSR_OP_SEND      ? "to"
        : t->op == TSR_OP_RECEIVE ? "from"
                                  : "taken by",
        tsr_peer_of(parallel, p, t, rank));
  else if (!waits && !copies)
    tsr_text_add(text, ", with "), print_others(parallel, rank, axis, text);
  tsr_text_add(text, "\n");
}

static void
print_program(const tsr_lowering_request *r, const tsr_program *p, int rank, tsr_text *text) {
  int count = 0, coord[TSR_AXES];
  bool *shown = tsr_arena_array(p->graph->arena, bool, p->tasks_count + 1);
  for (int a = 0; a < TSR_AXES; a++) coord[a] = tsr_parallel_coord(r->parallel, rank, a);
  tsr_program_print(p, text);
  for (int i = 0; i < p->tasks_count; i++) {
    shown[i] = is_communication(&p->tasks[i]) && tsr_task_runs_on(p, &p->tasks[i], coord);
    count += shown[i];
  }
  tsr_text_add(text, "\ncommunication of rank %d:%s\n", rank, count ? "" : " none");
  if (!count) return;
  tsr_text_add(
      text, "%5s  %-8s  %-14s  %6s  %-12s  %-4s  %-8s  %-4s  %14s  %5s  %s\n", "task", "section",
      "op", "stream", "event", "axis", "path", "algo", "bytes", "times",
      "what, and the other ranks");
  for (int i = 0; i < p->tasks_count; i++)
    if (shown[i]) print_task(r, p, rank, i, text);
}

bool tsr_lowering_print(const tsr_lowering_request *r, tsr_text *text, tsr_diags *diags) {
  int ranks = r->parallel->ranks;
  if (r->rank >= ranks)
    return tsr_diag_error(
        diags, TSR_NOWHERE, "--rank %lld: the mesh has %d rank%s, counted from 0",
        (long long)r->rank, ranks, ranks == 1 ? "" : "s");
  if (r->graphs) {
    tsr_text_add(text, "before placement: ");
    tsr_graph_print(r->graph, false, text);
    tsr_text_add(text, "\nafter placement: ");
    tsr_graph_print(r->placed, true, text);
  }
  if (!r->program && !r->tiles) return true;
  int rank = (int)r->rank, stage = tsr_parallel_coord(r->parallel, rank, TSR_PP);
  const tsr_program *p = r->programs->of_stage[stage];
  if (r->graphs) tsr_text_add(text, "\n");
  print_rank(r->parallel, rank, text);
  tsr_text_add(text, "\n");
  if (r->program) print_program(r, p, rank, text);
  if (r->program && r->tiles) tsr_text_add(text, "\n");
  if (r->tiles) tsr_tiles_print(r->tiles, p, text);
  return true;
}
