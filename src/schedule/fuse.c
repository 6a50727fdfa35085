// SPDX-License-Identifier: Apache-2.0
/* requires: a stage's tasks in their final order, with local shapes; readers of every value
 * produces: fused tasks (fuse.h) in the place of those that they cover
 * invalidates: indices of tasks */
#include "schedule/fuse.h"
#include "schedule/fuse_cross_entropy.h"
#include "schedule/fuse_gemms.h"
#include <assert.h>
#include <string.h>

/* The gradients of a norm's weights and their updates stand between its backward pass and the sum.
 * */
enum { NEAR = 32 };

typedef tsr_fusing fusing;

static bool has_form(const fusing *f, tsr_fused_form form) { return f->target->fuses & 1u << form; }

static bool has_epilogue(const fusing *f, unsigned part) { return f->target->epilogues & part; }

static const tsr_node *node_of(const fusing *f, const tsr_task *t) {
  return &f->p->graph->nodes[t->node];
}

static int input(const fusing *f, const tsr_task *t, int i) { return tsr_task_input(f->p, t, i); }
static int output(const fusing *f, const tsr_task *t) { return node_of(f, t)->outputs[0]; }

static const tsr_tensor *tensor(const fusing *f, int value) { return &f->p->tensors[value]; }

/* The task that is always run right behind one; -1: none. */
static int follower(const fusing *f, int task) {
  const tsr_task *tasks = f->p->tasks;
  int next = task + 1;
  if (next >= f->part_end[task] || f->absorbed[next]) return -1;
  return tasks[next].last_only == tasks[task].last_only ? next : -1;
}

static int64_t last_dim(const tsr_tensor *t) { return t->shape[t->ndim - 1]; }

/* Whether x is of y's type, and complete on this rank. */
static bool is_like(const tsr_tensor *x, const tsr_tensor *y) {
  return x->dtype == y->dtype && x->segment != TSR_SEGMENT_ABSENT && !x->units;
}

/* y + a row of its last dimension, which gives the row's type; y may be in f32. */
static bool adds_row(const fusing *f, const tsr_task *t) {
  if (t->op != TSR_OP_ADD || input(f, t, 0) == input(f, t, 1)) return false;
  const tsr_tensor *y = tensor(f, input(f, t, 0)), *row = tensor(f, input(f, t, 1));
  return row->ndim == 1 && row->shape[0] == last_dim(y) && y->ndim > 1 &&
         (y->dtype == row->dtype || y->dtype == TSR_F32) && is_like(y, y) && is_like(row, row) &&
         is_like(tensor(f, output(f, t)), row);
}

/* The sum of two tensors of one shape. */
static bool adds_tensors(const fusing *f, const tsr_task *t) {
  if (t->op != TSR_OP_ADD || input(f, t, 0) == input(f, t, 1)) return false;
  const tsr_tensor *sum = tensor(f, output(f, t));
  for (int i = 0; i < 2; i++) {
    const tsr_tensor *x = tensor(f, input(f, t, i));
    if (!is_like(x, sum) || tsr_tensor_elements(x) != tsr_tensor_elements(sum)) return false;
  }
  return is_like(sum, sum);
}

static bool reads(const fusing *f, const tsr_task *t, int value) {
  return input(f, t, 0) == value || input(f, t, 1) == value;
}

/* Puts a GEMM behind the collectives between it and the sum that reads it, as ZeRO's are that
 * gather a bias: on other meshes there are none. Its new place. */
static int move_to_sum(fusing *f, int task) {
  tsr_task *tasks = f->p->tasks, moved = tasks[task];
  int end = task + 1, made = output(f, &moved);
  for (; end < f->part_end[task]; end++) {
    bool gathers = tsr_op_is_collective(tasks[end].op) || tasks[end].op == TSR_OP_WAIT;
    if (!gathers || f->absorbed[end] || tasks[end].last_only != moved.last_only) break;
    for (int k = 0; k < tasks[end].inputs_count; k++)
      if (input(f, &tasks[end], k) == made) return task;
  }
  if (end >= f->part_end[task] || tasks[end].op != TSR_OP_ADD || !reads(f, &tasks[end], made))
    return task;
  for (int i = task; i + 1 < end; i++) tasks[i] = tasks[i + 1];
  tasks[end - 1] = moved;
  return end - 1;
}

static bool is_norm(tsr_op op) { return op == TSR_OP_LAYERNORM || op == TSR_OP_RMSNORM; }
static bool is_norm_dx(tsr_op op) { return op == TSR_OP_LAYERNORM_DX || op == TSR_OP_RMSNORM_DX; }

