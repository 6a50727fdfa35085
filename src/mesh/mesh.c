// SPDX-License-Identifier: Apache-2.0
#include "mesh/mesh_internal.h"
#include "base/file_read.h"
#include <assert.h>
#include <string.h>

enum { FILE_BYTES_MAX = 16 << 20 };

const char *tsr_mesh_policy_name(tsr_mesh_policy policy) {
  return policy == TSR_MESH_STRICT ? "STRICT" : "RELAXED";
}

const char *tsr_mesh_dims_text(tsr_arena *arena, const int *dims, int ndim) {
  const char *text = tsr_arena_printf(arena, "%d", dims[0]);
  for (int i = 1; i < ndim; i++) text = tsr_arena_printf(arena, "%s × %d", text, dims[i]);
  return text;
}

tsr_mesh *tsr_mesh_make(tsr_arena *arena, tsr_mesh_arch arch, const int *dims, int ndim) {
  assert(ndim >= 1 && ndim <= tsr_mesh_arch_dims_max((int)arch));
  tsr_mesh *mesh = tsr_arena_alloc(arena, sizeof *mesh);
  tsr_mesh_shape shape = {
      .name = tsr_mesh_arch_name(arch),
      .arch = arch,
      .ndim = ndim,
      .devices = 1,
      .hosts = 1,
      .channels = {1, TSR_MESH_RELAXED}};
  for (int i = 0; i < ndim; i++) {
    assert(dims[i] > 0);
    shape.dims[i] = dims[i];
    shape.host_dims[i] = 1;
    shape.dim_types[i] = TSR_MESH_RING;
    shape.devices *= dims[i];
  }
  *mesh = (tsr_mesh){
      .shape = shape,
      .is_uniform = true,
      .meshes = 1,
      .devices = shape.devices,
      .hosts = 1,
      .instances_count = 1};
  tsr_mesh_instance *instance = tsr_arena_alloc(arena, sizeof *instance);
  *instance = (tsr_mesh_instance){
      .kind = TSR_MESH_IS_MESH, .descriptor = shape.name, .parent = -1, .shape = &mesh->shape};
  mesh->instances = instance;
  return mesh;
}

tsr_mesh *tsr_mesh_make_cpu(tsr_arena *arena, const int *dims, int ndim) {
  return tsr_mesh_make(arena, TSR_ARCH_CPU, dims, ndim);
}

/* "…" by its last letters; the YAML form of MGD 1.0 is a mistake worth its own words. */
static bool has_ending(const char *path, const char *ending) {
  size_t length = strlen(path), tail = strlen(ending);
  return length > tail && !strcmp(path + length - tail, ending);
}

bool tsr_mesh_read(
    tsr_arena *arena, const char *file, tsr_location location, tsr_mesh **ret_mesh,
    tsr_diags *diags) {
  if (!has_ending(file, ".textproto") && !has_ending(file, ".txtpb")) {
    tsr_diag_error(diags, location, "a mesh descriptor's name ends in .textproto, not '%s'", file);
    if (has_ending(file, ".yaml") || has_ending(file, ".yml"))
      tsr_diag_hint(
          diags,
          "the YAML form of mesh graph descriptors (1.0) is gone; convert it to a textproto");
    return false;
  }
  char *text;
  size_t length;
  if (!tsr_file_read(arena, file, FILE_BYTES_MAX, location, &text, &length, diags)) return false;
  return tsr_mesh_parse(arena, file, text, length, ret_mesh, diags);
}

bool tsr_mesh_parse(
    tsr_arena *arena, const char *file, const char *text, size_t length, tsr_mesh **ret_mesh,
    tsr_diags *diags) {
  *ret_mesh = NULL;
  file = tsr_arena_strdup(arena, file);
  tsr_diags_source(diags, file, text, length);
  tsr_places *places = tsr_places_new(arena);
  ProtobufCMessage *message;
  bool ok = tsr_textproto_read(
      arena, file, text, length, &tt__tt_fabric__proto__mesh_graph_descriptor__descriptor, &message,
      places, diags);
  if (!message) return false;
  tsr_mesh_source source = {
      .arena = arena,
      .file = file,
      .root = (const pb_root *)message,
      .places = places,
      .diags = diags};
  if (!tsr_mesh_check_structure(&source) || !tsr_mesh_check_names(&source)) return false;
  bool sound = tsr_mesh_check_topology(&source);
  sound &= tsr_mesh_check_pinnings(&source);
  tsr_mesh *mesh = tsr_arena_alloc(arena, sizeof *mesh);
  mesh->file = file;
  /* After a mistake in the text a reference may only seem to lead nowhere. */
  if (!ok || !sound || !tsr_mesh_build(&source, mesh) || !tsr_mesh_check_pinned(&source, mesh))
    return false;
  tsr_mesh_note_fabric(&source, mesh);
  *ret_mesh = mesh;
  return true;
}
