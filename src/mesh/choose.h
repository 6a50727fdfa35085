// SPDX-License-Identifier: Apache-2.0
/* Which mesh descriptor a run uses, and why. In this order:
 *
 * 1. the option --mesh FILE;
 * 2. the configuration's device_config.mesh_graph_descriptor;
 * 3. the environment's TT_MESH_GRAPH_DESC_PATH;
 * 4. by device count: 8 gives t3k_1x8_mesh_graph_descriptor.textproto and 32 gives
 *    galaxy_1x32_mesh_graph_descriptor.textproto, as tt-train chooses: from $TT_METAL_HOME when
 * that is set and has the file, else the shipped one when the run's shape is its very shape, [1, 8]
 * or [1, 32];
 * 5. a made-up mesh of CPU ranks (or GPUs) in the shape that the run asks for.
 *
 * The value of 1 to 3 is a path, from the folder of the configuration (2) or the working folder (1,
 * 3). $TT_METAL_HOME or ${TT_METAL_HOME} at its start is replaced. A name that is not found there
 * is looked for, with and without its ending .textproto, in the shipped folder and then in
 * $TT_METAL_HOME's folders of descriptors: tests/tt_metal/tt_fabric/custom_mesh_descriptors,
 * tt_metal/fabric/mesh_graph_descriptors and, in the order of their names,
 * tt-train/sources/examples/python/multihost/EXAMPLE/configurations. The value `auto` insists on
 * 4: another device count, or a file that is nowhere, is then an error. */
#ifndef TSR_MESH_CHOOSE_H
#define TSR_MESH_CHOOSE_H
#include "mesh/mesh.h"

/* Empty and NULL texts mean "not given". */
typedef struct {
  const char *option;                /* --mesh */
  const char *config_value;          /* device_config.mesh_graph_descriptor */
  const char *config_file;           /* the file with that key */
  tsr_location config_place;         /* and where */
  const char *environment;           /* TT_MESH_GRAPH_DESC_PATH */
  const char *tt_metal_home;         /* TT_METAL_HOME */
  const char *shipped_folder;        /* mesh_descriptors/ of this installation */
  int dims[TSR_MESH_DIMS_MAX], ndim; /* the run's shape; ndim 0: none was given */
  int64_t devices;                   /* their number, also without a shape; at least 1 */
  tsr_mesh_arch arch;                /* of a made-up mesh: TSR_ARCH_CPU or TSR_ARCH_CUDA */
} tsr_mesh_request;

/* Chooses, reads and checks. *ret_why is one line for the log, without a newline: "mesh: FILE (from
 * --mesh)". Errors: those of tsr_mesh_read; "mesh descriptor 'X' not found" with the places that
 * were searched; "TT_METAL_HOME is not set" when the value needs it. */
bool tsr_mesh_choose(
    tsr_arena *arena, const tsr_mesh_request *request, tsr_mesh **ret_mesh, const char **ret_why,
    tsr_diags *diags);

/* The name of the descriptor that tt-train takes for so many devices, or NULL. */
const char *tsr_mesh_auto_name(int64_t devices);

#endif
