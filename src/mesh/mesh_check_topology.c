// SPDX-License-Identifier: Apache-2.0
/* Group 3 of the checks: dimensions, hosts, express links and the form of graphs. */
#include "mesh/mesh_internal.h"
#include <string.h>

static const char *dims_list(const tsr_mesh_source *source, const int32_t *dims, size_t count) {
  const char *text = "";
  for (size_t i = 0; i < count; i++)
    text = tsr_arena_printf(source->arena, "%s%s%d", text, i ? ", " : "", dims[i]);
  return tsr_arena_printf(source->arena, "[%s]", text);
}

static bool check_dims(const tsr_mesh_source *source, const tsr_mesh_block *b) {
  int errors = tsr_diags_errors(source->diags);
  const pb_torus *t = b->devices;
  if (!t || !t->n_dims)
    return tsr_diag_error(
        source->diags, tsr_mesh_place(source, t ? (const void *)t : b->message, NULL, 0),
        "%s descriptor '%s' has no device topology dims", b->kind, b->name);
  int64_t devices = 1;
  for (size_t i = 0; i < t->n_dims; i++) {
    if (t->dims[i] <= 0)
      tsr_diag_error(
          source->diags, tsr_mesh_place(source, t, "dims", i),
          "device topology dimensions must be positive, not %d, in %s descriptor '%s'", t->dims[i],
          b->kind, b->name);
    else if (devices <= TSR_MESH_DEVICES_MAX) devices *= t->dims[i];
  }
  if (devices > TSR_MESH_DEVICES_MAX)
    tsr_diag_error(
        source->diags, tsr_mesh_place(source, t, "dims", 0),
        "%s descriptor '%s' has more than %d devices", b->kind, b->name, TSR_MESH_DEVICES_MAX);
  if (t->n_dim_types > t->n_dims)
    tsr_diag_error(
        source->diags, tsr_mesh_place(source, t, "dim_types", t->n_dims),
        "dims and dim_types must be the same size: %zu dims, %zu dim_types in %s descriptor '%s'",
        t->n_dims, t->n_dim_types, b->kind, b->name);
  for (size_t i = 0; i < t->n_dim_types; i++)
    if (!t->dim_types[i])
      tsr_diag_error(
          source->diags, tsr_mesh_place(source, t, "dim_types", i),
          "dim_types must be LINE or RING in %s descriptor '%s'", b->kind, b->name);
  return tsr_diags_errors(source->diags) == errors;
}

static void check_hosts(const tsr_mesh_source *source, const tsr_mesh_block *b) {
  if (!b->has_hosts_field) return;
  const pb_torus *t = b->devices;
  size_t count = b->hosts ? b->hosts->n_dims : 0;
  if (count != t->n_dims) {
    tsr_diag_error(
        source->diags, tsr_mesh_place(source, b->message, "host_topology", 0),
        "device and host topology dims must be the same size: device dims %s, host dims %s in mesh "
        "descriptor '%s'",
        dims_list(source, t->dims, t->n_dims),
        count ? dims_list(source, b->hosts->dims, count) : "none", b->name);
    if (!b->hosts) tsr_diag_hint(source->diags, "host_topology { dims: [ 1, 1 ] } is one host");
    return;
  }
  for (size_t i = 0; i < count; i++) {
    int host = b->hosts->dims[i];
    tsr_location location = tsr_mesh_place(source, b->hosts, "dims", i);
    if (host <= 0)
      tsr_diag_error(
          source->diags, location,
          "host topology dimensions must be positive, not %d, in mesh descriptor '%s'", host,
          b->name);
    else if (t->dims[i] > 0 && t->dims[i] % host)
      tsr_diag_error(
          source->diags, location,
          "device topology dimensions must be divisible by host topology dimensions: %d by %d in "
          "mesh descriptor '%s'",
          t->dims[i], host, b->name);
  }
}

static void check_express(const tsr_mesh_source *source, const tsr_mesh_block *b) {
  int64_t devices = 1;
  for (size_t i = 0; i < b->devices->n_dims; i++) devices *= b->devices->dims[i];
  for (size_t i = 0; i < b->express_count; i++) {
    const pb_express *e = b->express[i];
    if (e->src < 0 || e->src >= devices)
      tsr_diag_error(
          source->diags, tsr_mesh_place(source, e, "src", 0),
          "express connection source is out of bounds: %d, but %s '%s' has devices 0 to %lld",
          e->src, b->kind, b->name, (long long)devices - 1);
    if (e->dst < 0 || e->dst >= devices)
      tsr_diag_error(
          source->diags, tsr_mesh_place(source, e, "dst", 0),
          "express connection destination is out of bounds: %d, but %s '%s' has devices 0 to %lld",
          e->dst, b->kind, b->name, (long long)devices - 1);
  }
}

