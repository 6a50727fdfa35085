// SPDX-License-Identifier: Apache-2.0
#include "train/gradient_dump.h"
#include "base/memory.h"
#include "base/new_file.h"
#include "checkpoint/safetensors.h"
#include "train/step_files.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
  const tsr_gradient_dump *dump;
  const tsr_executable *executable;
  int *values; /* of the placed graph, in the order of the file */
  const tsr_param **params;
  tsr_safetensor *tensors;
  int count;
  int64_t most; /* numbers of the largest, with padding */
} gradients;

/* Outputs keep their order through the passes. */
static gradients find_gradients(
    tsr_arena *arena, const tsr_gradient_dump *dump, const tsr_compiled *c,
    const tsr_executable *e) {
  const tsr_graph *g = c->graph;
  gradients r = {.dump = dump, .executable = e};
  r.values = tsr_arena_array(arena, int, g->params_count + 1);
  r.params = tsr_arena_array(arena, const tsr_param *, g->params_count + 1);
  r.tensors = tsr_arena_array(arena, tsr_safetensor, g->params_count + 1);
  for (int p = 0; p < g->params_count; p++)
    for (int i = 0; i < g->outputs_count && g->grads[p] >= 0; i++) {
      const tsr_param *param = &g->params[p];
      bool is_gradient =
          !strncmp(g->outputs[i].name, "d.", 2) && !strcmp(g->outputs[i].name + 2, param->name);
      if (!is_gradient) continue;
      tsr_safetensor *t = &r.tensors[r.count];
      r.values[r.count++] = c->placed->outputs[i].value;
      *t = (tsr_safetensor){
          .name = param->name, .dtype = "F32", .ndim = param->ndim, .bytes = sizeof(float)};
      int64_t padded = tsr_value_elements(&c->placed->values[c->placed->outputs[i].value]);
      if (padded > r.most) r.most = padded;
      tsr_param_real_shape(param, t->shape);
      r.params[r.count - 1] = param;
      for (int d = 0; d < t->ndim; d++) t->bytes *= t->shape[d];
    }
  return r;
}

static bool write_header(const gradients *r, tsr_new_file *file, tsr_diags *diags) {
  char step[24];
  snprintf(step, sizeof step, "%lld", (long long)r->dump->step);
  const char *metadata[] = {"step", step, "recipe", r->dump->recipe};
  tsr_text text = {0};
  tsr_safetensors_header(r->tensors, r->count, metadata, 2, &text);
  bool ok = tsr_new_file_write(file, text.data, text.length, diags);
  tsr_text_free(&text);
  return ok;
}

/* Every process reads, whether or not it writes: reading is collective. */
static bool
write_tensors(const gradients *r, float *numbers, tsr_new_file *file, bool ok, tsr_diags *diags) {
  for (int i = 0; i < r->count; i++) {
    const tsr_safetensor *t = &r->tensors[i];
    const tsr_param *p = r->params[i];
    tsr_executable_read(r->executable, r->values[i], numbers);
    tsr_padding_remove(&p->padding, p->ndim, p->shape, numbers);
    for (int64_t k = 0; r->dump->factor != 1 && k < t->bytes / (int64_t)sizeof(float); k++)
      numbers[k] = (float)(r->dump->factor * (double)numbers[k]);
    if (r->dump->writes && ok) ok = tsr_new_file_write(file, numbers, (size_t)t->bytes, diags);
  }
  return ok;
}

/* The file is there when it is whole, or not at all. */
static bool write_file(const gradients *r, const char *path, float *numbers, tsr_diags *diags) {
  tsr_new_file file = {.fd = -1};
  bool writes = r->dump->writes;
  bool ok = !writes || (tsr_new_file_open(path, &file, diags) && write_header(r, &file, diags));
  ok = write_tensors(r, numbers, &file, ok, diags);
  if (writes && ok) return tsr_new_file_commit(&file, diags);
  if (writes) tsr_new_file_drop(&file);
  return ok;
}

bool tsr_gradient_dump_write(
    const tsr_gradient_dump *dump, const tsr_compiled *training, tsr_executable *executable,
    tsr_diags *diags) {
  tsr_arena *arena = tsr_arena_new();
  gradients r = find_gradients(arena, dump, training, executable);
  tsr_step_file_path(&tsr_gradient_files, dump->folder, dump->step, dump->path);
  float *numbers = tsr_memory_try(sizeof *numbers * (size_t)(r.most + 1));
  bool ok = !tsr_executable_agree(executable, !numbers);
  if (ok) ok = write_file(&r, dump->path, numbers, diags);
  else if (!numbers)
    tsr_diag_failure(
        diags, TSR_NOWHERE, "out of memory: %s for the gradients of step %lld",
        tsr_text_bytes(4 * r.most).text, (long long)dump->step);
  free(numbers);
  tsr_arena_free(arena);
  return ok;
}
