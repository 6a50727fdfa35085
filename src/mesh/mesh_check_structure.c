// SPDX-License-Identifier: Apache-2.0
/* Groups 1 and 2 of the checks of a mesh descriptor. Rules that tt-metal has too use its words
 * where these are known, so that a search finds both. */
#include "mesh/mesh_internal.h"
#include <string.h>

size_t tsr_mesh_blocks_count(const tsr_mesh_source *source) {
  return source->root->n_mesh_descriptors + source->root->n_switch_descriptors;
}

tsr_mesh_block tsr_mesh_block_at(const tsr_mesh_source *source, size_t i) {
  if (i < source->root->n_mesh_descriptors) {
    const pb_mesh *m = source->root->mesh_descriptors[i];
    return (tsr_mesh_block){
        m,
        "mesh",
        m->name,
        m->has_arch,
        (int)m->arch,
        m->device_topology,
        m->host_topology,
        true,
        m->channels,
        m->n_express_connections,
        m->n_express_links,
        m->express_connections,
        m->express_links};
  }
  const pb_switch *s = source->root->switch_descriptors[i - source->root->n_mesh_descriptors];
  return (tsr_mesh_block){
      s,
      "switch",
      s->name,
      s->has_arch,
      (int)s->arch,
      s->device_topology,
      NULL,
      false,
      s->channels,
      s->n_express_connections,
      s->n_express_links,
      s->express_connections,
      s->express_links};
}

tsr_mesh_channels tsr_mesh_channels_of(const pb_channels *channels, tsr_mesh_policy missing) {
  return (tsr_mesh_channels){
      channels && channels->has_count ? channels->count : 0,
      channels && channels->has_policy ? (tsr_mesh_policy)channels->policy : missing};
}

bool tsr_mesh_check_structure(const tsr_mesh_source *source) {
  int errors = tsr_diags_errors(source->diags);
  tsr_location location = {.file = source->file};
  bool damaged = tsr_places_is_damaged(source->places, source->root);
  if (!tsr_mesh_blocks_count(source) && !damaged)
    tsr_diag_error(
        source->diags, location, "there must be at least one mesh descriptor or switch descriptor");
  if (tsr_mesh_blocks_count(source) + source->root->n_graph_descriptors > TSR_MESH_DESCRIPTORS_MAX)
    tsr_diag_error(source->diags, location, "more than %d descriptors", TSR_MESH_DESCRIPTORS_MAX);
  if (!source->root->top_level_instance && !damaged) {
    tsr_diag_error(source->diags, location, "top level instance is required");
    tsr_diag_hint(
        source->diags, "top_level_instance { mesh { mesh_descriptor: \"%s\" mesh_id: 0 } }",
        source->root->n_mesh_descriptors && source->root->mesh_descriptors[0]->name
            ? source->root->mesh_descriptors[0]->name
            : "M0");
  }
  return tsr_diags_errors(source->diags) == errors;
}

/* One kind of named thing: mesh, graph or switch descriptors. */
typedef struct {
  const char *field, *kind, *Kind;
  size_t count;
  const void *const *messages;
  size_t name_offset;
} named;

static const char *name_of(const named *all, size_t i) {
  const char *name;
  memcpy(&name, (const char *)all->messages[i] + all->name_offset, sizeof name);
  return tsr_mesh_is_empty(name) ? NULL : name;
}

static void check_unique(const tsr_mesh_source *source, const named *all) {
  for (size_t i = 0; i < all->count; i++) {
    const char *name = name_of(all, i);
    const void *message = all->messages[i];
    if (!name) {
      if (!tsr_places_is_damaged(source->places, message))
        tsr_diag_error(
            source->diags, tsr_mesh_place(source, message, NULL, 0),
            "%s descriptor %zu has no name", all->Kind, i + 1);
      continue;
    }
    for (size_t k = 0; k < i; k++) {
      if (!name_of(all, k) || strcmp(name_of(all, k), name)) continue;
      tsr_location first = tsr_mesh_place(source, all->messages[k], "name", 0);
      tsr_diag_error(
          source->diags, tsr_mesh_place(source, message, "name", 0),
          "%s descriptor name is not unique: '%s'", all->kind, name);
      tsr_diag_hint(source->diags, "first used at line %d", first.line);
      break;
    }
  }
}

