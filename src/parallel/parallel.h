// SPDX-License-Identifier: Apache-2.0
/* ParallelismContext: how the ranks of a mesh share the work.
 *
 * Axes take the mesh's dimensions in the order ddp (and fsdp), cp, tp, pp, ep, or as `mesh.axes`
 * names them. A rank's coordinates are row-major over the dimensions; the group of a rank over an
 * axis are the ranks that differ from it on that axis only, in the order of their coordinate. ddp
 * and fsdp together are hybrid sharding: dp is then the product of both dimensions, and each run of
 * `fsdp_size` neighbours on dp shards the parameters that the runs replicate. */
#ifndef TSR_PARALLEL_PARALLEL_H
#define TSR_PARALLEL_PARALLEL_H
#include "base/axis.h"
#include "base/diag.h"
#include "base/reduction_tree.h"
#include "base/text.h"
#include "config/config.h"
#include "mesh/mesh.h"

typedef struct tsr_parallel {
  const tsr_mesh *mesh; /* the ranks' devices; NULL in a context that no mesh was read for */
  int ranks;
  int ndim; /* mesh dimensions that carry an axis */
  int axis_of_dim[TSR_AXES];
  int size[TSR_AXES]; /* 1 for axes that are off */
  bool enabled[TSR_AXES];
  int stride[TSR_AXES];     /* rank distance of neighbours on the axis; 0 for axes that are off */
  const int *device_ids;    /* per rank, or NULL: 0..ranks-1 */
  bool fsdp;                /* dp shards parameters, gradients and state */
  int fsdp_size;            /* ranks of one shard group; 1 without fsdp */
  int64_t microbatches;     /* of a step: accumulated ones, each split for the pipeline */
  int64_t batch_size;       /* global samples of a microbatch */
  int64_t batch_size_local; /* of them, a rank's */
  bool batch_is_rounded;    /* the default does not divide (tsr_parallel_check_batch) */
  tsr_tree_shape tree;      /* of sums; flat: each batch unit is a microbatch of its own */
} tsr_parallel;

/* Checks config × mesh (one small function per rule, all errors of a run) and builds the context.
 */
bool tsr_parallel_make(
    tsr_arena *arena, const tsr_config *config, const tsr_mesh *mesh, tsr_parallel **ret_parallel,
    tsr_diags *diags);

/* Of a graph that reads its batch: an error where that is the default and does not divide over the
 * mesh. Other graphs of the user's have no samples. */
bool tsr_parallel_check_batch(
    const tsr_parallel *parallel, const tsr_config *config, tsr_diags *diags);

/* Where an axis was turned on, or where the mesh's shape was given. */
tsr_location tsr_axis_place(const tsr_config *config, int axis);

/* Warns of sequence parallelism without tp, and of validation without replicas. */
void tsr_parallel_warn(const tsr_parallel *p, const tsr_config *config, tsr_diags *diags);

/* numerics.units, with the defaults filled in: units.batch is dp × microbatches,
 * units.tp is the tp size (dp stands for all ranks that have different samples, those of ep
 * too). Counts that were given must let every rank and microbatch compute whole
 * units, and a subtree of base/reduction_tree.h's tree; else an error there that names the nearest
 * counts that would. The defaults are never an error: each rank's share of a microbatch is then
 * one unit.
 */
bool tsr_parallel_units(
    const tsr_parallel *p, const tsr_config *config, int64_t *ret_batch, int64_t *ret_tp,
    tsr_diags *diags);
/* Whether so many units of tp can be split over this mesh's ranks. */
bool tsr_parallel_tp_units_fit(const tsr_parallel *parallel, int64_t units);

/* Of a model with experts: numerics.units.expert, the leaves of which the gradients of experts are
 * made (schedule/expert_rows.h); by default one for each rank of dp, and where gradients are summed
 * over dp in each microbatch one for each of those. A given count must be a multiple of that and a
 * divisor of the batch units. */