/* Into the order of the graph: ranks of ZeRO run tasks in another one. */
static void sort_by_node(const fusing *f, int *tasks, int count) {
  for (int i = 1; i < count; i++)
    for (int k = i; k > 0 && f->p->tasks[tasks[k]].node < f->p->tasks[tasks[k - 1]].node; k--) {
      int later = tasks[k - 1];
      tasks[k - 1] = tasks[k];
      tasks[k] = later;
    }
}

/* The same of tasks one after another, at the place of the first one. */
static void fuse_run(fusing *f, tsr_fused_form form, int first, int count) {
  int *tasks = tsr_arena_array(f->arena, int, count);
  for (int i = 0; i < count; i++) tasks[i] = first + i;
  sort_by_node(f, tasks, count);
  tsr_fuse_tasks(f, form, tasks, count, first);
}

/* ---- a norm with the sum that it normalizes ---- */

typedef struct {
  int count, tasks[3];
} chain;

/* The sum of tensors at task `sum`, with the row that is added before it, and the norm behind it.
 * */
static bool find_sum_norm(const fusing *f, int sum, chain *ret) {
  const tsr_task *tasks = f->p->tasks;
  int norm = follower(f, sum);
  if (!has_form(f, TSR_FUSED_SUM_NORM) || norm < 0 || !is_norm(tasks[norm].op)) return false;
  int x = output(f, &tasks[sum]);
  if (!adds_tensors(f, &tasks[sum]) || input(f, &tasks[norm], 0) != x) return false;
  for (int i = 0; i < tasks[norm].inputs_count; i++)
    if (!is_like(tensor(f, input(f, &tasks[norm], i)), tensor(f, x))) return false;
  if (!is_like(tensor(f, output(f, &tasks[norm])), tensor(f, x))) return false;
  if (f->p->readers[x] < 2) return false; /* the kernel writes it */
  *ret = (chain){2, {sum, norm}};
  int row = sum - 1;
  bool follows = row >= 0 && !f->absorbed[row] && follower(f, row) == sum;
  if (!follows || !adds_row(f, &tasks[row])) return true;
  int biased = output(f, &tasks[row]);
  if (!is_like(tensor(f, input(f, &tasks[row], 0)), tensor(f, biased))) return true;
  if (f->p->readers[biased] == 1 && reads(f, &tasks[sum], biased))
    *ret = (chain){3, {row, sum, norm}};
  return true;
}

/* ---- a GEMM and its epilogue ---- */

/* Of operands of one type; in half precision the result may be in f32, for a bias. */
static bool is_gemm(const fusing *f, int task) {
  const tsr_task *t = &f->p->tasks[task];
  if (t->op != TSR_OP_LINEAR || t->fp8 || t->fused || f->absorbed[task]) return false;
  if (tsr_reduction_is_split(&t->sum)) return false;
  const tsr_tensor *x = tensor(f, input(f, t, 0)), *y = tensor(f, output(f, t));
  if (tsr_dtype_is_half(x->dtype) && !has_epilogue(f, TSR_EPILOGUE_HALF)) return false;
  return is_like(tensor(f, input(f, t, 1)), x) && is_like(x, x) && is_like(y, y) &&
         (y->dtype == x->dtype || y->dtype == TSR_F32);
}

/* Where a library's epilogue has other bits than the separate ops, a pass behind the GEMM computes
 * them (it rounds at each step): then a norm is the better place for a residual. A bias alone is
 * exact in half precision, too, if the sum before it is f32 (passes/precision.c). */
static bool is_exact(tsr_dtype dtype, bool bias, bool residual, bool gelu) {
  return dtype == TSR_F32 && !gelu && !(bias && residual);
}

