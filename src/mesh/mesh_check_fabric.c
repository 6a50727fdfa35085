// SPDX-License-Identifier: Apache-2.0
/* What Tenstorrent's fabric refuses although the format allows it ("MGD 1.0 compatibility"). We
 * open such meshes, so these are notes; and only for their architectures. */
#include "mesh/mesh_internal.h"
#include <stdlib.h>
#include <string.h>

static void note_blocks(const tsr_mesh_source *source) {
  for (size_t i = 0; i < tsr_mesh_blocks_count(source); i++) {
    tsr_mesh_block b = tsr_mesh_block_at(source, i);
    const pb_torus *t = b.devices;
    if (t->n_dims != 2)
      tsr_diag_note(
          source->diags, tsr_mesh_place(source, t, "dims", 0),
          "the fabric needs exactly 2 device dims and 2 host dims; %s descriptor '%s' has %zu",
          b.kind, b.name, t->n_dims);
    else if (
        b.arch == TSR_ARCH_WORMHOLE_B0 && t->dims[0] % 2 && t->dims[1] % 2 &&
        (t->dims[0] > 1 || t->dims[1] > 1))
      tsr_diag_note(
          source->diags, tsr_mesh_place(source, t, "dims", 0),
          "the fabric opens no Wormhole mesh with two odd dims unless both are 1; '%s' is %d × %d",
          b.name, t->dims[0], t->dims[1]);
    if (b.express_count)
      tsr_diag_note(
          source->diags, tsr_mesh_place(source, b.message, "express_connections", 0),
          "the fabric supports no express connections; %s descriptor '%s' has %zu", b.kind, b.name,
          b.express_count);
  }
}

static bool has_device(const pb_connection *c) {
  for (size_t i = 0; i < c->n_nodes; i++) {
    const pb_node *n = c->nodes[i];
    if ((int)n->node_case == PB_NODE_MESH && n->mesh->has_device_id) return true;
    if ((int)n->node_case == PB_NODE_SWITCH && n->switch_->has_device_id) return true;
  }
  return false;
}

static void note_connections(const tsr_mesh_source *source, const pb_graph *g) {
  int policies = 0, styles = 0;
  bool is_told[3] = {false};
  for (size_t i = 0; i < g->n_connections; i++) {
    const pb_connection *c = g->connections[i];
    tsr_location location = tsr_mesh_place(source, c, NULL, 0);
    policies |= 1 << tsr_mesh_channels_of(c->channels, TSR_MESH_STRICT).policy;
    styles |= 1 << has_device(c);
    if (c->n_nodes != 2 && !is_told[0]) {
      is_told[0] = true;
      tsr_diag_note(
          source->diags, location, "the fabric needs exactly 2 nodes in a connection; here are %zu",
          c->n_nodes);
    }
    if (policies == 6 && !is_told[1]) {
      is_told[1] = true;
      tsr_diag_note(
          source->diags, location,
          "the fabric allows no STRICT and RELAXED connections in one graph, as in '%s'", g->name);
    }
    if (styles == 3 && !is_told[2]) {
      is_told[2] = true;
      tsr_diag_note(
          source->diags, location,
          "the fabric allows no connections with and without device_id in one graph, as in '%s'",
          g->name);
    }
  }
}

static int compare_ints(const void *a, const void *b) {
  int x = *(const int *)a, y = *(const int *)b;
  return (x > y) - (x < y);
}

static void note_ids(const tsr_mesh_source *source, const tsr_mesh *mesh) {
  int *ids = tsr_arena_array(source->arena, int, mesh->instances_count), count = 0;
  for (int i = 0; i < mesh->instances_count; i++)
    if (mesh->instances[i].shape) ids[count++] = mesh->instances[i].id;
  qsort(ids, (size_t)count, sizeof *ids, compare_ints);
  for (int i = 0; i < count; i++) {
    if (ids[i] == i) continue;
    tsr_diag_note(
        source->diags, mesh->instances[0].location,
        "the fabric expects the mesh and switch ids 0 to %d, each once", count - 1);
    return;
  }
}

void tsr_mesh_note_fabric(const tsr_mesh_source *source, const tsr_mesh *mesh) {
  if (mesh->shape.arch >= TSR_ARCH_CPU) return;
  note_blocks(source);
  const pb_root *root = source->root;
  if (root->n_graph_descriptors > 1)
    tsr_diag_note(
        source->diags, tsr_mesh_place(source, root, "graph_descriptors", 1),
        "the fabric allows at most one graph; here are %zu", root->n_graph_descriptors);
  for (size_t i = 0; i < root->n_graph_descriptors; i++) {
    const pb_graph *g = root->graph_descriptors[i];
    if (strcmp(g->type, "FABRIC"))
      tsr_diag_note(
          source->diags, tsr_mesh_place(source, g, "type", 0),
          "the fabric needs graphs of type 'FABRIC'; '%s' is of type '%s'", g->name, g->type);
    note_connections(source, g);
  }
  note_ids(source, mesh);
}