static void check_names(const tsr_mesh_source *source) {
  const pb_root *root = source->root;
  named all[] = {
      {"mesh_descriptors", "mesh", "Mesh", root->n_mesh_descriptors,
       (const void *const *)root->mesh_descriptors, offsetof(pb_mesh, name)},
      {"graph_descriptors", "graph", "Graph", root->n_graph_descriptors,
       (const void *const *)root->graph_descriptors, offsetof(pb_graph, name)},
      {"switch_descriptors", "switch", "Switch", root->n_switch_descriptors,
       (const void *const *)root->switch_descriptors, offsetof(pb_switch, name)}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_unique(source, &all[i]);
}

/* `owner`'s field `channels`; `what` is how the message begins, `of` names the owner. */
static void check_channels(
    const tsr_mesh_source *source, const void *owner, const pb_channels *channels, const char *what,
    const char *of) {
  if (tsr_places_is_damaged(source->places, owner)) return;
  if (!channels) {
    tsr_diag_error(
        source->diags, tsr_mesh_place(source, owner, NULL, 0),
        "%s must be positive: %s has no channels", what, of);
    tsr_diag_hint(source->diags, "channels { count: 1 policy: RELAXED }");
    return;
  }
  if (tsr_places_is_damaged(source->places, channels)) return;
  if (channels->count <= 0)
    tsr_diag_error(
        source->diags, tsr_mesh_place(source, channels, "count", 0),
        "%s must be positive, not %d, in %s", what, channels->count, of);
  if (channels->has_policy && !channels->policy)
    tsr_diag_error(
        source->diags, tsr_mesh_place(source, channels, "policy", 0),
        "policy must be STRICT or RELAXED in %s", of);
}

static const char *shown(const char *name) { return tsr_mesh_is_empty(name) ? "?" : name; }

static void check_all_channels(const tsr_mesh_source *source) {
  for (size_t i = 0; i < tsr_mesh_blocks_count(source); i++) {
    tsr_mesh_block b = tsr_mesh_block_at(source, i);
    const char *of = tsr_arena_printf(source->arena, "%s descriptor '%s'", b.kind, shown(b.name));
    check_channels(source, b.message, b.channels, "channel count", of);
  }
  for (size_t i = 0; i < source->root->n_graph_descriptors; i++) {
    const pb_graph *g = source->root->graph_descriptors[i];
    const char *of = tsr_arena_printf(source->arena, "graph descriptor '%s'", shown(g->name));
    if (g->graph_topology)
      check_channels(
          source, g->graph_topology, g->graph_topology->channels, "graph topology channel count",
          of);
    for (size_t k = 0; k < g->n_connections; k++)
      check_channels(
          source, g->connections[k], g->connections[k]->channels, "connection channel count",
          tsr_arena_printf(source->arena, "connection %zu of %s", k + 1, of));
  }
}

static void check_arch(const tsr_mesh_source *source, size_t i, const tsr_mesh_block *first) {
  tsr_mesh_block b = tsr_mesh_block_at(source, i);
  if (tsr_places_is_damaged(source->places, b.message)) return;
  tsr_location location = tsr_mesh_place(source, b.message, "arch", 0);
  if (!b.has_arch || !b.arch) {
    tsr_diag_error(
        source->diags, location, "%s descriptor '%s' must have a valid architecture", b.kind,
        shown(b.name));
    tsr_diag_hint(source->diags, "valid: WORMHOLE_B0, BLACKHOLE, CPU, CUDA");
    return;
  }
  if (first->arch && b.arch != first->arch)
    tsr_diag_error(
        source->diags, location,
        "all mesh descriptors must have the same architecture: '%s' has %s, '%s' has %s",
        shown(b.name), tsr_mesh_arch_name((tsr_mesh_arch)b.arch), shown(first->name),
        tsr_mesh_arch_name((tsr_mesh_arch)first->arch));
  int dims_max = tsr_mesh_arch_dims_max(b.arch);
  if (b.devices && b.devices->n_dims > (size_t)dims_max)
    tsr_diag_error(
        source->diags, tsr_mesh_place(source, b.devices, "dims", (size_t)dims_max),
        "%s devices allow a maximum of %d dimensions, but %zu were provided",
        tsr_mesh_arch_name((tsr_mesh_arch)b.arch), dims_max, b.devices->n_dims);
}

static void check_graph_types(const tsr_mesh_source *source) {
  static const char *const taken[] = {"DEVICE", "MESH", "SWITCH"};
  for (size_t i = 0; i < source->root->n_graph_descriptors; i++) {
    const pb_graph *g = source->root->graph_descriptors[i];
    for (int k = 0; k < 3; k++)
      if (g->type && !strcmp(g->type, taken[k]))
        tsr_diag_error(
            source->diags, tsr_mesh_place(source, g, "type", 0),
            "graph type cannot be '%s': DEVICE, MESH and SWITCH are no graphs", taken[k]);
  }
}

bool tsr_mesh_check_names(const tsr_mesh_source *source) {
  int errors = tsr_diags_errors(source->diags);
  check_names(source);
  check_graph_types(source);
  check_all_channels(source);
  tsr_mesh_block first = {0};
  for (size_t i = 0; i < tsr_mesh_blocks_count(source); i++) {
    if (!first.arch) first = tsr_mesh_block_at(source, i);
    check_arch(source, i, &first);
  }
  return tsr_diags_errors(source->diags) == errors;
}
