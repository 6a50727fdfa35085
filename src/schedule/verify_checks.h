// SPDX-License-Identifier: Apache-2.0
/* Inside the verifier: what its checks share. */
#ifndef TSR_SCHEDULE_VERIFY_CHECKS_H
#define TSR_SCHEDULE_VERIFY_CHECKS_H
#include "schedule/verify.h"

/* A program, once for all ranks that run it. */
typedef struct {
  const tsr_program *p;
  int rank;                  /* the lowest that runs it; of its memory: whose it is */
  int coord[TSR_AXES];       /* of that rank, by which it owns values */
  int *owner;                /* per value: the value whose bytes it names; brief */
  int *part_of;              /* per task */
  int **moves, *moves_count; /* per part: its tasks that deal with other ranks */
} tsr_verify_subject;

typedef struct {
  tsr_arena *arena;
  tsr_arena *brief; /* for what the check of one program needs */
  const tsr_programs *programs;
  const tsr_graph *graph;
  const tsr_verify_mesh *mesh;
  tsr_diags *diags;
  int microbatches;
  int found;
  tsr_verify_subject *subjects;
  int subjects_count, subjects_capacity;
  int *subject_of;  /* per rank */
  int *transfer_of; /* per node: its number among the receive nodes, else -1 */
  int *transfers;   /* their nodes */
  int transfers_count;
  struct tsr_verify_proved *proved; /* of sums and norms */
  const int *readers; /* per value: inputs of nodes and outputs of the graph; NULL: not counted */
  const int *expert_sums; /* per value: the rows over which it is a sum that ranks have yet to
                             complete (verify_experts.c); -1: of none */
} tsr_verify;

/* Tasks of which all that a check depends on is the same bytes are checked once, in whatever
 * program they stand. A key begins with the op. */
bool tsr_verify_is_proved(const tsr_verify *v, const void *key, size_t bytes);
void tsr_verify_keep_proved(tsr_verify *v, const void *key, size_t bytes);

/* The checks. Each reports what it finds; the first ones return whether the next ones may rely on
 * the lists. */
bool tsr_verify_lists(tsr_verify *v, tsr_verify_subject *s); /* also finds owners and parts */
bool tsr_verify_tensors(tsr_verify *v, const tsr_verify_subject *s);
bool tsr_verify_tasks(tsr_verify *v, const tsr_verify_subject *s);
/* Expands a fused task against the graph: the nodes that it covers, its operands, and that no task
 * else reads what it elides. */
bool tsr_verify_fused(tsr_verify *v, const tsr_verify_subject *s, int task);
/* Of a task as the device, or as the host runs it. */
bool tsr_verify_casts(tsr_verify *v, const tsr_verify_subject *s, int task, const tsr_task *as);
/* Of a task that the host runs for a device. */
bool tsr_verify_host_task(tsr_verify *v, const tsr_verify_subject *s, int task);
void tsr_verify_sums(tsr_verify *v, const tsr_verify_subject *s);
void tsr_verify_norm(tsr_verify *v, const tsr_verify_subject *s, int task);
void tsr_verify_fp8(tsr_verify *v, const tsr_verify_subject *s, int task);
void tsr_verify_experts(tsr_verify *v, const tsr_verify_subject *s, int task);
const int *tsr_verify_expert_sums(tsr_arena *arena, const tsr_graph *graph);
void tsr_verify_memory(tsr_verify *v, const tsr_verify_subject *s);
bool tsr_verify_moves(tsr_verify *v);
void tsr_verify_waits(tsr_verify *v);

/* Each returns whether the finding was left out (tsr_verify_mesh.leave_out). The check then
 * continues as if it had found nothing, unless what follows would index by what it has found wrong.
 *
 * "'block.3.wo', rank 5, stage 1, task 117 (linear), microbatch 2: " and the text. */
bool tsr_verify_say_task(
    tsr_verify *v, const tsr_verify_subject *s, int task, int microbatch, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* The same of a node without a task, of a value, and of a program as a whole. */
bool tsr_verify_say_node(
    tsr_verify *v, const tsr_verify_subject *s, int node, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool tsr_verify_say_value(
    tsr_verify *v, const tsr_verify_subject *s, int value, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
bool tsr_verify_say(tsr_verify *v, const tsr_verify_subject *s, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline bool tsr_verify_is_full(const tsr_verify *v) {
  return v->found >= TSR_VERIFY_FINDINGS_MAX;
}

/* "@work+4096" */
const char *tsr_verify_address(tsr_verify *v, tsr_segment segment, int64_t offset);

static inline int64_t tsr_verify_aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }
/* Whole blocks of 64; a sum over microbatches has a stack of them. */
int64_t tsr_verify_bytes(const tsr_program *p, int value);
bool tsr_verify_is_sum(const tsr_graph *g, int value);

static inline bool tsr_verify_is_body(tsr_section s) {
  return s >= TSR_FORWARD && s <= TSR_WEIGHTS;
}
static inline bool tsr_verify_runs(const tsr_verify *v, const tsr_task *t, int microbatch) {
  return !t->last_only || microbatch == v->microbatches - 1;
}

/* The stages of the two ends of a receive node. */
int tsr_verify_source(const tsr_verify *v, int node);
int tsr_verify_target(const tsr_verify *v, int node);
/* The microbatch that a transfer counts as: what moves once a step, as the first one. */
int tsr_verify_transfer_microbatch(const tsr_graph *g, int node, int microbatch);

/* A program's memory, split at every begin and end of a tensor or scratch. */
typedef struct {
  int first, end;
} tsr_verify_cells;
typedef struct {
  int64_t base[TSR_SEGMENTS]; /* where a segment begins */
  int64_t *edges;             /* cell i is bytes edges[i] to before edges[i + 1] */
  int edges_count;
  int *place_of;             /* per value: the first of its places, one a slot of its slot group */
  tsr_verify_cells *places;  /* of values that have bytes of their own */
  tsr_verify_cells *scratch; /* per task */
} tsr_verify_map;
tsr_verify_map tsr_verify_map_make(tsr_arena *arena, const tsr_verify_subject *s);
const char *tsr_verify_cell_address(tsr_verify *v, const tsr_verify_map *map, int cell);
/* Whether a value is on the subject's rank and no other name of another one. */
bool tsr_verify_has_bytes(const tsr_verify_subject *s, int value);

/* A program's tasks that deal with other ranks, one after the other through the step. */
typedef struct {
  const tsr_verify *v;
  const tsr_verify_subject *s;
  int run, at;
  int task, microbatch; /* of the current one */
} tsr_verify_walk;
bool tsr_verify_walk_next(tsr_verify_walk *walk);

static inline int tsr_verify_coord(const tsr_verify_mesh *mesh, int rank, int axis) {
  return mesh->stride[axis] ? rank / mesh->stride[axis] % mesh->size[axis] : 0;
}
/* The rank at position `index` of the group of `rank` over `axis`. */
static inline int tsr_verify_member(const tsr_verify_mesh *mesh, int rank, int axis, int index) {
  return rank + (index - tsr_verify_coord(mesh, rank, axis)) * mesh->stride[axis];
}

#endif
