// SPDX-License-Identifier: Apache-2.0
/* Fused tasks, but for the classifier's, raise the peak of WORK for no shipped run, and do the work
 * of their parts: every stage's program for a CUDA target is compared with the same program without
 * fused tasks. The classifier's saves logits. */
#include "config/config.h"
#include "device/cpu/cpu.h"
#include "device/cuda/plugin_abi.h"
#include "mesh/mesh.h"
#include "plan/plan.h"
#include "tests/check.h"
#include "train/compile.h"
#include <dirent.h>
#include <math.h>
#include <string.h>

enum { CHARACTERS = 65 };

static bool compile(
    tsr_arena *arena, const char *file, const tsr_set *keys, int keys_count,
    const tsr_target *target, tsr_compiled *ret) {
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_config *config;
  tsr_parallel *parallel;
  tsr_compile_options o = {.vocab_detected = CHARACTERS, .vocab_assumed = CHARACTERS};
  static const int one = 1;
  if (!tsr_config_load(arena, file, keys, keys_count, &config, diags)) return false;
  const tsr_config_device *d = &config->device;
  tsr_mesh *mesh = tsr_mesh_make_cpu(
      arena, d->mesh_ndim ? d->mesh_shape : &one, d->mesh_ndim ? d->mesh_ndim : 1);
  if (!tsr_parallel_make(arena, config, mesh, &parallel, diags) ||
      !tsr_parallel_units(parallel, config, &o.batch_units, &o.tp_units, diags))
    return tsr_diags_print(diags, stderr), false;
  o.config = config;
  o.parallel = parallel;
  o.graphs_folder = TSR_SOURCE_ROOT "/configs/graphs";
  o.target = *target;
  bool ok = tsr_compile(arena, &o, TSR_COMPILE_TRAIN, ret, diags);
  if (!ok) tsr_diags_print(diags, stderr);
  return ok;
}

/* Bytes of WORK that are alive at its fullest; what lies between them is the allocator's matter. */
static int64_t live_peak(const tsr_program *p) {
  int64_t sum = 0;
  for (int use = 0; use < TSR_USES; use++) sum += p->peak_bytes[use];
  return sum;
}

static void check_run(const char *file, int *fused) {
  tsr_arena *arena = tsr_arena_new();
  tsr_cpu_context cpu = {tsr_kernels_get("x86-64"), 1};
  tsr_target targets[2] = {tsr_cpu_target(&cpu)};
  tsr_compiled compiled[2] = {{0}};
  targets[1] = targets[0];
  targets[0].fuses = 0;
  targets[1].epilogues =
      TSR_EPILOGUE_BIAS | TSR_EPILOGUE_RESIDUAL | TSR_EPILOGUE_GELU | TSR_EPILOGUE_HALF;
  for (int form = 1; form < TSR_FUSED_FORMS; form++) targets[1].fuses |= 1u << form;
  targets[1].fuses &= ~(1u << TSR_FUSED_LOGITS_GRADIENT); /* only a GPU knows its scratch */
  /* It computes the gradient of the classifier's weight, which a task of its own may delay: of few
   * rows this saves more than logits in tiles do. */
  targets[1].fuses &= ~(1u << TSR_FUSED_LINEAR_CROSS_ENTROPY);
  for (int i = 0; i < 2; i++)
    if (!compile(arena, file, NULL, 0, &targets[i], &compiled[i])) CHECK_AT(false, "%s", file);
  for (int s = 0; compiled[1].placed && s < compiled[1].programs.pipeline->stages; s++) {
    const tsr_program *plain = compiled[0].programs.of_stage[s],
                      *p = compiled[1].programs.of_stage[s];
    tsr_plan plans[2];
    tsr_plan_make(plain, &plans[0]);
    tsr_plan_make(p, &plans[1]);
    CHECK_AT(
        fabs(plans[1].flops - plans[0].flops) <= 1e-9 * plans[0].flops,
        "%s, stage %d: %.9g FLOP, not %.9g", file, s, plans[1].flops, plans[0].flops);
    for (int i = 0; i < p->tasks_count; i++) *fused += p->tasks[i].fused != TSR_FUSED_NONE;
    CHECK_AT(
        live_peak(p) <= live_peak(plain), "%s, stage %d: %lld, not %lld", file, s,
        (long long)live_peak(p), (long long)live_peak(plain));
  }
  tsr_arena_free(arena);
}

/* On a GPU a GPT-2 124M of 4 x 1,024 tokens has no memory for the logits of half of its rows, nor
 * for their gradient in bf16. */
static void check_classifier(void) {
  static const tsr_set keys[] = {
      {.text = "training_config.batch_size=4"},
      {.text = "training_config.sequence_length=1024"},
      {.text = "training_config.precision=bf16"}};
  static const char file[] = TSR_SOURCE_ROOT "/configs/runs/bench_gpt2_124m.yaml";
  tsr_arena *arena = tsr_arena_new();
  tsr_cpu_context cpu = {tsr_kernels_get("x86-64"), 1};
  tsr_target host = tsr_cpu_target(&cpu), target = tsr_cuda_target(&host, false, false);
  tsr_compiled tiles = {0}, whole = {0};
  bool ok = compile(arena, file, keys, 3, &target, &tiles);
  target.fuses &= ~(1u << TSR_FUSED_LINEAR_CROSS_ENTROPY);
  ok = ok && compile(arena, file, keys, 3, &target, &whole);
  CHECK_AT(ok, "%s", file);
  int64_t less = ok ? whole.programs.of_stage[0]->bytes[TSR_SEGMENT_WORK] -
                          tiles.programs.of_stage[0]->bytes[TSR_SEGMENT_WORK]
                    : 0;
  int64_t logits = 2048 * 50304; /* 50,257 columns in a multiple of 128 */
  CHECK_AT(less >= logits * (4 + 2) * 99 / 100, "%lld bytes less", (long long)less);
  tsr_arena_free(arena);
}

int main(void) {
  static const char folder[] = TSR_SOURCE_ROOT "/configs/runs";
  DIR *runs = opendir(folder);
  int fused = 0;
  if (!runs) return perror(folder), 1;
  for (struct dirent *e; (e = readdir(runs));) {
    char path[4096];
    if (!strstr(e->d_name, ".yaml")) continue;
    snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    check_run(path, &fused);
  }
  closedir(runs);
  check_classifier();
  CHECK(fused > 100);
  return check_done("train.fused_memory");
}
