// SPDX-License-Identifier: Apache-2.0
/* Two checkpoints side by side, a megabyte at a time. */
#include "checkpoint/checkpoint_commands.h"
#include "base/command_progress.h"
#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { ELEMENTS = 1 << 16 };

typedef struct {
  const tsr_kernels *kernels;
  tsr_checkpoint_reader *in[2];
  char *bytes; /* of one side, as stored */
  float *wide[2];
  tsr_text *text;
  tsr_diags *diags;
  int differences;
} diff;

static bool
read_wide(diff *d, int side, const tsr_stored *t, int64_t first, int64_t count, float *out) {
  static const int64_t begin[TSR_DIMS_MAX];
  if (!tsr_checkpoint_reader_read_slice(
          d->in[side], t, begin, t->shape, first, count, d->bytes, d->diags))
    return false;
  if (t->dtype == TSR_BF16) d->kernels->bf16_to_f32(out, (const uint16_t *)d->bytes, 0, count);
  else if (t->dtype == TSR_F16) d->kernels->fp16_to_f32(out, (const uint16_t *)d->bytes, 0, count);
  else memcpy(out, d->bytes, sizeof(float) * (size_t)count);
  return true;
}

static bool compare_elements(diff *d, const tsr_stored *a, const tsr_stored *b) {
  int64_t n = tsr_stored_elements(a->ndim, a->shape), different = 0, at = -1;
  double most = 0, values[2] = {0};
  for (int64_t first = 0; first < n; first += ELEMENTS) {
    int64_t count = n - first < ELEMENTS ? n - first : ELEMENTS;
    if (!read_wide(d, 0, a, first, count, d->wide[0]) ||
        !read_wide(d, 1, b, first, count, d->wide[1]))
      return false;
    tsr_command_progress_add(tsr_dtype_size(a->dtype, count));
    for (int64_t i = 0; i < count; i++) {
      if (!memcmp(&d->wide[0][i], &d->wide[1][i], sizeof(float))) continue;
      double x = (double)d->wide[0][i], y = (double)d->wide[1][i], far = fabs(x - y);
      different++;
      if (at >= 0 && !(far > most)) continue;
      at = first + i, most = far, values[0] = x, values[1] = y;
    }
  }
  if (!different) return true;
  d->differences++;
  tsr_text_add(
      d->text,
      "%s: %" PRId64 " of %" PRId64 " elements, the most by %.9g: element %" PRId64
      ", %.9g | %.9g\n",
      a->name, different, n, most, at, values[0], values[1]);
  return true;
}

/* Elements are compared where shapes are the same, be they stored in whatever pieces and dtypes. */
static bool compare_tensor(diff *d, const tsr_stored *a, const tsr_stored *b) {
  bool same = a->ndim == b->ndim && !memcmp(a->shape, b->shape, sizeof *a->shape * (size_t)a->ndim);
  if (same && a->dtype != b->dtype) {
    d->differences++;
    tsr_text_add(
        d->text, "%s: %s | %s\n", a->name, tsr_dtype_name(a->dtype), tsr_dtype_name(b->dtype));
  }
  if (same) return compare_elements(d, a, b);
  d->differences++;
  tsr_text_add(d->text, "%s: %s", a->name, tsr_shape_text(a->ndim, a->shape).text);
  tsr_text_add(d->text, " | %s\n", tsr_shape_text(b->ndim, b->shape).text);
  return true;
}

static bool compare_tensors(diff *d, const tsr_manifest *a, const tsr_manifest *b) {
  bool ok = true;
  tsr_command_progress_begin("comparing", tsr_manifest_tensor_bytes(a), NULL);
  for (int i = 0; ok && i < a->tensors_count; i++) {
    const tsr_stored *t = &a->tensors[i], *there = tsr_manifest_find(b, t->name);
    if (there) {
      ok = compare_tensor(d, t, there);
    } else {
      d->differences++;
      tsr_text_add(d->text, "%s: only in the first\n", t->name);
    }
  }
  tsr_command_progress_end();
  for (int i = 0; ok && i < b->tensors_count; i++)
    if (!tsr_manifest_find(a, b->tensors[i].name)) {
      d->differences++;
      tsr_text_add(d->text, "%s: only in the second\n", b->tensors[i].name);
    }
  return ok;
}

bool tsr_checkpoint_diff(
    tsr_arena *arena, const tsr_kernels *kernels, const tsr_manifest *a, const tsr_manifest *b,
    int *ret_differences, tsr_text *text, tsr_diags *diags) {
  diff d = {.kernels = kernels, .text = text, .diags = diags};
  d.bytes = tsr_arena_alloc(arena, ELEMENTS * sizeof(float));
  for (int i = 0; i < 2; i++) d.wide[i] = tsr_arena_array(arena, float, ELEMENTS);
  if (!tsr_checkpoint_reader_open(arena, a, true, &d.in[0], diags)) return false;
  bool ok = tsr_checkpoint_reader_open(arena, b, true, &d.in[1], diags);
  d.differences = tsr_recipe_diff(a->recipe, a->recipe_count, b->recipe, b->recipe_count, text);
  ok = ok && compare_tensors(&d, a, b);
  tsr_checkpoint_reader_close(d.in[0]);
  if (d.in[1]) tsr_checkpoint_reader_close(d.in[1]);
  *ret_differences = d.differences;
  return ok;
}
