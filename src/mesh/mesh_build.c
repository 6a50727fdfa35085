// SPDX-License-Identifier: Apache-2.0
/* From the checked text to what exists: shapes, instances and connections. A reference that leads
 * nowhere is an error at its place. */
#include "mesh/mesh_internal.h"
#include <assert.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  int id, instance;
} child;

typedef struct {
  const tsr_mesh_source *source;
  tsr_mesh_shape *shapes; /* by block */
  tsr_mesh_instance *instances;
  tsr_mesh_connection *connections;
  int instances_count, instances_capacity, connections_count, connections_capacity;
} builder;

/* One graph that is being built: its children sorted by id. */
typedef struct {
  const pb_graph *graph;
  int instance;
  child *children;
  int count;
} level;

static bool build_instance(builder *b, const pb_node *node, int parent, int depth);

/* ---- shapes ---------------------------------------------------------------------------------- */

static bool is_ring(const tsr_mesh_block *block, int dim) {
  return (size_t)dim < block->devices->n_dim_types &&
         (int)block->devices->dim_types[dim] == TSR_MESH_RING;
}

static int64_t express_links(const tsr_mesh_block *block, int64_t devices) {
  int64_t links = (int64_t)block->express_count;
  for (size_t i = 0; i < block->express_links_count; i++) {
    const pb_express_links *e = block->express_links[i];
    int length = block->devices->dims[e->dim_idx];
    /* One block after another from `start` on, as many as end on the axis; with `wrap`, which is
     * the axis's own type if it is not given, also the one that crosses its end. */
    int64_t along = (length - e->pattern->start) / e->pattern->step;
    bool wraps = e->has_wrap ? (int)e->wrap == TSR_MESH_RING : is_ring(block, e->dim_idx);
    if (wraps) along = length / e->pattern->step;
    links += along * (devices / length);
  }
  return links;
}

static tsr_mesh_shape shape_of(const tsr_mesh_source *source, const tsr_mesh_block *block) {
  tsr_mesh_shape shape = {
      .name = block->name,
      .arch = (tsr_mesh_arch)block->arch,
      .ndim = (int)block->devices->n_dims,
      .devices = 1,
      .hosts = 1,
      .channels = tsr_mesh_channels_of(
          block->channels, block->has_hosts_field ? TSR_MESH_RELAXED : TSR_MESH_STRICT),
      .location = tsr_mesh_place(source, block->message, "device_topology", 0)};
  assert(shape.ndim >= 1 && shape.ndim <= TSR_MESH_DIMS_MAX);
  for (int i = 0; i < shape.ndim; i++) {
    shape.dims[i] = block->devices->dims[i];
    shape.host_dims[i] = block->hosts ? block->hosts->dims[i] : 1;
    shape.dim_types[i] = (size_t)i < block->devices->n_dim_types
                             ? (tsr_mesh_dim_type)block->devices->dim_types[i]
                             : TSR_MESH_LINE;
    shape.devices *= shape.dims[i];
    shape.hosts *= shape.host_dims[i];
  }
  shape.express_links = express_links(block, shape.devices);
  return shape;
}

/* ---- instances ------------------------------------------------------------------------------- */

/* The fields of a node of any kind. */
typedef struct {
  tsr_mesh_kind kind;
  const char *word, *field, *id_field; /* "mesh", "mesh_descriptor", "mesh_id" */
  const void *message;
  const char *descriptor; /* "" when missing */
  int id;
  bool has_device;
  int device;
  const pb_node *sub;
} reference;

static bool read_reference(const builder *b, const pb_node *node, reference *ret_reference) {
  reference r = {0};
  int kind = (int)node->node_case;
  if (kind == PB_NODE_MESH)
    r = (reference){
        TSR_MESH_IS_MESH,
        "mesh",
        "mesh_descriptor",
        "mesh_id",
        node->mesh,
        node->mesh->mesh_descriptor,
        node->mesh->mesh_id,
        node->mesh->has_device_id,
        node->mesh->device_id,
        NULL};
  else if (kind == PB_NODE_SWITCH)
    r = (reference){
        TSR_MESH_IS_SWITCH,
        "switch",
        "switch_descriptor",
        "switch_id",
        node->switch_,
        node->switch_->switch_descriptor,
        node->switch_->switch_id,
        node->switch_->has_device_id,
        node->switch_->device_id,
        NULL};
  else if (kind == PB_NODE_GRAPH)
    r = (reference){
        TSR_MESH_IS_GRAPH,
        "graph",
        "graph_descriptor",
        "graph_id",
        node->graph,
        node->graph->graph_descriptor,
        node->graph->graph_id,
        false,
        0,
        node->graph->sub_ref};
  else
    return tsr_diag_error(
        b->source->diags, tsr_mesh_place(b->source, node, NULL, 0),
        "invalid node: neither mesh, switch, nor graph set");
  if (!r.descriptor) r.descriptor = "";
  if (r.id < 0)
    return tsr_diag_error(
        b->source->diags, tsr_mesh_place(b->source, r.message, r.id_field, 0),
        "%s must not be negative, but is %d", r.id_field, r.id);
  *ret_reference = r;
  return true;
}

