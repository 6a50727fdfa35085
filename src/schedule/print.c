#include "graph/infer.h"
#include "schedule/program.h"

static void print_tensor(const tsr_program *p, const tsr_tensor *t, tsr_text *text) {
  static const char *const segments[] = {"param", "state", "const", "input", "work"};
  tsr_text_add(text, "%s ", p->graph->values[t->value].name);
  if (t->units) tsr_text_add(text, "%lld×", (long long)t->units);
  tsr_text_add(
      text, "%s @%s+%lld", tsr_shape_text(t->ndim, t->shape), segments[t->segment],
      (long long)t->offset);
}

static void print_task(const tsr_program *p, int index, tsr_text *text) {
  const tsr_task *t = &p->tasks[index];
  const tsr_node *n = &p->graph->nodes[t->node];
  tsr_text_add(text, "%5d  %-16s", index, tsr_op_name(t->op));
  if (t->axis >= 0) tsr_text_add(text, " over %s", tsr_axis_name(t->axis));
  if (t->units > 1) tsr_text_add(text, " in %lld units", (long long)t->units);
  for (int i = 0; i < n->outputs_count; i++) {
    tsr_text_add(text, i ? ", " : "  ");
    print_tensor(p, &t->outputs[i], text);
  }
  if (!n->outputs_count) tsr_text_add(text, "  %s", n->name);
  tsr_text_add(text, " <-");
  for (int i = 0; i < n->inputs_count; i++)
    tsr_text_add(text, "%s %s", i ? "," : "", p->graph->values[n->inputs[i]].name);
  if (n->place.file && n->place.line) tsr_text_add(text, "  # %s:%d", n->place.file, n->place.line);
  tsr_text_add(text, "\n");
}

void tsr_program_print(const tsr_program *p, tsr_text *text) {
  tsr_text_add(text, "program %s: %d tasks\n", p->graph->name, p->tasks_count);
  for (int i = 0; i < p->tasks_count; i++) {
    if (i == 0)
      tsr_text_add(text, "each of %lld microbatches\n", (long long)p->lowering.microbatches);
    if (i == p->update_begin) tsr_text_add(text, "update\n");
    print_task(p, i, text);
  }
}

void tsr_program_print_memory(const tsr_program *p, tsr_text *text) {
  static const char *const segments[] = {
      "parameters", "optimizer state", "constants", "inputs", "work"};
  static const char *const uses[] = {"activations", "gradients", "communication", "scratch"};
  tsr_text_add(text, "memory of one rank: %s bytes\n", tsr_text_count(tsr_program_bytes(p)));
  for (int s = 0; s < TSR_SEGMENTS; s++)
    tsr_text_add(text, "  %-16s %20s\n", segments[s], tsr_text_count(p->bytes[s]));
  if (!p->tasks_count) return;
  tsr_text_add(
      text, "work at its fullest, task %d (%s):\n", p->peak_task,
      p->graph->nodes[p->tasks[p->peak_task].node].name);
  for (int u = 0; u < TSR_USES; u++)
    tsr_text_add(text, "  %-16s %20s\n", uses[u], tsr_text_count(p->peak_bytes[u]));
  tsr_text_add(text, "  %-16s %20s\n", "without reuse", tsr_text_count(p->unplanned_bytes));
}