static void fuse_epilogue(fusing *f, int task) {
  const tsr_task *tasks = f->p->tasks;
  chain c = {1, {task}}, norm;
  if (!is_gemm(f, task)) return;
  task = c.tasks[0] = move_to_sum(f, task);
  int value = output(f, &tasks[task]), next = follower(f, task);
  tsr_dtype dtype = tensor(f, input(f, &tasks[task], 0))->dtype;
  bool is_rounded = tensor(f, value)->dtype != TSR_F32;
  bool bias = has_epilogue(f, TSR_EPILOGUE_BIAS) && next >= 0 && adds_row(f, &tasks[next]) &&
              !is_rounded && tensor(f, output(f, &tasks[next]))->dtype == dtype &&
              input(f, &tasks[next], 0) == value && f->p->readers[value] == 1;
  if (!bias && tensor(f, value)->dtype != dtype) return; /* an f32 sum of half operands */
  if (bias) {
    c.tasks[c.count++] = next;
    value = output(f, &tasks[next]);
    next = follower(f, next);
  }
  bool residual = has_epilogue(f, TSR_EPILOGUE_RESIDUAL) && next >= 0 &&
                  adds_tensors(f, &tasks[next]) && reads(f, &tasks[next], value) &&
                  f->p->readers[value] == 1;
  bool gelu = has_epilogue(f, TSR_EPILOGUE_GELU) && next >= 0 && tasks[next].op == TSR_OP_GELU &&
              input(f, &tasks[next], 0) == value &&
              is_like(tensor(f, output(f, &tasks[next])), tensor(f, value));
  bool exact = is_exact(dtype, bias, residual, gelu);
  if (residual && f->target->exact && !exact && find_sum_norm(f, next, &norm)) {
    if (norm.count == 3) return; /* the norm adds the bias too */
    residual = false;
  }
  if (residual || gelu) c.tasks[c.count++] = next;
  if (c.count > 1) tsr_fuse_tasks(f, TSR_FUSED_EPILOGUE, c.tasks, c.count, task);
}

/* ---- a gradient and the sum with another one ---- */

/* Whether the other gradient is complete before the task: nothing behind that writes it. */
static bool is_written_before(const fusing *f, int task, int sum, int other) {
  for (int i = task; i < sum; i++) {
    const tsr_task *t = &f->p->tasks[i];
    const tsr_node *n = node_of(f, t);
    if (t->op == TSR_OP_WAIT && t->bucket)
      for (int k = 0; k < t->inputs_count; k++)
        if (input(f, t, k) == other) return false;
    if (t->op == TSR_OP_SEND || t->op == TSR_OP_WAIT) continue;
    for (int o = 0; o < n->outputs_count; o++)
      if (n->outputs[o] == other) return false;
  }
  return true;
}

/* Whether a task of this stage writes the value itself, and not one of its other names. */
static bool has_task(const fusing *f, int value) {
  int node = f->p->graph->values[value].node;
  return node >= 0 && tsr_program_has_node(f->p, node) && !tsr_program_is_alias(f->p, node);
}

/* The form that unites a gradient with the sum that reads it: that of a norm's input with the
 * residual branch's, and of a table with that of the classifier which shares it. */
static tsr_fused_form form_with_sum(const fusing *f, const tsr_task *t) {
  const tsr_tensor *gradient = tensor(f, output(f, t));
  bool norm = is_norm_dx(t->op);
  int first = norm ? 0 : 1, end = norm ? 3 : 2; /* dy, x, weight; dy */
  if (!norm && (t->op != TSR_OP_EMBEDDING_DW || tsr_reduction_blocks(&t->sum) > 1))
    return TSR_FUSED_NONE;
  for (int i = first; i < end; i++)
    if (!is_like(tensor(f, input(f, t, i)), gradient)) return TSR_FUSED_NONE;
  tsr_fused_form form = norm ? TSR_FUSED_NORM_DX_SUM : TSR_FUSED_EMBEDDING_DW_SUM;
  return has_form(f, form) ? form : TSR_FUSED_NONE;
}

static void fuse_gradient_sum(fusing *f, int task) {
  const tsr_task *tasks = f->p->tasks, *t = &tasks[task];
  if (!is_norm_dx(t->op) && t->op != TSR_OP_EMBEDDING_DW) return;
  tsr_fused_form form = form_with_sum(f, t);
  int dx = output(f, t);
  if (!form || f->absorbed[task] || f->p->readers[dx] != 1) return;
  for (int i = task + 1; i < f->part_end[task] && i <= task + NEAR; i++) {
    if (f->absorbed[i] || tasks[i].op != TSR_OP_ADD || !reads(f, &tasks[i], dx)) continue;
    int other = input(f, &tasks[i], input(f, &tasks[i], 0) == dx);
    if (tasks[i].last_only != t->last_only || !adds_tensors(f, &tasks[i])) return;
    if (!has_task(f, other) || !is_written_before(f, task, i, other)) return;
    int both[] = {task, i};
    tsr_fuse_tasks(f, form, both, 2, task);
    return;
  }
}

/* ---- optimizer updates ---- */

