// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_tensors.h"
#include "checkpoint/trained_values.h"
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PORTION = 1 << 18 }; /* elements that are read at once, but at least one row */

typedef struct {
  tsr_arena *arena;
  const tsr_gguf_mapping *mapping;
  const tsr_manifest *manifest;
  const tsr_hf_export_options *options;
  tsr_gguf_tensors *list;
  tsr_diags *diags;
} lister;

/* ---- which tensor is what ---- */

static bool find_stored(const lister *l, const tsr_param *param, const tsr_stored **ret) {
  const tsr_stored *t = *ret = tsr_manifest_find(l->manifest, param->name);
  int64_t shape[TSR_DIMS_MAX];
  tsr_param_real_shape(param, shape);
  if (!t)
    return tsr_diag_error(
        l->diags, TSR_NOWHERE, "'%s' has no parameter '%s'", l->manifest->folder, param->name);
  bool same = t->ndim == param->ndim;
  for (int d = 0; same && d < t->ndim; d++) same = t->shape[d] == shape[d];
  return same || tsr_diag_error(
                     l->diags, TSR_NOWHERE,
                     "'%s': parameter '%s' has the shape %s, not %s as its configuration asks for",
                     l->manifest->folder, t->name, tsr_shape_text(t->ndim, t->shape).text,
                     tsr_shape_text(param->ndim, shape).text);
}

/* The shape of what a tensor there has of a parameter. */
static int piece_shape(const tsr_gguf_part *p, int64_t ret_shape[TSR_DIMS_MAX]) {
  const tsr_gguf_piece *piece = &p->piece;
  tsr_param_real_shape(p->param, ret_shape);
  if (!piece->splits) return p->param->ndim;
  int64_t heads = ret_shape[0] / piece->group, columns = ret_shape[1];
  ret_shape[0] = heads;
  ret_shape[1] = piece->transposed ? columns : piece->rows;
  ret_shape[2] = piece->transposed ? piece->rows : columns;
  return 3;
}

static int tensor_of(lister *l, const char *name) {
  for (int i = l->list->count - 1; i >= 0; i--)
    if (!strcmp(l->list->tensors[i].name, name)) return i;
  l->list->tensors[l->list->count] = (tsr_gguf_tensor){.name = name, .type = TSR_GGUF_F32};
  l->list->sources[l->list->count] = (tsr_gguf_source){0};
  return l->list->count++;
}

static bool add_part(lister *l, const tsr_gguf_part *part) {
  int at = tensor_of(l, part->piece.name);
  tsr_gguf_tensor *t = &l->list->tensors[at];
  tsr_gguf_source *s = &l->list->sources[at];
  int64_t shape[TSR_DIMS_MAX];
  int ndim = piece_shape(part, shape), index = part->piece.part;
  bool fits = ndim <= TSR_GGUF_DIMS_MAX && index < TSR_GGUF_PARTS_MAX &&
              !(index < s->parts_count && s->parts[index].param) && (!t->ndim || t->ndim == ndim);
  for (int d = 1; fits && t->ndim && d < ndim; d++) fits = t->shape[d] == shape[d];
  if (!fits)
    return tsr_diag_error(
        l->diags, part->param->location, "parameter '%s' does not fit into the tensor '%s'",
        part->param->name, t->name);
  if (!t->ndim) memcpy(t->shape, shape, sizeof *shape * (size_t)ndim);
  else t->shape[0] += shape[0];
  t->ndim = ndim;
  s->parts[index] = *part;
  if (index >= s->parts_count) s->parts_count = index + 1;
  return true;
}

static bool add_param(lister *l, const tsr_param *param) {
  tsr_gguf_piece pieces[TSR_GGUF_PIECES_MAX];
  tsr_gguf_part part = {.param = param};
  int count;
  if (!find_stored(l, param, &part.stored) ||
      !tsr_gguf_mapping_pieces(l->mapping, param, pieces, &count, l->diags))
    return false;
  for (int i = 0; i < l->options->changes_count && !part.merge; i++)
    if (!strcmp(l->options->changes[i].param, param->name))
      part.merge = tsr_hf_merge_new(l->arena, &l->options->changes[i]);
  for (int i = 0; i < count; i++) {
    part.piece = pieces[i];
    if (!add_part(l, &part)) return false;
  }
  return true;
}

