// SPDX-License-Identifier: Apache-2.0
/* The rules of config × mesh, one function each. Every rule reports all that it finds at the place
 * that the user can fix, and returns whether it holds. */
#ifndef TSR_PARALLEL_RULES_H
#define TSR_PARALLEL_RULES_H
#include "parallel/parallel.h"

/* One way of sharing the work that takes one dimension of the mesh. ddp and fsdp are both on dp. */
typedef struct {
  int axis;
  bool fsdp;
  const char *name; /* as in enable_<name> */
} tsr_strategy;

/* What the configuration asks for, before it is checked. */
typedef struct {
  tsr_strategy strategies[TSR_AXES + 1]; /* in the order in which they take dimensions */
  int strategies_count;
  int asked[TSR_MESH_NDIM_MAX], asked_ndim; /* the shape as given, or as chosen for the user */
  int shape[TSR_MESH_NDIM_MAX], ndim;       /* without the dimensions of size 1 that are unused */
  int64_t ranks;
  int have[TSR_MESH_DIMS_MAX + 1],
      have_ndim; /* the descriptor's; several meshes are one dimension more */
  int devices;   /* the descriptor's */
  bool line;     /* its devices form one line or ring */
  bool whole;    /* the mesh is meant to be all devices; false: no more than one was requested */
} tsr_mesh_layout;

tsr_mesh_layout tsr_mesh_layout_make(const tsr_config *config, const tsr_mesh *mesh);

/* The divisors of n > 0, ascending; returns how many. */
enum { TSR_DIVISORS_MAX = 1536 }; /* the most that a 31-bit number has */
int tsr_divisors(int n, int ret_divisors[TSR_DIVISORS_MAX]);

tsr_short_text tsr_mesh_layout_text(const int *shape, int ndim); /* "[4, 8]" */
/* Where the mesh's shape was given, or at least the file. */
tsr_location tsr_mesh_layout_place(const tsr_config *config);

/* As many strategies as dimensions, in tt-train's words. */
bool tsr_mesh_rule_axes(const tsr_config *config, const tsr_mesh_layout *layout, tsr_diags *diags);
/* Every enabled strategy is in `mesh.axes` where that is given. */
bool tsr_mesh_rule_axis_names(const tsr_config *config, tsr_diags *diags);
/* The descriptor has meshes, and if several, of one shape. */
bool tsr_mesh_rule_kind(const tsr_config *config, const tsr_mesh *mesh, tsr_diags *diags);
/* A line may be laid out as any shape of as many devices, a true 2-D mesh only as itself. */
bool tsr_mesh_rule_descriptor(
    const tsr_config *config, const tsr_mesh_layout *layout, tsr_diags *diags);
/* As many ids as ranks, each one a device of the descriptor. */
bool tsr_mesh_rule_device_ids(
    const tsr_config *config, const tsr_mesh_layout *layout, tsr_diags *diags);
/* A warning when devices are left idle; never false. */
bool tsr_mesh_rule_idle_devices(
    const tsr_config *config, const tsr_mesh_layout *layout, tsr_diags *diags);
/* The global batch, from batch_size or batch_size_per_rank, divides over dp; both agree. */
bool tsr_mesh_rule_batch(const tsr_config *config, tsr_parallel *p, tsr_diags *diags);

#endif