/* Inputs of an update that all updates of a launch share: the step's scalars, and the clip factor.
 * */
static int shared_inputs(const tsr_task *t, const tsr_node *n, int *ret_first) {
  bool adamw = t->op == TSR_OP_ADAMW;
  tsr_param_store store = adamw ? n->attr.adamw.store : n->attr.sgd.store;
  int own = adamw ? n->attr.adamw.amsgrad : n->attr.sgd.momentum != 0;
  *ret_first = adamw ? 4 : 2;
  return t->inputs_count - *ret_first - own - (store == TSR_STORE_KAHAN);
}

/* What one rank owns, others do not update. */
static bool have_one_owner(const fusing *f, int a, int b) {
  const tsr_value *values = f->p->graph->values;
  for (int i = 0; i < TSR_AXES; i++) {
    tsr_placement x = values[a].placement[i], y = values[b].placement[i];
    bool owned = x.kind == TSR_OWNED || y.kind == TSR_OWNED;
    if (owned && !tsr_placement_equal(x, y)) return false;
  }
  return true;
}

/* Whether two updates differ in their parameters and in weight decay alone. */
static bool are_alike(const fusing *f, const tsr_task *a, const tsr_task *b) {
  const tsr_node *x = node_of(f, a), *y = node_of(f, b);
  if (a->op != b->op || a->inputs_count != b->inputs_count) return false;
  if (!have_one_owner(f, input(f, a, 0), input(f, b, 0))) return false;
  tsr_attrs attr = y->attr;
  if (a->op == TSR_OP_ADAMW) attr.adamw.decay = x->attr.adamw.decay;
  else attr.sgd.decay = x->attr.sgd.decay;
  if (!tsr_attrs_equal(a->op, &x->attr, &attr)) return false;
  int first, count = shared_inputs(a, x, &first);
  for (int i = first; i < first + count; i++)
    if (input(f, a, i) != input(f, b, i)) return false;
  return true;
}

static void fuse_updates(fusing *f, int task) {
  const tsr_task *t = &f->p->tasks[task];
  bool update = t->op == TSR_OP_ADAMW || t->op == TSR_OP_SGD;
  if (!has_form(f, TSR_FUSED_UPDATES) || !update || f->absorbed[task]) return;
  int count = 1, next = task;
  while ((next = follower(f, next)) >= 0 && are_alike(f, t, &f->p->tasks[next])) count++;
  if (count > 1) fuse_run(f, TSR_FUSED_UPDATES, task, count);
}

/* ---- sums of squares ---- */

static bool reads_any(const fusing *f, const tsr_task *t, const int *tasks, int count) {
  for (int k = 0; k < t->inputs_count; k++)
    for (int i = 0; i < count; i++)
      if (input(f, t, k) == output(f, &f->p->tasks[tasks[i]])) return true;
  return false;
}

/* Whether a later task of the part is such a sum, too, and may be made together with the first. */
static bool is_norm_like(const fusing *f, int first, int task) {
  const tsr_task *a = &f->p->tasks[first], *b = &f->p->tasks[task];
  return b->op == TSR_OP_NORM_STATS && !f->absorbed[task] && a->last_only == b->last_only &&
         tensor(f, input(f, b, 0))->dtype == TSR_F32 &&
         have_one_owner(f, input(f, a, 0), input(f, b, 0));
}

static void fuse_norms(fusing *f, int task) {
  const tsr_task *t = &f->p->tasks[task];
  if (t->op != TSR_OP_NORM_STATS || f->absorbed[task] || !has_form(f, TSR_FUSED_NORMS)) return;
  int end = f->part_end[task], last = task, count = 0;
  int *tasks = tsr_arena_array(f->arena, int, end - task);
  for (int i = task; i < end; i++) {
    if (is_norm_like(f, task, i)) tasks[count++] = last = i;
    else if (reads_any(f, &f->p->tasks[i], tasks, count)) break;
  }
  int kept = 0;
  for (int i = 0; i < count; i++)
    if (f->last_read[input(f, &f->p->tasks[tasks[i]], 0)] > last) tasks[kept++] = tasks[i];
  if (kept < 2) return;
  int base = tasks[kept - 1];
  sort_by_node(f, tasks, kept);
  tsr_norm_pieces *norms = tsr_arena_array(f->arena, tsr_norm_pieces, kept);
  for (int i = 0; i < kept; i++) norms[i] = *f->p->tasks[tasks[i]].norm;
  tsr_fuse_tasks(f, TSR_FUSED_NORMS, tasks, kept, base);
  f->p->tasks[base].norm = norms;
}

