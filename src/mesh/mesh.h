// SPDX-License-Identifier: Apache-2.0
/* What the run stands on: the devices of a mesh descriptor, their shape, hosts and links.
 *
 * A descriptor is a `.textproto` file in the schema mesh_descriptors/mesh_graph_descriptor.proto,
 * which is Tenstorrent's MGD 2.0 with the architectures CPU and CUDA added (up to 4 dimensions;
 * Wormhole has 2, Blackhole 3). Its top-level instance is a mesh, a switch, or a graph of them. */
#ifndef TSR_MESH_MESH_H
#define TSR_MESH_MESH_H
#include "base/arena.h"
#include "base/diag.h"
#include "base/text.h"
#include <stdint.h>

enum { TSR_MESH_DIMS_MAX = 4 };

/* Values as in the schema. */
typedef enum {
  TSR_ARCH_WORMHOLE_B0 = 1,
  TSR_ARCH_BLACKHOLE = 2,
  TSR_ARCH_CPU = 100,
  TSR_ARCH_CUDA = 101
} tsr_mesh_arch;
typedef enum { TSR_MESH_LINE = 1, TSR_MESH_RING = 2 } tsr_mesh_dim_type;
typedef enum { TSR_MESH_STRICT = 1, TSR_MESH_RELAXED = 2 } tsr_mesh_policy;
typedef enum { TSR_MESH_IS_MESH, TSR_MESH_IS_SWITCH, TSR_MESH_IS_GRAPH } tsr_mesh_kind;

/* Links between neighbours, or between the two ends of a connection. */
typedef struct {
  int count;
  tsr_mesh_policy policy;
} tsr_mesh_channels;

/* The arrangement of one mesh's (or switch's) devices; device ids are row-major over `dims`. */
typedef struct {
  const char *name; /* of the descriptor */
  tsr_mesh_arch arch;
  int ndim;
  int dims[TSR_MESH_DIMS_MAX];
  tsr_mesh_dim_type dim_types[TSR_MESH_DIMS_MAX];
  int host_dims[TSR_MESH_DIMS_MAX]; /* each divides its dim; a host owns a block */
  int64_t devices, hosts;           /* the products */
  tsr_mesh_channels channels;       /* per pair of neighbours */
  int64_t express_links;            /* links that skip neighbours */
  tsr_location location;            /* of device_topology; nowhere when generated */
} tsr_mesh_shape;

/* A mesh, switch or graph that exists; of a graph, its children follow it in the array. */
typedef struct {
  tsr_mesh_kind kind;
  const char *descriptor, *type; /* type: of a graph, else NULL */
  int id;                        /* mesh_id, switch_id or graph_id */
  int parent;                    /* index in instances; -1: the top level */
  int depth;                     /* 0: the top level */
  const tsr_mesh_shape *shape;   /* NULL: a graph */
  tsr_location location;
} tsr_mesh_instance;

typedef struct {
  int from, to;               /* indices in instances; both ways */
  int from_device, to_device; /* -1: any device of that instance */
  tsr_mesh_channels channels;
  bool assign_z_direction;
} tsr_mesh_connection;

typedef struct tsr_mesh {
  const char *file;     /* as the user named it; NULL: generated */
  tsr_mesh_shape shape; /* of the first mesh; of the first switch where there is no mesh */
  bool is_switch_only;  /* no mesh at all: nothing can be trained on it */
  bool is_uniform;      /* all meshes have the shape above */
  int meshes;           /* how many there are, without switches */
  int64_t devices;      /* of all meshes together */
  int64_t hosts;        /* of all meshes together */
  const tsr_mesh_instance *instances;
  int instances_count;
  const tsr_mesh_connection *connections;
  int connections_count;
} tsr_mesh;

/* Reads and checks a descriptor. `place`: where the user named the file (for "cannot read"). All
 * mistakes of the text, then those of a group of checks (mesh_check_structure.c) in one run; what
 * only Tenstorrent's fabric forbids comes as notes. */
bool tsr_mesh_read(
    tsr_arena *arena, const char *file, tsr_location location, tsr_mesh **ret_mesh,
    tsr_diags *diags);
/* The same of a text in memory. */
bool tsr_mesh_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_mesh **ret_mesh,
    tsr_diags *diags);

/* A made-up descriptor of CPU ranks (or GPUs) in rings, on one host. ndim from 1 to 4, dims
 * positive. */
tsr_mesh *tsr_mesh_make(tsr_arena *arena, tsr_mesh_arch arch, const int *dims, int ndim);
tsr_mesh *tsr_mesh_make_cpu(tsr_arena *arena, const int *dims, int ndim);

/* "4 × 8"; lives in the arena. */
const char *tsr_mesh_dims_text(tsr_arena *arena, const int *dims, int ndim);
const char *tsr_mesh_arch_name(tsr_mesh_arch arch);
/* What messages between two devices of one host, or of two hosts, cross: shm or ib between ranks on
 * CPUs, nvlink or ib between GPUs, ethernet between chips of Tenstorrent. GPUs in lines with one
 * channel are linked by PCIe: pcie, as `doctor --topology` describes them. */
const char *tsr_mesh_path_name(const tsr_mesh_shape *shape, bool within_host);
const char *tsr_mesh_policy_name(tsr_mesh_policy policy);

/* The output of `inspect --mesh`: shape, architecture, hosts, links, devices, instances,
 * connections. */
void tsr_mesh_print(const tsr_mesh *mesh, tsr_text *text);

#endif
