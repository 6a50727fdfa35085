// SPDX-License-Identifier: Apache-2.0
/* The lines that a run prints before its first step. */
#include "parallel/rules.h"
#include <string.h>
#include <ctype.h>

static void context_add(const tsr_parallel *p, tsr_text *text) {
  tsr_text_add(text, "ParallelismContext: ");
  for (int dim = 0; dim < p->ndim; dim++) {
    const char *name = tsr_axis_name(p->axis_of_dim[dim]);
    tsr_text_add(
        text, "%s%c%c axis %d (size %d)", dim ? ", " : "", toupper(name[0]), toupper(name[1]), dim,
        p->size[p->axis_of_dim[dim]]);
  }
  tsr_text_add(text, "%s\n", p->ndim ? "" : "a single rank, no axes");
}

static void parameters_add(const tsr_parallel *p, const tsr_config *config, tsr_text *text) {
  tsr_text_add(text, "parameters: ");
  if (p->size[TSR_TP] > 1) tsr_text_add(text, "sharded over tp = %d, ", p->size[TSR_TP]);
  if (p->size[TSR_PP] > 1) tsr_text_add(text, "in pp = %d stages, ", p->size[TSR_PP]);
  if (p->fsdp) tsr_text_add(text, "sharded over fsdp = %d, ", p->fsdp_size);
  if (config->zero.stage && !p->fsdp && p->size[TSR_DP] > 1)
    tsr_text_add(
        text, "sharded by ZeRO %d over dp = %d\n", (int)config->zero.stage, p->size[TSR_DP]);
  else tsr_text_add(text, "replicated over dp = %d\n", p->size[TSR_DP] / p->fsdp_size);
}

void tsr_parallel_startup(
    const tsr_parallel *p, const tsr_config *config, const tsr_mesh *mesh,
    const char *descriptor_why, tsr_text *text) {
  tsr_mesh_layout layout = tsr_mesh_layout_make(config, mesh);
  tsr_text_add(
      text, "mesh_shape: %s, %d rank%s\n",
      tsr_mesh_layout_text(layout.asked, layout.asked_ndim).text, p->ranks,
      p->ranks == 1 ? "" : "s");
  tsr_text_add(
      text, "devices: %lld of %d%s", (long long)layout.ranks, layout.devices,
      p->device_ids ? ", those that device_ids names" : "");
  if (config->pipeline.workers > 1)
    tsr_text_add(text, ", of each of %d processes", (int)config->pipeline.workers);
  tsr_text_add(text, "\n");
  static const char prefix[] = "mesh: "; /* of the line with the mesh alone */
  if (!strncmp(descriptor_why, prefix, strlen(prefix))) descriptor_why += strlen(prefix);
  tsr_text_add(
      text, "descriptor: mesh %s fits; %s\n",
      tsr_mesh_layout_text(layout.have, layout.have_ndim).text, descriptor_why);
  context_add(p, text);
  if (config->model.kind && !strcmp(config->model.kind, "graph")) {
    tsr_text_add(
        text, "parameters: as the graph places them\nbatches: as its inputs are declared\n");
    return;
  }
  parameters_add(p, config, text);
  if (p->microbatches > 1)
    tsr_text_add(text, "batches: %lld microbatches of ", (long long)p->microbatches);
  else tsr_text_add(text, "batches: ");
  tsr_text_add(
      text, "%lld samples over %s = %d, %lld a rank\n", (long long)p->batch_size,
      tsr_parallel_batch_axes(p), tsr_parallel_batch_ranks(p), (long long)p->batch_size_local);
}

void tsr_numerics_describe(const tsr_config *config, tsr_text *text) {
  static const char fast[] = "fast; TF32 in f32 products on CUDA and sums in the order of MPI or "
                             "NCCL are on; fast-math and atomics are off";
  static const char deterministic[] = "deterministic; TF32, fast-math, atomics and sums "
                                      "in a library's own order are off";
  bool is_fast = config->numerics.policy == TSR_NUMERICS_FAST;
  tsr_text_add(text, "numerics.policy: %s\n", is_fast ? fast : deterministic);
}
