// SPDX-License-Identifier: Apache-2.0
/* What the files of src/mesh that judge a descriptor share: the message and where its parts stand.
 */
#ifndef TSR_MESH_MESH_INTERNAL_H
#define TSR_MESH_MESH_INTERNAL_H
#include "mesh/mesh.h"
#include "mesh/textproto.h"
#include "mesh_graph_descriptor.pb-c.h"

typedef Tt__TtFabric__Proto__MeshGraphDescriptor pb_root;
typedef Tt__TtFabric__Proto__MeshDescriptor pb_mesh;
typedef Tt__TtFabric__Proto__SwitchDescriptor pb_switch;
typedef Tt__TtFabric__Proto__GraphDescriptor pb_graph;
typedef Tt__TtFabric__Proto__NodeRef pb_node;
typedef Tt__TtFabric__Proto__Connection pb_connection;
typedef Tt__TtFabric__Proto__Channels pb_channels;
typedef Tt__TtFabric__Proto__TorusTopology pb_torus;
typedef Tt__TtFabric__Proto__MeshTopology pb_hosts;
typedef Tt__TtFabric__Proto__ExpressConnection pb_express;
typedef Tt__TtFabric__Proto__ExpressLinks pb_express_links;
typedef Tt__TtFabric__Proto__AsicPinning pb_pinning;
typedef Tt__TtFabric__Proto__FabricNodeId pb_node_id;
typedef Tt__TtFabric__Proto__AsicPosition pb_position;

enum {
  PB_NODE_NONE = TT__TT_FABRIC__PROTO__NODE_REF__NODE__NOT_SET,
  PB_NODE_MESH = TT__TT_FABRIC__PROTO__NODE_REF__NODE_MESH,
  PB_NODE_GRAPH = TT__TT_FABRIC__PROTO__NODE_REF__NODE_GRAPH,
  PB_NODE_SWITCH = TT__TT_FABRIC__PROTO__NODE_REF__NODE_SWITCH,
  PB_ALL_TO_ALL = TT__TT_FABRIC__PROTO__GRAPH_TOPOLOGY__LAYOUT_TYPE__ALL_TO_ALL,
  PB_RING = TT__TT_FABRIC__PROTO__GRAPH_TOPOLOGY__LAYOUT_TYPE__RING,
  TSR_MESH_DESCRIPTORS_MAX = 4096,
  TSR_MESH_DEVICES_MAX = 1 << 24,   /* of one descriptor */
  TSR_MESH_INSTANCES_MAX = 1 << 20, /* graphs of graphs can multiply */
  TSR_MESH_CONNECTIONS_MAX = 1 << 22
};

typedef struct {
  tsr_arena *arena;
  const char *file;
  const pb_root *root;
  const tsr_places *places;
  tsr_diags *diags;
} tsr_mesh_source;

/* A mesh descriptor, or a switch descriptor, which is one without host_topology. */
typedef struct {
  const void *message;
  const char *kind; /* "mesh" */
  const char *name; /* NULL: none */
  bool has_arch;
  int arch;
  const pb_torus *devices;
  const pb_hosts *hosts;
  bool has_hosts_field; /* a mesh; a switch is always one host */
  const pb_channels *channels;
  size_t express_count, express_links_count;
  pb_express *const *express;
  pb_express_links *const *express_links;
} tsr_mesh_block;

/* All mesh descriptors, then all switch descriptors. */
size_t tsr_mesh_blocks_count(const tsr_mesh_source *source);
tsr_mesh_block tsr_mesh_block_at(const tsr_mesh_source *source, size_t i);
static inline tsr_location
tsr_mesh_place(const tsr_mesh_source *source, const void *message, const char *field, size_t i) {
  return tsr_places_find(source->places, message, field, i);
}
static inline bool tsr_mesh_is_empty(const char *text) { return !text || !*text; }
/* The most dimensions that an architecture has, 0 for an invalid one. */
int tsr_mesh_arch_dims_max(int arch);
tsr_mesh_channels tsr_mesh_channels_of(const pb_channels *channels, tsr_mesh_policy missing);

/* The groups of checks. Each reports all it finds; the next runs only where this one is content. */
bool tsr_mesh_check_structure(const tsr_mesh_source *source); /* 1: there is something to open */
bool tsr_mesh_check_names(const tsr_mesh_source *source);     /* 2: names, channels, architecture */
bool tsr_mesh_check_topology(const tsr_mesh_source *source);  /* 3: dims, hosts, graphs */
bool tsr_mesh_check_pinnings(const tsr_mesh_source *source);  /* 3 too: their form */
/* Fills `mesh` with shapes, instances and connections; references and ids are checked on the way.
 */
bool tsr_mesh_build(const tsr_mesh_source *source, tsr_mesh *mesh);
/* Pinned ids exist. */
bool tsr_mesh_check_pinned(const tsr_mesh_source *source, const tsr_mesh *mesh);
/* What Tenstorrent's fabric would refuse, as notes. */
void tsr_mesh_note_fabric(const tsr_mesh_source *source, const tsr_mesh *mesh);

#endif
