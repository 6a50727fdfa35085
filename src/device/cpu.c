#include "device/cpu.h"
#include "device/cpu_ops.h"
#include <assert.h>
#include <string.h>

const tsr_cpu_op cpu_collective = {0};

static const tsr_cpu_op *const table[] = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, lower, cost)         \
  &cpu_##lower,
#include "graph/ops.def"
#undef OP
};

const tsr_cpu_op *tsr_cpu_find(tsr_op op) {
  return table[op] == &cpu_collective ? NULL : table[op];
}

int64_t tsr_cpu_scratch(
    const tsr_task *task, const tsr_program *program, bool output, const void *context) {
  const tsr_cpu_context *cpu = context;
  const tsr_cpu_op *op = tsr_cpu_find(task->op);
  if (output) return op->output(cpu->k, program, task);
  if (!op) return 0;
  int64_t own = op->scratch ? op->scratch(cpu->k, program, task, cpu->threads) : 0;
  return own + cpu_copy_offset(task, NULL);
}

bool cpu_is_zigzag(const cpu_call *c, const tsr_tensor *t, int dim) {
  tsr_placement p = cpu_value(c, t)->placement[TSR_CP];
  const tsr_lowering *l = &c->program->lowering;
  return l->zigzag && l->size[TSR_CP] > 1 && p.kind == TSR_SHARD && p.dim == dim;
}

/* A dimension that two axes cut belongs to the first one's blocks before the second one's. */
int64_t cpu_offset(const cpu_call *c, const tsr_tensor *t, int dim) {
  const tsr_value *v = cpu_value(c, t);
  int64_t block = 0;
  for (int a = 0; a < TSR_AXES; a++) {
    tsr_placement p = v->placement[a];
    int size = (int)c->program->lowering.size[a];
    if (p.kind != TSR_SHARD || p.dim != dim) continue;
    block = block * tsr_placement_blocks(p, size) + tsr_placement_block(p, size, c->rank->coord[a]);
  }
  return block * t->shape[dim];
}

tsr_box cpu_sample_box(const cpu_call *c, const tsr_tensor *t) {
  const tsr_value *v = cpu_value(c, t);
  const tsr_lowering *l = &c->program->lowering;
  tsr_box box = {.ndim = t->ndim};
  for (int d = 0; d < t->ndim; d++) {
    box.shape[d] = t->shape[d];
    box.global[d] = v->shape[d];
    box.offset[d] = cpu_offset(c, t, d);
  }
  box.offset[0] =
      tsr_sample_offset(l, box.offset[0], v->shape[0], t->shape[0], c->moment.microbatch);
  box.global[0] *= l->microbatches;
  return box;
}

bool cpu_rows_of_unit(
    const cpu_call *c, int64_t rows, int64_t unit, int64_t k, cpu_run_of_rows *ret) {
  const tsr_task *t = c->task;
  int64_t pieces = t->sequence_units, batch_units = t->units / (pieces ? pieces : 1);
  assert((!pieces || t->units % pieces == 0) && rows % batch_units == 0);
  int64_t unit_rows = rows / batch_units;
  if (!pieces) {
    *ret = (cpu_run_of_rows){unit * unit_rows, unit_rows};
    return k == 0;
  }
  int64_t samples = t->inputs[0].shape[0] / batch_units, positions = unit_rows / samples;
  int64_t piece = tsr_sequence_unit(c->program->lowering.zigzag, pieces, unit % pieces);
  ret->rows = positions / pieces;
  ret->first = (unit / pieces * samples + k) * positions + piece * ret->rows;
  return k < samples;
}

void cpu_add_units(
    const cpu_call *c, int64_t units, float *out, float *scratch, int64_t stride, int64_t begin,
    int64_t end, cpu_make_unit *make, void *context) {
  int top = 0; /* stack entries in use; entry 0 is out */
  for (int64_t u = 0; u < units; u++) {
    make(c, context, u, top ? scratch + (top - 1) * stride : out);
    top++;
    for (int merges = tsr_tree_merges(units, u); merges; merges--, top--) {
      float *high = scratch + (top - 2) * stride, *low = top == 2 ? out : high - stride;
      c->k->add(low, low, high, begin, end);
    }
  }
}

int64_t cpu_items_elements(const tsr_task *task) { return tsr_tensor_elements(&task->outputs[0]); }
int64_t cpu_items_rows(const tsr_task *task) { return cpu_rows(&task->outputs[0]); }
