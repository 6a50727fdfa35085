// SPDX-License-Identifier: Apache-2.0
/* The mesh of the reduced run. Axes keep first, interior and last members. */
#ifndef TSR_PROVE_REDUCED_MESH_H
#define TSR_PROVE_REDUCED_MESH_H
#include "parallel/parallel.h"

enum { TSR_PROVE_RANKS_MAX = 64 };

typedef struct {
  const char *name; /* "dp"; "ddp" and "fsdp" where both share dp */
  int axis;
  int full, reduced;
  bool processes; /* pipeline.workers: outside of mesh_shape */
  const char *why;
} tsr_reduced_axis;

typedef struct {
  tsr_reduced_axis dims[TSR_AXES + 1]; /* in the order in which the configuration gives them */
  int count;
  int64_t ranks; /* of the reduced mesh */
  int size[TSR_AXES];
} tsr_reduced_mesh;

typedef struct {
  bool full_mesh;            /* no axis shrinks */
  bool hybrid;               /* ddp and fsdp are dimensions of their own */
  bool processes;            /* the outermost dimension is pipeline.workers */
  bool fixed_stages;         /* stages or their schedule are listed, so pp cannot shrink */
  const int64_t *zero_sizes; /* dimensions of parameters that ZeRO may split */
  int zero_sizes_count;
} tsr_reduced_limits;

/* Ranks that have different samples. */
static inline int tsr_reduced_mesh_batch_ranks(const tsr_reduced_mesh *s) {
  return s->size[TSR_DP] * s->size[TSR_EP];
}

/* Each dimension by tsr_axis_reduce, that of ZeRO's shards by tsr_axis_reduce_alike; then the
 * largest ones by their smallest divisors until at most TSR_PROVE_RANKS_MAX ranks remain. */
tsr_reduced_mesh tsr_reduced_mesh_reduce(const tsr_parallel *parallel, tsr_reduced_limits limits);

/* Makes a configuration ask for this mesh, of CPU ranks and without a descriptor. */
void tsr_reduced_mesh_apply(const tsr_reduced_mesh *shape, tsr_config *config);
/* The same for one rank. What the mesh alone has use for (ZeRO, sequence parallelism, stages) is
 * off. */
void tsr_reduced_mesh_single(tsr_config *config);

/* "dp 4 × pp 4 × tp 4", or "one rank". */
void tsr_reduced_mesh_print(const tsr_reduced_mesh *shape, tsr_text *text);

#endif