/* The index of the descriptor of that kind and name, or -1 after an error. */
static int find_descriptor(const builder *b, const reference *r) {
  const pb_root *root = b->source->root;
  size_t from = 0, to = root->n_graph_descriptors, count = 0;
  if (r->kind == TSR_MESH_IS_MESH) to = root->n_mesh_descriptors;
  if (r->kind == TSR_MESH_IS_SWITCH)
    from = root->n_mesh_descriptors, to = tsr_mesh_blocks_count(b->source);
  const char **names = tsr_arena_array(b->source->arena, const char *, to - from + 1);
  for (size_t i = from; i < to; i++) {
    const char *name = r->kind == TSR_MESH_IS_GRAPH ? root->graph_descriptors[i]->name
                                                    : tsr_mesh_block_at(b->source, i).name;
    if (!strcmp(name, r->descriptor)) return (int)i;
    names[count++] = name;
  }
  tsr_location location = tsr_mesh_place(b->source, r->message, r->field, 0);
  if (!*r->descriptor) tsr_diag_error(b->source->diags, location, "%s is missing", r->field);
  else
    tsr_diag_error(
        b->source->diags, location, "%s descriptor '%s' not found", r->word, r->descriptor);
  tsr_diag_nearest(b->source->diags, r->descriptor, names, (int)count);
  return -1;
}

static int add_instance(builder *b, const tsr_mesh_instance *instance) {
  void *items = b->instances;
  tsr_arena_grow(
      b->source->arena, &items, sizeof *b->instances, b->instances_count, &b->instances_capacity);
  b->instances = items;
  b->instances[b->instances_count] = *instance;
  return b->instances_count++;
}

static int compare_children(const void *a, const void *b) {
  const child *x = a, *y = b;
  return x->id != y->id ? (x->id < y->id ? -1 : 1) : x->instance - y->instance;
}

/* The direct children of `instance`, which were added behind it. */
static bool collect_children(builder *b, level *l) {
  int count = 0;
  l->children = tsr_arena_array(b->source->arena, child, l->graph->n_instances);
  for (int i = l->instance + 1; i < b->instances_count; i++)
    if (b->instances[i].parent == l->instance)
      l->children[count++] = (child){b->instances[i].id, i};
  l->count = count;
  qsort(l->children, (size_t)count, sizeof *l->children, compare_children);
  bool ok = true;
  for (int i = 1; i < count; i++)
    if (l->children[i].id == l->children[i - 1].id)
      ok = tsr_diag_error(
          b->source->diags, b->instances[l->children[i].instance].location,
          "graph instance id %d already exists in graph '%s'", l->children[i].id, l->graph->name);
  return ok;
}

/* Types must differ on the way up, which also keeps a graph from containing itself; and child
 * graphs of one graph share theirs. */
static bool check_type(const builder *b, const pb_graph *graph, int parent, tsr_location location) {
  for (int at = parent; at >= 0; at = b->instances[at].parent)
    if (!strcmp(b->instances[at].type, graph->type))
      return tsr_diag_error(
          b->source->diags, location, "graph type '%s' of '%s' already exists above it, in '%s'",
          graph->type, graph->name, b->instances[at].descriptor);
  if (parent < 0) return true;
  for (int i = b->instances_count - 1; i > parent; i--) {
    const tsr_mesh_instance *other = &b->instances[i];
    if (other->parent != parent || other->kind != TSR_MESH_IS_GRAPH) continue;
    if (!strcmp(other->type, graph->type)) return true;
    return tsr_diag_error(
        b->source->diags, location,
        "child graphs of one graph must have the same type: '%s' has '%s', '%s' has '%s'",
        graph->name, graph->type, other->descriptor, other->type);
  }
  return true;
}

/* ---- connections ----------------------------------------------------------------------------- */

