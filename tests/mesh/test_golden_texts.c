// SPDX-License-Identifier: Apache-2.0
/* The golden cases tests/golden/mesh_…, read by the library alone: what the reader prints is
 * exactly what the whole program must print on its standard error. */
#include "mesh_test.h"
#include "mesh/mesh.h"
#include <unistd.h>

/* A case has no file for an empty stream or for exit code 0. */
static const char *read_expectation(tsr_arena *arena, const char *file) {
  char *text = "";
  size_t length;
  tsr_diags *diags = tsr_diags_new(arena);
  CHECK(
      !tsr_file_exists(file) ||
      tsr_file_read(arena, file, 1 << 20, TSR_NOWHERE, &text, &length, diags));
  return text;
}

static void check_case(tsr_arena *arena, const char *folder) {
  if (chdir(folder)) perror(folder), exit(2);
  tsr_diags *diags = tsr_diags_new(arena);
  const char *expected = read_expectation(arena, "stderr"), *code = read_expectation(arena, "exit");
  tsr_mesh *mesh;
  tsr_mesh_read(arena, "input.textproto", TSR_NOWHERE, &mesh, diags);
  CHECK_AT(
      tsr_diags_exit_code(diags) == atoi(code), "%s: exit %d", folder, tsr_diags_exit_code(diags));
  char *said = printed(diags);
  CHECK_AT(!strcmp(said, expected), "%s: said\n%s\nnot\n%s", folder, said, expected);
  free(said);
}

int main(void) {
  tsr_arena *arena = tsr_arena_new();
  struct dirent **entries;
  int count = scandir(TSR_SOURCE_ROOT "/tests/golden", &entries, keep_all, alphasort), cases = 0;
  for (int i = 0; i < count; i++) {
    const char *name = entries[i]->d_name;
    const char *folder = tsr_arena_printf(arena, TSR_SOURCE_ROOT "/tests/golden/%s", name);
    bool is_ours = !strncmp(name, "mesh_", 5) &&
                   tsr_file_exists(tsr_arena_printf(arena, "%s/input.textproto", folder));
    if (is_ours) check_case(arena, folder);
    cases += is_ours;
    free(entries[i]);
  }
  free(entries);
  CHECK(cases >= 20);
  tsr_arena_free(arena);
  return check_done("mesh.golden_texts");
}
