// SPDX-License-Identifier: Apache-2.0
/* The path of a collective or a send: the farthest link that its messages cross.
 *
 * The mesh descriptor decides: its hosts, and the architecture of its devices (mesh.h,
 * tsr_mesh_path_name). Where the mesh is generated, the machine's levels decide. In both cases the
 * machine prices the messages by its own links (machine.h). */
#ifndef TSR_PLAN_PATH_H
#define TSR_PLAN_PATH_H
#include "plan/machine.h"
#include "parallel/parallel.h"
#include "schedule/program.h"

/* Fills m->paths: from the descriptor's hosts, or where `mesh` is NULL or generated from m->links.
 */
void tsr_path_levels(tsr_machine *m, const tsr_mesh *mesh);

/* The ranks that a task's messages go between: of a collective the group, or where the group
 * replicates its blocks (hybrid sharding) the ranks that share one copy, unless the op also sums
 * the copies; of a send or a receive two neighbouring stages. */
tsr_machine_group
tsr_path_group(const tsr_parallel *parallel, const tsr_program *program, const tsr_task *task);
/* How many copies of its blocks the group of a collective holds (hybrid sharding); 1: one. */
int tsr_path_replicas(const tsr_program *program, const tsr_task *task);

/* The number of a rank's device, host by host (machine.h, parts); how many devices a host has, 0:
 * all of them, or the machine has no such level. */
int64_t tsr_path_device(const tsr_machine *m, int64_t rank);
int64_t tsr_path_host_devices(const tsr_machine *m);

/* The farthest path of all such groups of the mesh; "": one member, or no level joins them. */
const char *tsr_path_farthest(const tsr_machine *m, tsr_machine_group group);

typedef struct {
  const char *name; /* as above */
  bool by_host;     /* the members are on several hosts, and several of them on one */
} tsr_path;
/* Of one group: ranks first + i stride, i < members. */
tsr_path
tsr_path_of(tsr_arena *arena, const tsr_machine *m, int64_t first, int64_t members, int64_t stride);

#endif
