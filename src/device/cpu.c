#include "device/cpu.h"
#include "device/cpu_ops.h"
#include <string.h>

static const tsr_cpu_op cpu_collective = {0};

static const tsr_cpu_op *const table[] = {
#define OP(id, name, min, max, outputs, attrs, facts, infer, gradient, place, lower, cost)         \
  &cpu_##lower,
#include "graph/ops.def"
#undef OP
};

const tsr_cpu_op *tsr_cpu_find(tsr_op op) {
  return table[op] == &cpu_collective ? NULL : table[op];
}

int64_t tsr_cpu_scratch(const tsr_task *task, const tsr_program *program, const void *context) {
  const tsr_cpu_context *cpu = context;
  const tsr_cpu_op *op = tsr_cpu_find(task->op);
  return op && op->scratch ? op->scratch(cpu->k, program, task, cpu->threads) : 0;
}

int64_t cpu_offset(const cpu_call *c, const tsr_tensor *t, int dim) {
  const tsr_value *v = cpu_value(c, t);
  int64_t offset = 0;
  for (int a = 0; a < TSR_AXES; a++)
    if (v->placement[a].kind == TSR_SHARD && v->placement[a].dim == dim)
      offset = tsr_placement_block(
                   v->placement[a], (int)c->program->lowering.size[a], c->rank->coord[a]) *
               t->shape[dim];
  return offset;
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