/* ---- casts of parameters ---- */

static bool casts_param(const fusing *f, const tsr_task *t) {
  return t->op == TSR_OP_CAST && tensor(f, input(f, t, 0))->segment == TSR_SEGMENT_PARAM &&
         !tsr_dtype_is_quantized(tensor(f, input(f, t, 0))->dtype);
}

static bool casts_alike(const fusing *f, const tsr_task *a, const tsr_task *b) {
  return casts_param(f, b) && have_one_owner(f, input(f, a, 0), input(f, b, 0)) &&
         tensor(f, input(f, a, 0))->dtype == tensor(f, input(f, b, 0))->dtype &&
         tensor(f, output(f, a))->dtype == tensor(f, output(f, b))->dtype;
}

static void fuse_casts(fusing *f, int task) {
  const tsr_task *t = &f->p->tasks[task];
  if (!has_form(f, TSR_FUSED_CASTS) || f->absorbed[task] || !casts_param(f, t)) return;
  int count = 1, next = task;
  while ((next = follower(f, next)) >= 0 && casts_alike(f, t, &f->p->tasks[next])) count++;
  if (count > 1) fuse_run(f, TSR_FUSED_CASTS, task, count);
}

/* ---- the pass ---- */

static void find_last_reads(fusing *f) {
  for (int i = 0; i < f->p->tasks_count; i++)
    for (int k = 0; k < f->p->tasks[i].inputs_count; k++)
      f->last_read[input(f, &f->p->tasks[i], k)] = i;
}

static void find_part_ends(fusing *f) {
  for (int k = 0; k < f->p->parts_count; k++)
    for (int i = f->p->parts[k].begin; i < f->p->parts[k].end; i++)
      f->part_end[i] = f->p->parts[k].end;
}

static void remove_absorbed(fusing *f) {
  tsr_program *p = f->p;
  int count = 0;
  for (int k = 0; k < p->parts_count; k++) {
    int begin = count;
    for (int i = p->parts[k].begin; i < p->parts[k].end; i++)
      if (!f->absorbed[i]) p->tasks[count++] = p->tasks[i];
    p->parts[k].begin = begin;
    p->parts[k].end = count;
  }
  p->tasks_count = count;
}

void tsr_program_fuse(tsr_program *p, const tsr_target *target, unsigned gemms) {
  fusing f = {.p = p, .target = target, .arena = p->graph->arena};
  if (!target->fuses) return;
  f.absorbed = tsr_arena_array(f.arena, bool, p->tasks_count + 1);
  f.part_end = tsr_arena_array(f.arena, int, p->tasks_count + 1);
  f.last_read = tsr_arena_array(f.arena, int, p->graph->values_count + 1);
  f.roots = tsr_fusing_roots_of(p);
  find_part_ends(&f);
  find_last_reads(&f);
  bool tiles = has_form(&f, TSR_FUSED_LINEAR_CROSS_ENTROPY);
  for (int i = 0; tiles && i < p->tasks_count; i++) tsr_fuse_cross_entropy(&f, i);
  for (int i = 0; i < p->tasks_count; i++) {
    if (tiles) tsr_fuse_cross_entropy_part(&f, i);
    if (has_form(&f, TSR_FUSED_LOGITS_GRADIENT)) tsr_fuse_logits_gradient(&f, i);
  }
  for (int i = 0; i < p->tasks_count; i++) {
    chain c;
    if (has_form(&f, TSR_FUSED_EPILOGUE)) fuse_epilogue(&f, i);
    if (!f.absorbed[i] && !p->tasks[i].fused && find_sum_norm(&f, i, &c))
      tsr_fuse_tasks(&f, TSR_FUSED_SUM_NORM, c.tasks, c.count, c.tasks[c.count - 1]);
    fuse_gradient_sum(&f, i);
    fuse_updates(&f, i);
    fuse_norms(&f, i);
    fuse_casts(&f, i);
  }
  if (has_form(&f, TSR_FUSED_GEMMS)) tsr_fuse_gemms(&f, gemms);
  remove_absorbed(&f);
}

/* ---- fused tasks ---- */

const char *tsr_fused_name(tsr_fused_form form) {
  static const char *const names[] = {
      "none",
      "epilogue",
      "linear_cross_entropy",
      "logits_gradient",
      "sum_norm",
      "norm_dx_sum",
      "embedding_dw_sum",
      "gemms",
      "updates",
      "norms",
      "casts"};
  return names[form];
}

