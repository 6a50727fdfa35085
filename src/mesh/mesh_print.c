// SPDX-License-Identifier: Apache-2.0
/* The text of a mesh descriptor. */
#include "mesh/mesh.h"
#include <string.h>

static void print_dims(tsr_text *text, const int *dims, int ndim) {
  for (int i = 0; i < ndim; i++) tsr_text_add(text, "%s%d", i ? " × " : "", dims[i]);
}

static void print_shape(tsr_text *text, const tsr_mesh_shape *s, const char *indent) {
  tsr_text_add(text, "%sshape     ", indent);
  print_dims(text, s->dims, s->ndim);
  for (int i = 0; i < s->ndim; i++)
    tsr_text_add(
        text, "%s%s", i ? " × " : "  (", s->dim_types[i] == TSR_MESH_RING ? "ring" : "line");
  tsr_text_add(text, ")\n%sarch      %s\n", indent, tsr_mesh_arch_name(s->arch));
  tsr_text_add(
      text, "%sdevices   %s\n%shosts     ", indent, tsr_text_count(s->devices).text, indent);
  print_dims(text, s->host_dims, s->ndim);
  if (s->hosts > 1)
    tsr_text_add(text, ", %s devices each", tsr_text_count(s->devices / s->hosts).text);
  tsr_text_add(
      text, "\n%slinks     %d per pair of neighbours, %s\n", indent, s->channels.count,
      tsr_mesh_policy_name(s->channels.policy));
  if (s->express_links)
    tsr_text_add(
        text, "%sexpress   %s %s\n", indent, tsr_text_count(s->express_links).text,
        s->express_links == 1 ? "link" : "links");
}

static const char *kind_name(tsr_mesh_kind kind) {
  static const char *const names[] = {"mesh", "switch", "graph"};
  return names[kind];
}

static void print_instances(const tsr_mesh *mesh, tsr_text *text) {
  tsr_text_add(text, "instances\n");
  for (int i = 0; i < mesh->instances_count; i++) {
    const tsr_mesh_instance *in = &mesh->instances[i];
    tsr_text_add(
        text, "%*s%s %d '%s'", 2 + 2 * in->depth, "", kind_name(in->kind), in->id, in->descriptor);
    if (in->shape) {
      tsr_text_add(text, ", ");
      print_dims(text, in->shape->dims, in->shape->ndim);
    } else tsr_text_add(text, ", type %s", in->type);
    tsr_text_add(text, "\n");
  }
}

static void print_end(const tsr_mesh *mesh, tsr_text *text, bool with_graph, int at, int device) {
  const tsr_mesh_instance *end = &mesh->instances[at];
  if (with_graph) tsr_text_add(text, "graph %d ", mesh->instances[end->parent].id);

  tsr_text_add(text, "%s %d", kind_name(end->kind), end->id);
  if (device >= 0) tsr_text_add(text, " device %d", device);
}

static void print_connections(const tsr_mesh *mesh, tsr_text *text) {
  int graphs = 0;
  for (int i = 0; i < mesh->instances_count; i++)
    graphs += mesh->instances[i].kind == TSR_MESH_IS_GRAPH;
  tsr_text_add(text, "connections\n");
  for (int i = 0; i < mesh->connections_count; i++) {
    const tsr_mesh_connection *c = &mesh->connections[i];
    tsr_text_add(text, "  ");
    print_end(mesh, text, graphs > 1, c->from, c->from_device);
    tsr_text_add(text, " - ");
    print_end(mesh, text, graphs > 1, c->to, c->to_device);
    tsr_text_add(
        text, ", %d %s, %s%s\n", c->channels.count, c->channels.count == 1 ? "link" : "links",
        tsr_mesh_policy_name(c->channels.policy), c->assign_z_direction ? ", z direction" : "");
  }
}

/* The shape of each descriptor that is in use, once. */
static void print_shapes(const tsr_mesh *mesh, tsr_text *text) {
  for (int i = 0; i < mesh->instances_count; i++) {
    const tsr_mesh_instance *in = &mesh->instances[i];
    bool is_first = in->shape != NULL;
    for (int k = 0; k < i && is_first; k++) is_first = mesh->instances[k].shape != in->shape;
    if (!is_first) continue;
    tsr_text_add(text, "%s '%s'\n", kind_name(in->kind), in->descriptor);
    print_shape(text, in->shape, "  ");
  }
}

void tsr_mesh_print(const tsr_mesh *mesh, tsr_text *text) {
  tsr_text_add(text, "file        %s\n", mesh->file ? mesh->file : "none: generated");
  print_shapes(mesh, text);
  if (mesh->instances_count == 1) return;
  print_instances(mesh, text);
  if (mesh->connections_count) print_connections(mesh, text);
  tsr_text_add(
      text, "altogether  %d %s, %s devices, %s %s\n", mesh->meshes,
      mesh->meshes == 1 ? "mesh" : "meshes", tsr_text_count(mesh->devices).text,
      tsr_text_count(mesh->hosts).text, mesh->hosts == 1 ? "host" : "hosts");
}
