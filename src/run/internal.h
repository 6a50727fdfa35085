#ifndef TSR_RUN_INTERNAL_H
#define TSR_RUN_INTERNAL_H
#include "run/worker.h"

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

struct tsr_bound {
  tsr_worker *worker;
  const tsr_program *program;
  tsr_rank_memory *ranks;
  int *param_values; /* per parameter: its value */
};

/* The part of a whole tensor that a rank holds. */
tsr_box tsr_bound_box(const tsr_bound *bound, int value, int rank);
static inline float *tsr_bound_address(const tsr_bound *bound, int value, int rank) {
  const tsr_tensor *t = &bound->program->tensors[value];
  return (float *)(void *)(bound->ranks[rank].base[t->segment] + t->offset);
}
void tsr_bound_initialise(tsr_bound *bound, bool parameters);

#endif