int tsr_task_batch(const tsr_task *t) {
  bool of_nodes =
      t->fused == TSR_FUSED_UPDATES || t->fused == TSR_FUSED_NORMS || t->fused == TSR_FUSED_CASTS;
  return of_nodes ? t->nodes_count : t->fused == TSR_FUSED_GEMMS ? t->outputs_count : 0;
}

const char *tsr_task_kind_name(const tsr_task *t) {
  return t->covered ? tsr_fused_name(t->fused) : tsr_op_name(t->op);
}

bool tsr_fused_may_overwrite(const tsr_program *p, const tsr_task *t, int output, int in) {
  switch (t->fused) {
  case TSR_FUSED_SUM_NORM: { /* the sum's rows are read before they are written */
    tsr_sum_norm s = tsr_sum_norm_of(p, t);
    const tsr_tensor *x = &tsr_kernel_inputs(t)[in];
    return &tsr_kernel_outputs(t)[output] == s.x && (x == s.from || x == s.plus);
  }
  case TSR_FUSED_NORM_DX_SUM:
  case TSR_FUSED_EMBEDDING_DW_SUM:
    return output == 0 && &tsr_kernel_inputs(t)[in] == tsr_gradient_addend(t);
  default: /* a GEMM reads its operands until its end; an update has no outputs */
    return false;
  }
}

tsr_epilogue tsr_epilogue_of(const tsr_program *p, const tsr_task *t) {
  tsr_epilogue e = {.out = &tsr_kernel_outputs(t)[t->outputs_count - 1]};
  const tsr_tensor *next = &tsr_kernel_inputs(t)[2];
  for (int i = 1; i < t->nodes_count; i++) {
    if (p->graph->nodes[t->nodes[i]].op == TSR_OP_GELU) e.gelu = true;
    else if (i == 1 && next->ndim == 1 && e.out->ndim > 1) e.bias = next++;
    else e.residual = next++;
  }
  if (t->outputs_count == 2) e.before = &tsr_kernel_outputs(t)[0];
  return e;
}

tsr_batched_gemm tsr_batched_gemm_of(const tsr_task *t, int i) {
  int each = t->inputs_count / t->outputs_count;
  const tsr_tensor *first = &tsr_kernel_inputs(t)[i * each];
  return (tsr_batched_gemm){
      .a = first, .b = first + 1, .bias = each > 2 ? first + 2 : NULL, &tsr_kernel_outputs(t)[i]};
}

tsr_sum_norm tsr_sum_norm_of(const tsr_program *p, const tsr_task *t) {
  (void)p;
  tsr_sum_norm s = {.x = &tsr_kernel_inputs(t)[0]};
  s.norm_inputs = &tsr_kernel_inputs(t)[1];
  s.norm_outputs = &tsr_kernel_outputs(t)[0];
  if (t->fused != TSR_FUSED_SUM_NORM) return s;
  s.from = &tsr_kernel_inputs(t)[0];
  s.plus = &tsr_kernel_inputs(t)[t->nodes_count - 1];
  if (t->nodes_count == 3) s.row = &tsr_kernel_inputs(t)[1];
  s.norm_inputs = s.plus + 1;
  s.x = &tsr_kernel_outputs(t)[0];
  s.norm_outputs = &tsr_kernel_outputs(t)[1];
  return s;
}

tsr_linear_cross_entropy tsr_linear_cross_entropy_of(const tsr_task *t) {
  tsr_linear_cross_entropy c = {0};
  for (int i = 0; i < t->nodes_count; i++) {
    const tsr_task *of = &t->covered[i];
    if (of->op == TSR_OP_LINEAR) c.linear = of;
    if (of->op == TSR_OP_CE_STATS) c.stats = of;
    if (of->op == TSR_OP_CE_LOSS) c.loss = of;
    if (of->op == TSR_OP_CE_LOSS_DX) c.loss_dx = of;
    if (of->op == TSR_OP_LINEAR_DX) c.dx = of;
    if (of->op == TSR_OP_LINEAR_DW) c.dw = of;
  }
  return c;
}

const tsr_tensor *tsr_gradient_addend(const tsr_task *t) {
  bool adds = t->fused == TSR_FUSED_NORM_DX_SUM || t->fused == TSR_FUSED_EMBEDDING_DW_SUM;
  return adds ? &tsr_kernel_inputs(t)[t->inputs_count - 1] : NULL;
}