static bool
add_connection(builder *b, const tsr_mesh_connection *connection, tsr_location location) {
  if (b->connections_count == TSR_MESH_CONNECTIONS_MAX)
    return tsr_diag_error(
        b->source->diags, location, "more than %d connections", TSR_MESH_CONNECTIONS_MAX);
  void *items = b->connections;
  tsr_arena_grow(
      b->source->arena, &items, sizeof *b->connections, b->connections_count,
      &b->connections_capacity);
  b->connections = items;
  b->connections[b->connections_count++] = *connection;
  return true;
}

static bool add_topology(builder *b, const level *l) {
  const tsr_location location = tsr_mesh_place(b->source, l->graph, "graph_topology", 0);
  tsr_mesh_connection c = {
      .from_device = -1,
      .to_device = -1,
      .channels = tsr_mesh_channels_of(l->graph->graph_topology->channels, TSR_MESH_STRICT),
      .assign_z_direction = l->graph->graph_topology->assign_z_direction};
  bool is_ring = (int)l->graph->graph_topology->layout_type == PB_RING;
  for (int i = 0; i < l->count; i++) {
    /* A ring of two has one connection; every pair meets once in ALL_TO_ALL. */
    int stop = is_ring ? i + 1 + (l->count > 2 || i == 0) : l->count;
    for (int k = i + 1; k < stop && l->count > 1; k++) {
      c.from = l->children[i].instance;
      c.to = l->children[k % l->count].instance;
      if (!add_connection(b, &c, location)) return false;
    }
  }
  return true;
}

static int find_child(const builder *b, int parent, const level *l, int id) {
  if (l) {
    child *found, *end = l->children + l->count;
    int low = 0, high = l->count;
    while (low < high) {
      int middle = (low + high) / 2;
      if (l->children[middle].id < id) low = middle + 1;
      else high = middle;
    }
    found = l->children + low;
    return found < end && found->id == id ? found->instance : -1;
  }
  for (int i = parent + 1;
       i < b->instances_count && b->instances[i].depth > b->instances[parent].depth; i++)
    if (b->instances[i].parent == parent && b->instances[i].id == id) return i;
  return -1;
}

/* The instance (and device) that a connection's node names, from the graph `parent` down. */
static bool resolve(
    const builder *b, int parent, const level *l, const pb_node *node, int *ret_instance,
    int *ret_device) {
  reference r;
  if (!read_reference(b, node, &r)) return false;
  tsr_location location = tsr_mesh_place(b->source, r.message, r.id_field, 0);
  int at = find_child(b, parent, l, r.id);
  if (at < 0)
    return tsr_diag_error(
        b->source->diags, location, "%s id %d not found in graph '%s'", r.word, r.id,
        b->instances[parent].descriptor);
  const tsr_mesh_instance *found = &b->instances[at];
  if (found->kind != r.kind || strcmp(found->descriptor, r.descriptor)) {
    static const char *const words[] = {"mesh", "switch", "graph"};
    return tsr_diag_error(
        b->source->diags, tsr_mesh_place(b->source, r.message, r.field, 0),
        "%s '%s' does not match referenced instance: id %d in graph '%s' is %s '%s'", r.word,
        r.descriptor, r.id, b->instances[parent].descriptor, words[found->kind], found->descriptor);
  }
  if (r.sub) return resolve(b, at, NULL, r.sub, ret_instance, ret_device);
  if (r.has_device && (r.device < 0 || r.device >= found->shape->devices))
    return tsr_diag_error(
        b->source->diags, tsr_mesh_place(b->source, r.message, "device_id", 0),
        "device id %d not found: %s '%s' has devices 0 to %lld", r.device, r.word, r.descriptor,
        (long long)found->shape->devices - 1);
  *ret_instance = at;
  *ret_device = r.has_device ? r.device : -1;
  return true;
}

static bool check_directional(const builder *b, const pb_connection *c) {
  if (!c->directional) return true;
  tsr_diag_error(
      b->source->diags, tsr_mesh_place(b->source, c, "directional", 0),
      "a connection cannot be directional: only one of its two directions would exist");
  tsr_diag_hint(b->source->diags, "leave it out, or write directional: false");
  return false;
}