static const char *sort_name(const tsr_param *p) { return p->hf_name ? p->hf_name : p->name; }

static int compare_params(const void *a, const void *b) {
  const tsr_param *const *p = a, *const *q = b;
  int order = strcmp(sort_name(*p), sort_name(*q));
  return order ? order : (*p > *q) - (*p < *q); /* parts of one tensor: as the graph has them */
}

static bool add_rope_factors(lister *l) {
  tsr_gguf_factors list[TSR_GGUF_FACTORS_MAX];
  int count;
  if (!tsr_gguf_mapping_rope_factors(l->mapping, list, &count, l->diags)) return false;
  for (int i = 0; i < count; i++) {
    int at = tensor_of(l, list[i].name);
    l->list->tensors[at].ndim = 1;
    l->list->tensors[at].shape[0] = list[i].count;
    l->list->sources[at].values = list[i].values;
  }
  return true;
}

static bool check_parts(const lister *l) {
  for (int i = 0; i < l->list->count; i++)
    for (int p = 0; p < l->list->sources[i].parts_count; p++)
      if (!l->list->sources[i].parts[p].param)
        return tsr_diag_error(
            l->diags, TSR_NOWHERE, "the graph has no parameter for part %d of '%s'", p,
            l->list->tensors[i].name);
  return true;
}

bool tsr_gguf_tensors_list(
    tsr_arena *arena, const tsr_gguf_mapping *mapping, const tsr_graph *graph,
    const tsr_manifest *manifest, const tsr_hf_export_options *options, tsr_gguf_tensors *ret,
    tsr_diags *diags) {
  int room = graph->params_count * TSR_GGUF_PIECES_MAX + TSR_GGUF_FACTORS_MAX, count = 0;
  *ret = (tsr_gguf_tensors){
      .tensors = tsr_arena_array(arena, tsr_gguf_tensor, room),
      .sources = tsr_arena_array(arena, tsr_gguf_source, room)};
  lister l = {arena, mapping, manifest, options, ret, diags};
  const tsr_param **params = tsr_arena_array(arena, const tsr_param *, graph->params_count + 1);
  for (int i = 0; i < graph->params_count; i++)
    if (!tsr_param_is_load(graph, &graph->params[i])) params[count++] = &graph->params[i];
  qsort(params, (size_t)count, sizeof *params, compare_params);
  if (!add_rope_factors(&l)) return false;
  for (int i = 0; i < count; i++)
    if (!add_param(&l, params[i])) return false;
  return check_parts(&l);
}

/* ---- elements ---- */

typedef struct {
  tsr_checkpoint_reader *input;
  const tsr_kernels *kernels;
  void *stored;
  float *rows, *reordered;
  tsr_diags *diags;
} portion;

static bool read_stored(void *context, const tsr_stored *s, int64_t first, int64_t n, void *ret) {
  static const int64_t begin[TSR_DIMS_MAX];
  portion *p = context;
  return tsr_checkpoint_reader_read_slice(p->input, s, begin, s->shape, first, n, ret, p->diags);
}

static bool read_elements(portion *p, const tsr_gguf_part *part, int64_t first, int64_t n) {
  if (part->merge) {
    if (!tsr_hf_merge_read(part->merge, part->stored, first, n, read_stored, p, p->rows))
      return false;
  } else {
    if (!read_stored(p, part->stored, first, n, p->stored)) return false;
    tsr_numbers_to_f32(p->kernels, part->stored->dtype, p->stored, n, p->rows);
  }
  for (int64_t i = 0; part->piece.plus != 0 && i < n; i++) p->rows[i] += part->piece.plus;
  return true;
}

/* The rows of a group (rows, columns) in the order of the tensor there. */
static void reorder(const tsr_gguf_piece *piece, const float *in, int64_t columns, float *out) {
  int64_t rows = piece->rows, half = piece->group / 2;
  for (int64_t r = 0; r < rows; r++) {
    int64_t to = !piece->pairs ? r : r < half ? 2 * r : 2 * (r - half) + 1;
    for (int64_t c = 0; c < columns; c++)
      out[piece->transposed ? c * rows + to : to * columns + c] = in[r * columns + c];
  }
}

