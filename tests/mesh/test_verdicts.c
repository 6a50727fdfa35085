// SPDX-License-Identifier: Apache-2.0
/* Tenstorrent's real descriptors: each is accepted or refused as it must be, for the right reason.
 */
#include "mesh_test.h"
#include "mesh/mesh.h"

/* Those that are refused and what must be said; those that are accepted with notes. A file that is
 * not here is accepted without a word. */
static const struct {
  const char *name; /* without what comes before the last "__" and without .textproto */
  const char *says[3];
  bool is_accepted;
} verdicts[] = {
    {"ConnectionMustHaveAtLeastTwoNodes", {"at least two nodes"}, false},
    {"GraphMustHaveTypeSpecified", {"graph must have a type"}, false},
    {"InvalidGraphTopologyChannelCount", {"graph topology channel count"}, false},
    {"InvalidProtoArchitectureDimLimit", {"maximum of 2 dimensions, but 3"}, false},
    {"InvalidProtoDeviceHostDimSizeMismatch",
     {"device and host topology dims must be the same size"},
     false},
    {"InvalidProtoDimensionValidationFailures",
     {"Mesh descriptor 1 has no name", "maximum of 2 dimensions, but 3", "unknown field 'id'"},
     false},
    {"InvalidProtoExpressConnectionBounds",
     {"express connection source is out of bounds",
      "express connection destination is out of bounds"},
     false},
    {"InvalidProtoMixedArchitectures",
     {"all mesh descriptors must have the same architecture"},
     false},
    {"InvalidProtoNoMeshDescriptors",
     {"at least one mesh descriptor or switch descriptor", "unknown field 'id'"},
     false},
    {"ParsesFromTextProtoString_unknown_field", {"unknown field 'dfsdadf'"}, false},
    {"mgd2_syntax_check_mesh_graph_descriptor",
     {"note: the fabric allows at most one graph; here are 3",
      "note: the fabric needs graphs of type", "note: the fabric supports no express connections"},
     true}};

enum { VERDICTS = sizeof verdicts / sizeof *verdicts };
static int files_of[VERDICTS];

static void check_file(tsr_arena *arena, const char *folder, const char *file) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_mesh *mesh;
  bool ok = tsr_mesh_read(
      arena, tsr_arena_printf(arena, "%s/%s", folder, file), TSR_NOWHERE, &mesh, diags);
  char *said = printed(diags);
  bool is_known = false;
  for (int i = 0; i < VERDICTS; i++) {
    const char *name = tsr_arena_printf(arena, "__%s.textproto", verdicts[i].name);
    if (strlen(file) < strlen(name) || strcmp(file + strlen(file) - strlen(name), name)) continue;
    is_known = true;
    files_of[i]++;
    CHECK_AT(ok == verdicts[i].is_accepted, "%s: accepted %d\n%s", file, ok, said);
    for (int k = 0; k < 3 && verdicts[i].says[k]; k++)
      CHECK_AT(
          strstr(said, verdicts[i].says[k]), "%s: no '%s' in\n%s", file, verdicts[i].says[k], said);
  }
  if (!is_known) CHECK_AT(ok && !*said, "%s: accepted %d\n%s", file, ok, said);
  if (ok && strstr(file, "DegenerateSwitch")) CHECK(mesh->is_switch_only && !mesh->devices);
  if (ok && strstr(file, "bh_lb_1x8_dual_rank")) CHECK_INT(mesh->hosts, 2);
  if (ok && strstr(file, "bh_glx_split_4x2")) CHECK_INT(mesh->meshes, 48);
  if (ok && strstr(file, "express_links_8x4")) CHECK_INT(mesh->shape.express_links, 4);
  free(said);
}

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  const char *folder = real_descriptors(arena);
  struct dirent **entries;
  if (!folder) {
    printf("mesh.verdicts: skipped, there are no real descriptors\n");
    tsr_arena_free(arena);
    return 77; /* skipped, for ctest and meson */
  }
  int count = scandir(folder, &entries, keep_all, alphasort);
  for (int i = 0; i < count; i++) {
    check_file(arena, folder, entries[i]->d_name);
    free(entries[i]);
  }
  free(entries);
  for (int i = 0; i < VERDICTS; i++)
    CHECK_AT(files_of[i] > 0, "there is no file of '%s'", verdicts[i].name);
  tsr_arena_free(arena);
  return check_done("mesh.verdicts");
}