/* Every pair of its nodes. */
static bool add_explicit(builder *b, const level *l, const pb_connection *c) {
  bool ok = check_directional(b, c);
  int *at = tsr_arena_array(b->source->arena, int, 2 * c->n_nodes);
  for (size_t i = 0; i < c->n_nodes; i++)
    ok &= resolve(b, l->instance, l, c->nodes[i], &at[2 * i], &at[2 * i + 1]);
  if (!ok) return false;
  tsr_location location = tsr_mesh_place(b->source, c, NULL, 0);
  tsr_mesh_channels channels = tsr_mesh_channels_of(c->channels, TSR_MESH_STRICT);
  for (size_t i = 1; i < c->n_nodes; i++)
    if ((b->instances[at[2 * i]].kind == TSR_MESH_IS_GRAPH) !=
        (b->instances[at[0]].kind == TSR_MESH_IS_GRAPH))
      return tsr_diag_error(
          b->source->diags, tsr_mesh_place(b->source, c->nodes[i], NULL, 0),
          "the nodes of a connection must be of one kind: a graph cannot meet a mesh or switch");
  for (size_t i = 0; i < c->n_nodes; i++)
    for (size_t k = i + 1; k < c->n_nodes; k++) {
      tsr_mesh_connection add = {at[2 * i],     at[2 * k], at[2 * i + 1],
                                 at[2 * k + 1], channels,  c->assign_z_direction};
      if (!add_connection(b, &add, location)) return false;
    }
  return true;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static bool build_graph(builder *b, const pb_graph *graph, int instance, int depth) {
  bool ok = true;
  for (size_t i = 0; i < graph->n_instances; i++) {
    ok &= build_instance(b, graph->instances[i], instance, depth + 1);
    if (b->instances_count > TSR_MESH_INSTANCES_MAX) return false;
  }
  level l = {.graph = graph, .instance = instance};
  if (!ok || !collect_children(b, &l)) return false;
  if (graph->graph_topology) ok = add_topology(b, &l);
  for (size_t i = 0; i < graph->n_connections; i++)
    ok &= add_explicit(b, &l, graph->connections[i]);
  return ok;
}

static bool build_instance(builder *b, const pb_node *node, int parent, int depth) {
  reference r;
  if (!read_reference(b, node, &r)) return false;
  int index = find_descriptor(b, &r);
  if (index < 0) return false;
  tsr_mesh_instance instance = {
      .kind = r.kind,
      .id = r.id,
      .parent = parent,
      .depth = depth,
      .location = tsr_mesh_place(b->source, r.message, r.id_field, 0)};
  const pb_graph *graph = NULL;
  if (r.kind == TSR_MESH_IS_GRAPH) {
    graph = b->source->root->graph_descriptors[index];
    instance.descriptor = graph->name;
    instance.type = graph->type;
    if (!check_type(b, graph, parent, tsr_mesh_place(b->source, r.message, r.field, 0)))
      return false;
  } else {
    instance.shape = &b->shapes[index];
    instance.descriptor = instance.shape->name;
  }
  int at = add_instance(b, &instance);
  if (b->instances_count == TSR_MESH_INSTANCES_MAX + 1)
    return tsr_diag_error(
        b->source->diags, instance.location, "more than %d instances", TSR_MESH_INSTANCES_MAX);
  return !graph || build_graph(b, graph, at, depth);
}

static bool same_shape(const tsr_mesh_shape *a, const tsr_mesh_shape *b) {
  return a->ndim == b->ndim && !memcmp(a->dims, b->dims, sizeof a->dims) &&
         !memcmp(a->dim_types, b->dim_types, sizeof a->dim_types);
}

static void summarise(const builder *b, tsr_mesh *mesh) {
  const tsr_mesh_shape *first = NULL;
  mesh->is_switch_only = mesh->is_uniform = true;
  for (int i = 0; i < b->instances_count; i++) {
    const tsr_mesh_instance *instance = &b->instances[i];
    if (!instance->shape) continue;
    bool is_mesh = instance->kind == TSR_MESH_IS_MESH;
    if (!first || (is_mesh && mesh->is_switch_only)) first = instance->shape;
    if (!is_mesh) continue;
    mesh->is_switch_only = false;
    mesh->is_uniform &= same_shape(first, instance->shape);
    mesh->meshes++;
    mesh->devices += instance->shape->devices;
    mesh->hosts += instance->shape->hosts;
  }
  mesh->shape = *first; /* every graph has an instance, so the recursion ends in a mesh or switch */
}

bool tsr_mesh_build(const tsr_mesh_source *source, tsr_mesh *mesh) {
  size_t blocks = tsr_mesh_blocks_count(source);
  builder b = {.source = source, .shapes = tsr_arena_array(source->arena, tsr_mesh_shape, blocks)};
  for (size_t i = 0; i < blocks; i++) {
    tsr_mesh_block block = tsr_mesh_block_at(source, i);
    b.shapes[i] = shape_of(source, &block);
  }
  if (!build_instance(&b, source->root->top_level_instance, -1, 0)) return false;
  mesh->instances = b.instances;
  mesh->instances_count = b.instances_count;
  mesh->connections = b.connections;
  mesh->connections_count = b.connections_count;
  summarise(&b, mesh);
  return true;
}
