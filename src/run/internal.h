#ifndef TSR_RUN_INTERNAL_H
#define TSR_RUN_INTERNAL_H
#include "run/recorder.h"

struct tsr_worker {
  tsr_worker_options options;
  tsr_pool *pool;
  tsr_bound *bound;
  int bound_count;
  int64_t bytes;
  float **in, **out; /* a collective's members' buffers */
  struct tsr_block {
    void *memory;
    size_t size;
  } * blocks; /* what was allocated */
  int blocks_count;
};

/* What a value that goes from one stage to another has done for each microbatch. */
typedef struct {
  bool sent, received;
} tsr_transfer;

/* Where a stage is in its step. */
typedef struct {
  int run, task; /* of the program's lists */
  int meets;     /* the node of a collective over pp that it waits in, or -1 */
} tsr_stage_at;

struct tsr_bound {
  tsr_worker *worker;
  const tsr_programs *programs;
  tsr_rank_memory *ranks;
  int **ranks_of_stage; /* per stage: its ranks, ascending */
  int ranks_per_stage;
  int *param_values;        /* per parameter: its value */
  tsr_transfer **transfers; /* per node: of a receive node its microbatches, else NULL */
  tsr_stage_at *at;         /* per stage */
  char **rows;              /* per rank: a sample's row of an input that cp splits, whole */
  tsr_recorder *recorder;   /* NULL: none */
  tsr_recorder *recording;  /* the same in a step that is recorded, else NULL */
};

static inline const tsr_program *tsr_bound_program(const tsr_bound *bound, int rank) {
  return bound->programs->of_stage[bound->ranks[rank].coord[TSR_PP]];
}
/* Whether the rank holds (a part of) the value. */
static inline bool tsr_bound_has(const tsr_bound *bound, int value, int rank) {
  return tsr_bound_program(bound, rank)->tensors[value].segment != TSR_SEGMENT_ABSENT;
}

/* The part of a whole tensor that a rank holds. */
tsr_box tsr_bound_box(const tsr_bound *bound, int value, int rank);
static inline void *
tsr_bound_address(const tsr_bound *bound, int value, int rank, int64_t microbatch) {
  const tsr_program *p = tsr_bound_program(bound, rank);
  const tsr_tensor *t = &p->tensors[value];
  return bound->ranks[rank].base[t->segment] + tsr_tensor_offset(p, t, microbatch);
}
/* The place in the whole tensor of index i along a dimension of a rank's part. */
int64_t tsr_bound_position(
    const tsr_bound *bound, const tsr_box *box, int value, int rank, int dim, int64_t i);
void tsr_bound_initialise(tsr_bound *bound, bool parameters);

#endif