bool tsr_parallel_expert_units(
    const tsr_parallel *p, const tsr_config *config, int64_t batch_units, int64_t *ret_expert,
    tsr_diags *diags);

/* Whether so many batch units, in so many microbatches, are not added in the order of
 * base/reduction_tree.h's tree, so that other meshes have other bits. Default units may have such
 * an order, given ones never do. */
bool tsr_batch_units_have_own_order(
    tsr_tree_shape tree, int64_t units, const int size[TSR_AXES], int64_t microbatches,
    bool microbatch_first);
/* What that order is of; "": of nothing, it is the tree's. */
const char *tsr_parallel_own_order(
    tsr_arena *arena, const tsr_parallel *p, const tsr_config *config, int64_t units);

/* Ranks that have different samples. */
static inline int tsr_parallel_batch_ranks(const tsr_parallel *p) {
  return p->size[TSR_DP] * p->size[TSR_EP];
}
/* Their axes, for messages: "dp", or "dp × ep" where both split samples. */
static inline const char *tsr_parallel_batch_axes(const tsr_parallel *p) {
  return p->size[TSR_EP] == 1 ? "dp" : p->size[TSR_DP] == 1 ? "ep" : "dp × ep";
}
/* Whether a step's samples go to microbatches first and then to the ranks of dp: gradients are then
 * summed over dp in each microbatch. */
bool tsr_microbatch_first(tsr_tree_shape tree, const tsr_config *config, const int size[TSR_AXES]);
static inline bool tsr_parallel_microbatch_first(const tsr_parallel *p, const tsr_config *config) {
  return tsr_microbatch_first(p->tree, config, p->size);
}

static inline int tsr_parallel_coord(const tsr_parallel *p, int rank, int axis) {
  return p->stride[axis] ? rank / p->stride[axis] % p->size[axis] : 0;
}
/* The rank at position `index` of the group that `rank` belongs to over `axis`. */
static inline int tsr_parallel_member(const tsr_parallel *p, int rank, int axis, int index) {
  return rank + (index - tsr_parallel_coord(p, rank, axis)) * p->stride[axis];
}

/* The shape for `devices` over `ndim` axes when only a count is given: never increasing, and as
 * balanced as can be (least sum): 48 over three is 4, 4, 3. */
void tsr_parallel_factorize(int devices, int ndim, int *ret_shape);

/* "tp × dp mesh, 4 × 4", without a newline. */
void tsr_parallel_topology(const tsr_parallel *p, tsr_text *text);
/* What `inspect` prints: topology, axes and sizes, then every rank's coordinates (the first 64
 * ranks), then the groups of each axis (the first 64 members of the first 16 groups). */
void tsr_parallel_print(const tsr_parallel *p, tsr_text *text);
/* The six lines of a start: mesh shape, devices, descriptor, context, parameters, batches.
 * `descriptor_why`: which descriptor was taken, and why. */
void tsr_parallel_startup(
    const tsr_parallel *p, const tsr_config *config, const tsr_mesh *mesh,
    const char *descriptor_why, tsr_text *text);
/* A line: which inexact or unordered methods the policy leaves off, and which it turns on. */
void tsr_numerics_describe(const tsr_config *config, tsr_text *text);

/* tt-train's process-wide context, for those who know its calls, in its order: the devices of the
 * mesh, then the context, each once, then the model. Errors, in its words where it has any: "The
 * device is already initialized.", "The device is not initialized." (opening the context before
 * it), "ParallelismContext is already initialized." and "ParallelismContext is not initialized."
 * (reading it before, or making a model). */
bool tsr_parallelism_device_open(tsr_diags *diags);
bool tsr_parallelism_context_open(const tsr_parallel *p, tsr_diags *diags);
bool tsr_parallelism_context_get(const tsr_parallel **ret_parallel, tsr_diags *diags);
bool tsr_parallelism_context_size(tsr_axis axis, int *ret_size, tsr_diags *diags);
void tsr_parallelism_context_close(void); /* and the device */

#endif
