// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/trained_values.h"
#include "checkpoint/reader.h"
#include "kernels/kernels.h"
#include <string.h>

tsr_trained_values tsr_trained_values_new(tsr_arena *arena, const tsr_graph *g) {
  tsr_trained_values v = {g, tsr_arena_array(arena, float *, g->params_count + 1)};
  for (int p = 0; p < g->params_count; p++)
    if (!g->params[p].is_frozen && !tsr_param_is_load(g, &g->params[p]))
      v.values[p] = tsr_arena_array(arena, float, tsr_param_real_elements(&g->params[p]));
  return v;
}

void tsr_numbers_to_f32(
    const tsr_kernels *k, tsr_dtype dtype, const void *numbers, int64_t n, float *ret) {
  if (dtype == TSR_BF16) k->bf16_to_f32(ret, numbers, 0, n);
  else if (dtype == TSR_F16) k->fp16_to_f32(ret, numbers, 0, n);
  else memcpy(ret, numbers, sizeof *ret * (size_t)n);
}

static bool
find(const tsr_manifest *m, const tsr_param *p, const tsr_stored **ret_stored, tsr_diags *diags) {
  const tsr_stored *t = *ret_stored = tsr_manifest_find(m, p->name);
  int64_t shape[TSR_DIMS_MAX];
  tsr_param_real_shape(p, shape);
  if (!t)
    return tsr_diag_error(diags, TSR_NOWHERE, "'%s' has no parameter '%s'", m->folder, p->name);
  bool same = t->ndim == p->ndim;
  for (int d = 0; same && d < t->ndim; d++) same = t->shape[d] == shape[d];
  return same || tsr_diag_error(
                     diags, TSR_NOWHERE, "'%s': parameter '%s' is %s, not %s", m->folder, p->name,
                     tsr_shape_text(t->ndim, t->shape).text, tsr_shape_text(p->ndim, shape).text);
}

static bool read_all(
    tsr_arena *arena, tsr_checkpoint_reader *reader, const tsr_manifest *m,
    const tsr_trained_values *v, tsr_diags *diags) {
  static const int64_t begin[TSR_DIMS_MAX];
  const tsr_kernels *kernels = tsr_kernels_get(NULL);
  for (int p = 0; p < v->graph->params_count; p++) {
    const tsr_stored *t;
    if (!v->values[p]) continue;
    if (!find(m, &v->graph->params[p], &t, diags)) return false;
    int64_t n = tsr_stored_elements(t->ndim, t->shape);
    void *numbers = tsr_arena_alloc(arena, (size_t)(n * tsr_dtype_bytes(t->dtype)));
    if (!tsr_checkpoint_reader_read_slice(reader, t, begin, t->shape, 0, n, numbers, diags))
      return false;
    tsr_numbers_to_f32(kernels, t->dtype, numbers, n, v->values[p]);
  }
  return true;
}

bool tsr_trained_values_read(
    tsr_arena *arena, const tsr_manifest *m, const tsr_trained_values *v, tsr_diags *diags) {
  tsr_checkpoint_reader *reader;
  if (!tsr_checkpoint_reader_open(arena, m, true, &reader, diags)) return false;
  bool ok = tsr_checkpoint_reader_verify(reader, diags) && read_all(arena, reader, m, v, diags);
  tsr_checkpoint_reader_close(reader);
  return ok;
}

void tsr_trained_values_load(
    tsr_arena *arena, const tsr_trained_values *v, tsr_executable *executable) {
  const tsr_graph *g = tsr_executable_graph(executable);
  for (int p = 0; p < g->params_count; p++) {
    const tsr_param *param = &g->params[p];
    for (int q = 0; q < v->graph->params_count; q++) {
      if (!v->values[q] || strcmp(v->graph->params[q].name, param->name) != 0) continue;
      int64_t stored = 1;
      for (int d = 0; d < param->ndim; d++) stored *= param->shape[d];
      float *whole = tsr_arena_array(arena, float, stored);
      tsr_padding_add(&param->padding, param->ndim, param->shape, v->values[q], whole);
      tsr_executable_write(executable, tsr_executable_param(executable, p), whole);
    }
  }
}