static void check_express_links(const tsr_mesh_source *source, const tsr_mesh_block *b) {
  for (size_t i = 0; i < b->express_links_count; i++) {
    const pb_express_links *e = b->express_links[i];
    if (e->dim_idx < 0 || (size_t)e->dim_idx >= b->devices->n_dims) {
      tsr_diag_error(
          source->diags, tsr_mesh_place(source, e, "dim_idx", 0),
          "express links dim_idx %d is out of bounds: %s '%s' has %zu dims", e->dim_idx, b->kind,
          b->name, b->devices->n_dims);
      continue;
    }
    int length = b->devices->dims[e->dim_idx];
    if (!e->pattern) {
      if (!tsr_places_is_damaged(source->places, e))
        tsr_diag_error(
            source->diags, tsr_mesh_place(source, e, NULL, 0), "express links have no pattern");
      continue;
    }
    if (e->pattern->start < 0 || e->pattern->start >= length)
      tsr_diag_error(
          source->diags, tsr_mesh_place(source, e->pattern, "start", 0),
          "express links start %d is out of bounds: dim %d of '%s' has length %d",
          e->pattern->start, e->dim_idx, b->name, length);
    if (e->pattern->step < 2 || e->pattern->step > length)
      tsr_diag_error(
          source->diags, tsr_mesh_place(source, e->pattern, "step", 0),
          "express links step must be from 2 to %d, not %d", length, e->pattern->step);
    if (e->has_wrap && !e->wrap)
      tsr_diag_error(
          source->diags, tsr_mesh_place(source, e, "wrap", 0),
          "express links wrap must be LINE or RING");
  }
}

static void check_graph(const tsr_mesh_source *source, const pb_graph *g) {
  tsr_location location = tsr_mesh_place(source, g, "name", 0);
  const char *name = tsr_mesh_is_empty(g->name) ? "?" : g->name;
  bool damaged = tsr_places_is_damaged(source->places, g);
  if (!g->n_instances && !damaged)
    tsr_diag_error(
        source->diags, location,
        "graph must have at least one instance: graph descriptor '%s' has none", name);
  if (tsr_mesh_is_empty(g->type) && !damaged) {
    tsr_diag_error(
        source->diags, location, "graph must have a type: graph descriptor '%s' has none", name);
    tsr_diag_hint(source->diags, "type: \"FABRIC\"");
  }
  if (g->graph_topology && !g->graph_topology->layout_type &&
      !tsr_places_is_damaged(source->places, g->graph_topology))
    tsr_diag_error(
        source->diags, tsr_mesh_place(source, g->graph_topology, "layout_type", 0),
        "graph topology must have layout_type ALL_TO_ALL or RING in graph descriptor '%s'", name);
  for (size_t i = 0; i < g->n_connections; i++) {
    const pb_connection *c = g->connections[i];
    if (c->n_nodes < 2 && !tsr_places_is_damaged(source->places, c))
      tsr_diag_error(
          source->diags, tsr_mesh_place(source, c, NULL, 0),
          "connection must have at least two nodes, not %zu, in graph descriptor '%s'", c->n_nodes,
          name);
  }
}

bool tsr_mesh_check_topology(const tsr_mesh_source *source) {
  int errors = tsr_diags_errors(source->diags);
  for (size_t i = 0; i < tsr_mesh_blocks_count(source); i++) {
    tsr_mesh_block b = tsr_mesh_block_at(source, i);
    if (tsr_mesh_is_empty(b.name)) b.name = "?";
    if (tsr_places_is_damaged(source->places, b.message) ||
        (b.devices && tsr_places_is_damaged(source->places, b.devices)) ||
        (b.hosts && tsr_places_is_damaged(source->places, b.hosts)))
      continue;
    bool ok = check_dims(source, &b);
    if (b.devices && b.devices->n_dims) check_hosts(source, &b);
    if (!ok) continue;
    check_express(source, &b);
    check_express_links(source, &b);
  }
  for (size_t i = 0; i < source->root->n_graph_descriptors; i++)
    check_graph(source, source->root->graph_descriptors[i]);
  return tsr_diags_errors(source->diags) == errors;
}
