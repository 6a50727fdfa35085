// SPDX-License-Identifier: Apache-2.0
/* Every shipped model compiles into a training program, and what `check` counts are the parameters
 * that its file promises. */
#include "base/file_read.h"
#include "device/cpu/cpu.h"
#include "plan/plan.h"
#include "tests/check.h"
#include "train/compile.h"
#include <dirent.h>
#include <stdlib.h>

enum { CHARACTERS = 65 };

static int64_t promised(tsr_arena *arena, const char *path, tsr_diags *diags) {
  char *text;
  size_t length;
  if (!tsr_file_read(arena, path, 1 << 20, TSR_NOWHERE, &text, &length, diags)) return 0;
  const char *mark = strstr(text, "# parameters: ");
  return mark ? atoll(mark + strlen("# parameters: ")) : 0;
}

static bool
compile(tsr_arena *arena, const tsr_config *config, tsr_compiled *ret, tsr_diags *diags) {
  tsr_parallel *parallel;
  tsr_mesh *mesh = tsr_mesh_make_cpu(arena, (int[]){1}, 1);
  tsr_cpu_context device = {tsr_kernels_get(NULL), 1};
  tsr_compile_options o = {
      .config = config, .vocab_detected = CHARACTERS, .target = tsr_cpu_target(&device)};
  if (!tsr_parallel_make(arena, config, mesh, &parallel, diags) ||
      !tsr_parallel_units(parallel, config, &o.batch_units, &o.tp_units, diags))
    return false;
  o.parallel = parallel;
  o.graphs_folder = TSR_SOURCE_ROOT "/configs/graphs";
  return tsr_compile(arena, &o, TSR_COMPILE_TRAIN, ret, diags);
}

static void check_model(const char *file) {
  static const tsr_set sets[] = {
      {"training_config.batch_size=1"},
      {"training_config.sequence_length=8"},
      {"training_config.eval_every=0"}};
  tsr_arena *arena = tsr_arena_new();
  tsr_diags *diags = tsr_diags_new(arena);
  const char *path = tsr_arena_printf(arena, TSR_SOURCE_ROOT "/configs/models/%s", file);
  tsr_config *config;
  tsr_compiled compiled;
  tsr_plan plan = {0};
  bool ok = tsr_config_load(arena, path, sets, 3, &config, diags) &&
            compile(arena, config, &compiled, diags);
  if (ok) tsr_plan_make(compiled.programs.of_stage[0], &plan);
  tsr_diags_print(diags, stderr);
  CHECK_AT(ok, "%s does not compile", file);
  int64_t want = promised(arena, path, diags);
  CHECK_AT(want > 0, "%s does not say '# parameters: N'", file);
  CHECK_AT(
      plan.parameters == want, "%s has %lld parameters, not %lld", file, (long long)plan.parameters,
      (long long)want);
  tsr_arena_free(arena);
}

int main(void) {
  DIR *folder = opendir(TSR_SOURCE_ROOT "/configs/models");
  CHECK(folder != NULL);
  int count = 0;
  for (struct dirent *e; folder && (e = readdir(folder));) {
    size_t length = strlen(e->d_name);
    if (length < 6 || strcmp(e->d_name + length - 5, ".yaml")) continue;
    check_model(e->d_name);
    count++;
  }
  if (folder) closedir(folder);
  CHECK_AT(count >= 20, "only %d models", count);
  return check_done("reference.models");
}