static bool read_part(portion *p, const tsr_gguf_part *part, tsr_gguf_put *put, void *context) {
  const tsr_gguf_piece *piece = &part->piece;
  const tsr_stored *s = part->stored;
  int64_t all = tsr_stored_elements(s->ndim, s->shape);
  int64_t columns = s->ndim > 1 ? s->shape[s->ndim - 1] : 1, rows = all / columns;
  int64_t step = piece->group;
  if (!step) step = columns < PORTION ? PORTION / columns : 1;
  for (int64_t at = 0; at < rows; at += step) {
    int64_t first = at + piece->first, count = piece->group ? piece->rows : rows - at;
    if (count > step) count = step;
    if (!read_elements(p, part, first * columns, count * columns)) return false;
    const float *out = p->rows;
    if (piece->pairs || piece->transposed)
      reorder(piece, p->rows, columns, p->reordered), out = p->reordered;
    if (!put(context, out, count * columns)) return false;
  }
  return true;
}

static int64_t room_of(const tsr_gguf_source *source) {
  int64_t most = PORTION;
  for (int i = 0; i < source->parts_count; i++) {
    const tsr_gguf_part *p = &source->parts[i];
    int64_t columns = p->stored->ndim > 1 ? p->stored->shape[p->stored->ndim - 1] : 1;
    int64_t room = columns * (p->piece.group ? p->piece.group : 1);
    if (room > most) most = room;
  }
  return most;
}

bool tsr_gguf_tensor_read(
    tsr_checkpoint_reader *input, const tsr_gguf_source *source, tsr_gguf_put *put, void *context,
    tsr_diags *diags) {
  tsr_arena *scratch = tsr_arena_new();
  int64_t room = room_of(source);
  portion p = {.input = input, .kernels = tsr_kernels_get(NULL), .diags = diags};
  p.stored = tsr_arena_array(scratch, float, room);
  p.rows = tsr_arena_array(scratch, float, room);
  p.reordered = tsr_arena_array(scratch, float, room);
  bool ok = true;
  for (int i = 0; i < source->parts_count && ok; i++)
    ok = read_part(&p, &source->parts[i], put, context);
  tsr_arena_free(scratch);
  return ok;
}

/* ---- how many parameters ---- */

static const char *rounded(tsr_arena *arena, double count) {
  static const struct {
    double above;
    char letter;
  } units[] = {{1e12, 'T'}, {1e9, 'B'}, {1e6, 'M'}, {0, 'K'}};
  int u = 0;
  while (count <= units[u].above && units[u].above > 0) u++;
  double scaled = count / (units[u].above > 0 ? units[u].above : 1e3);
  double whole = nearbyint(scaled); /* one digit behind the point where one is in front of it */
  int digits = whole >= 10 ? 0 : whole >= 1 ? 1 : 2;
  return tsr_arena_printf(arena, "%.*f%c", digits, scaled, units[u].letter);
}

const char *tsr_gguf_size_label(tsr_arena *arena, const tsr_gguf_tensors *list) {
  int64_t total = 0, shared = 0, expert = 0, experts = 0, mixtures = 0;
  for (int i = 0; i < list->count; i++) {
    const tsr_gguf_tensor *t = &list->tensors[i];
    bool is_bias = strstr(t->name, ".bias") != NULL;
    int64_t size = tsr_gguf_rows(t) * tsr_gguf_row(t);
    total += size;
    if (!strstr(t->name, "_exps.") || t->ndim < 3) {
      shared += size;
      continue;
    }
    int64_t count = t->shape[t->ndim - (is_bias ? 2 : 3)];
    expert += size / count;
    experts += count;
    mixtures++;
  }
  if (!mixtures) return rounded(arena, (double)total);
  return tsr_arena_printf(
      arena, "%" PRId64 "x%s", experts / mixtures, rounded(arena, (double)(shared + expert)));
}
