// SPDX-License-Identifier: Apache-2.0
#include "plan/report.h"
#include "plan/machine_units.h"
#include "plan/stage_layers.h"
#include <math.h>
#include <string.h>

static double percent(double part, double of) { return of > 0 ? 100 * part / of : 0; }

/* ---- machine and mesh ---- */

static void add_groups(const tsr_parallel *p, tsr_text *text) {
  const char *between = "groups: ";
  for (int i = 0; i < p->ndim; i++, between = ", ") {
    int axis = p->axis_of_dim[i];
    tsr_text_add(
        text, "%s%s %s of %d", between, tsr_axis_name(axis),
        tsr_text_count(p->ranks / p->size[axis]).text, p->size[axis]);
  }
  tsr_text_add(text, "%s\n", p->ndim ? "" : "groups: none");
}

/* Stages are one after another in a pipeline, if ranks of pp run different nodes. */
static bool has_stages(const tsr_programs *programs) {
  bool any = false;
  for (int i = 0; i < programs->graph->nodes_count; i++)
    any |= programs->graph->nodes[i].stage != TSR_EVERY_STAGE;
  return any && programs->pipeline->stages > 1;
}

static void add_mesh(const tsr_report *r, tsr_text *text) {
  const tsr_parallel *p = r->parallel;
  const tsr_pipeline *pipeline = r->programs->pipeline;
  tsr_text_add(text, "mesh: ");
  if (p->ndim) tsr_parallel_topology(p, text);
  tsr_text_add(
      text, "%s%s rank%s; ", p->ndim ? ", " : "", tsr_text_count(p->ranks).text,
      p->ranks == 1 ? "" : "s");
  add_groups(p, text);
  tsr_text_add(
      text, "a step: %d microbatch%s of %s sample%s", pipeline->microbatches,
      pipeline->microbatches == 1 ? "" : "es", tsr_text_count(p->batch_size).text,
      p->batch_size == 1 ? "" : "s");
  if (has_stages(r->programs))
    tsr_text_add(text, " through %d stages, schedule %s", pipeline->stages, pipeline->name);
  if (pipeline->chunks > 1) tsr_text_add(text, " with %d chunks a stage", pipeline->chunks);
  tsr_text_add(text, "\n");
}

/* ---- memory ---- */

static void add_memory(const tsr_report *r, tsr_text *text) {
  const tsr_machine *m = r->machine;
  int64_t most = 0, all = 0;
  int stages = r->programs->pipeline->stages;
  tsr_text_add(text, "memory of each rank, its work at its fullest:\n");
  tsr_memory_print(r->programs, r->programs_count, text);
  for (int s = 0; s < stages; s++) {
    tsr_memory memory;
    tsr_memory_of(r->programs, r->programs_count, s, &memory);
    if (memory.total > most) most = memory.total;
    all += memory.total * (r->parallel->ranks / stages);
  }
  int64_t need = m->threads ? all : most;
  tsr_text_add(
      text, "  %s %s of the %s that a device has: it %s\n", m->threads ? "all ranks:" : "that is",
      tsr_text_bytes(need).text, tsr_text_bytes(m->memory).text,
      need <= m->memory ? "fits" : "does not fit");
}

/* ---- work ---- */

static bool is_alike(const tsr_estimate_stage *a, const tsr_estimate_stage *b) {
  return a->flops == b->flops && a->compute == b->compute && a->waits == b->waits &&
         a->communication == b->communication;
}

static void add_stage(
    const tsr_report *r, const tsr_estimate_stage *s, const char *label, double mean,
    tsr_text *text) {
  tsr_text_add(
      text, "  %-7s %10.4g %8.2f %10s %14s", label, s->flops, mean > 0 ? s->flops / mean : 1,
      tsr_text_seconds(s->compute).text, tsr_text_seconds(s->communication).text);
  if (!r->machine->threads)
    tsr_text_add(
        text, " %10s %10s", tsr_text_seconds(s->waits).text, tsr_text_seconds(s->idle).text);
  tsr_text_add(text, "\n");
}

static void add_work(const tsr_report *r, tsr_text *text) {
  const tsr_estimate_stage *stages = r->estimate->stages;
  int count = r->programs->pipeline->stages, begin = 0, most = 0;
  double sum = 0;
  for (int s = 0; s < count; s++) {
    sum += stages[s].flops;
    if (stages[s].flops > stages[most].flops) most = s;
  }
  double mean = sum / count;
  tsr_text_add(
      text, "work of each rank and step%s:\n",
      r->machine->threads ? "; times of all ranks together, on one host" : "");
  tsr_text_add(
      text, "  %-7s %10s %8s %10s %14s", "stage", "FLOP", "of mean", "compute", "communication");
  if (!r->machine->threads) tsr_text_add(text, " %10s %10s", "of it open", "idle");
  tsr_text_add(text, "\n");
  for (int s = 1; s <= count; s++) {
    if (s < count && is_alike(&stages[begin], &stages[s])) continue;
    char label[32];
    snprintf(label, sizeof label, s - begin > 1 ? "%d-%d" : "%d", begin, s - 1);
    add_stage(r, &stages[begin], label, mean, text);
    begin = s;
  }
  if (count > 1)
    tsr_text_add(
        text, "  skew: stage %d does %.2f times the mean\n", most,
        mean > 0 ? stages[most].flops / mean : 1);
}

/* ---- communication ---- */

/* What carries messages between devices, or in the memory of one host, and what decided. `nccl`:
 * the node that requires NCCL, or NULL. */
static const char *transport_of(const tsr_report *r, const tsr_node *nccl, const char **ret_why) {
  tsr_transport_choice choice = r->config->collectives.transport;
  *ret_why = choice == TSR_TRANSPORT_AUTO ? "auto: one process with all ranks"
                                          : "one process with all ranks";
  if (r->machine->threads) return "memory";
  if (nccl) return *ret_why = "transport=nccl in the graph", "nccl";
  *ret_why = choice != TSR_TRANSPORT_AUTO ? "collectives.transport"
             : r->machine->has_nccl       ? "auto: the machine has it, a process for each device"
                                          : "auto: the machine has no NCCL";
  bool is_nccl =
      choice == TSR_TRANSPORT_NCCL || (choice == TSR_TRANSPORT_AUTO && r->machine->has_nccl);
  return is_nccl ? "nccl" : "mpi";
}

static void add_transfer(const tsr_report *r, const tsr_estimate_transfer *t, tsr_text *text) {
  const char *why;
  tsr_text_add(
      text, "  %-14s %-4s %-10s %-9s %8s %12s %12s %10s\n", tsr_op_name(t->op),
      tsr_axis_name(t->axis), *t->path ? t->path : "none", transport_of(r, t->nccl, &why),
      tsr_text_count(t->count).text, tsr_text_bytes((int64_t)t->bytes).text,
      tsr_text_bytes((int64_t)t->sent).text, tsr_text_seconds(t->seconds).text);
}

static void add_sums(const tsr_report *r, const tsr_estimate_stage *s, tsr_text *text) {
  const char *between = "  sent over axes: ";
  for (int a = 0; a < TSR_AXES; a++) {
    double sent = 0;
    for (int i = 0; i < s->transfers_count; i++)
      if (s->transfers[i].axis == a) sent += s->transfers[i].sent;
    if (sent == 0) continue;
    tsr_text_add(text, "%s%s %s", between, tsr_axis_name(a), tsr_text_bytes((int64_t)sent).text);
    between = ", ";
  }
  between = "; over links: ";
  for (int l = 0; l < r->machine->links_count; l++) {
    double sent = 0;
    for (int i = 0; i < s->transfers_count; i++) sent += s->transfers[i].sent_over[l];
    if (sent == 0) continue;
    tsr_text_add(
        text, "%s%s %s", between, r->machine->links[l].name, tsr_text_bytes((int64_t)sent).text);
    between = ", ";
  }
  tsr_text_add(text, "\n");
}

/* One line for each reason. */
static void add_transports(const tsr_report *r, const tsr_estimate_stage *s, tsr_text *text) {
  const char *why, *reasons[2];
  int count = 0;
  for (int i = 0; i < s->transfers_count; i++) {
    const char *transport = transport_of(r, s->transfers[i].nccl, &why);
    bool seen = false;
    for (int k = 0; k < count; k++) seen |= !strcmp(reasons[k], why);
    if (seen) continue;
    reasons[count++] = why;
    tsr_text_add(text, "  transport: %s (%s)\n", transport, why);
  }
}

/* Of the stage whose ranks spend the most time on it. */
static void add_communication(const tsr_report *r, tsr_text *text) {
  int stages = r->programs->pipeline->stages, most = 0;
  for (int s = 1; s < stages; s++)
    if (r->estimate->stages[s].communication > r->estimate->stages[most].communication) most = s;
  const tsr_estimate_stage *s = &r->estimate->stages[most];
  tsr_text_add(text, "communication of each rank");
  if (stages > 1) tsr_text_add(text, " of stage %d, which has the most,", most);
  tsr_text_add(text, " and step:%s\n", s->transfers_count ? "" : " none");
  if (!s->transfers_count) return;
  tsr_text_add(
      text, "  %-14s %-4s %-10s %-9s %8s %12s %12s %10s\n", "collective", "axis", "path",
      "transport", "times", "bytes", "sent", "time");
  for (int i = 0; i < s->transfers_count; i++) add_transfer(r, &s->transfers[i], text);
  add_transports(r, s, text);
  add_sums(r, s, text);
}

/* Copies of activations, of the stage whose ranks spend the most time on them. */
static void add_copies(const tsr_report *r, tsr_text *text) {
  int stages = r->programs->pipeline->stages, most = 0;
  for (int s = 1; s < stages; s++)
    if (r->estimate->stages[s].copies > r->estimate->stages[most].copies) most = s;
  const tsr_estimate_stage *s = &r->estimate->stages[most];
  if (s->copies == 0) return;
  tsr_text_add(text, "copies of activations to the host and back, of each rank");
  if (stages > 1) tsr_text_add(text, " of stage %d, which has the most,", most);
  tsr_text_add(text, " and step: %s each way, ", tsr_text_bytes((int64_t)s->copied).text);
  tsr_quantity_print(TSR_QUANTITY_RATE, tsr_machine_host_rate(r->machine), text);
  tsr_text_add(
      text, ": %s, of it open %s\n", tsr_text_seconds(s->copies).text,
      tsr_text_seconds(s->copies_open).text);
}

/* ---- the step ---- */

static void add_shares(const tsr_report *r, tsr_text *text) {
  const tsr_estimate *e = r->estimate;
  int stages = r->programs->pipeline->stages;
  double compute = 0, waits = 0, copies = 0, idle = 0;
  for (int s = 0; s < stages; s++) {
    compute += e->stages[s].compute;
    waits += e->stages[s].waits;
    copies += e->stages[s].copies_open;
    idle += e->stages[s].idle;
  }
  if (r->machine->threads) {
    tsr_text_add(
        text, "  compute %.1f%%, communication %.1f%%\n", percent(compute, e->step),
        percent(waits, e->step));
    return;
  }
  double all = e->step * stages;
  tsr_text_add(
      text, "  mean of the ranks: compute %.1f%%, open communication %.1f%%, ",
      percent(compute, all), percent(waits, all));
  if (copies > 0) tsr_text_add(text, "open copies %.1f%%, ", percent(copies, all));
  tsr_text_add(text, "idle %.1f%%\n", percent(idle, all));
}

static void add_step(const tsr_report *r, tsr_text *text) {
  const tsr_estimate *e = r->estimate;
  int stages = r->programs->pipeline->stages;
  tsr_text_add(text, "step: %s", tsr_text_seconds(e->step).text);
  if (r->machine->threads) tsr_text_add(text, ", all tasks one after another on one host");
  else if (stages > 1)
    tsr_text_add(
        text, " = %s before the pipeline + %s in it + %s after it",
        tsr_text_seconds(e->before).text, tsr_text_seconds(e->step - e->before - e->after).text,
        tsr_text_seconds(e->after).text);
  tsr_text_add(text, "\n");
  add_shares(r, text);
  if (has_stages(r->programs))
    tsr_text_add(
        text, "  bubble of the pipeline: %.1f%%%s\n", fmax(0, 100 * e->times.bubble),
        r->machine->threads ? ", if each stage had a device of its own" : "");
  if (e->step > 0)
    tsr_text_add(
        text, "  %s %s%s a step, %.4g a second\n", tsr_text_count(r->tokens).text,
        r->has_positions ? "token" : "sample", r->tokens == 1 ? "" : "s",
        (double)r->tokens / e->step);
}

static void add_utilization(const tsr_report *r, tsr_text *text) {
  const tsr_estimate *e = r->estimate;
  double tokens = (double)r->tokens, flops = e->model.products + e->model.attention;
  if (flops == 0 || e->step <= 0 || tokens == 0) return;
  tsr_text_add(
      text, "MFU: %.1f%% = %.4g FLOP of the model / (%s device%s x %.4g FLOP/s of %s x %.4g s)\n",
      100 * e->utilization, flops, tsr_text_count(e->devices).text, e->devices == 1 ? "" : "s",
      tsr_machine_peak(r->machine, e->dtype), tsr_machine_dtype_name(e->dtype), e->step);
  double weights = e->model.forward / tokens / 2;
  tsr_text_add(
      text,
      "  of the model: %.3g N %s, N = %s weights of its products, and %.4g of attention (causal: "
      "its half)\n",
      weights > 0 ? e->model.products / tokens / weights : 0,
      r->has_positions ? "tokens" : "samples", tsr_text_count((int64_t)(weights + 0.5)).text,
      e->model.attention);
}

/* What a graph of one's own declares by `tensors`: whole, and of a rank. */
static void add_tensors(const tsr_report *r, tsr_text *text) {
  const tsr_graph *g = r->programs->graph;
  if (!r->config->tensors) return;
  tsr_text_add(text, "tensors: whole, and of each rank\n");
  for (int v = 0; v < g->values_count; v++) {
    const tsr_value *value = &g->values[v];
    const tsr_tensor *t = &r->programs->of_stage[0]->tensors[v];
    for (int s = 1; s < r->programs->pipeline->stages && t->segment == TSR_SEGMENT_ABSENT; s++)
      t = &r->programs->of_stage[s]->tensors[v];
    if (!tsr_yaml_get(r->config->tensors, value->name) || t->segment == TSR_SEGMENT_ABSENT)
      continue;
    tsr_value whole = *value; /* without padding */
    if (value->param >= 0) tsr_param_real_shape(&g->params[value->param], whole.shape);
    tsr_text_add(
        text, "  %s %s %s %s bytes, ", value->name, tsr_dtype_name(value->dtype),
        tsr_shape_text(value->ndim, whole.shape).text,
        tsr_text_count(tsr_dtype_size(value->dtype, tsr_value_elements(&whole))).text);
    tsr_text_add(
        text, "%s %s bytes\n", tsr_shape_text(t->ndim, t->shape).text,
        tsr_text_count(tsr_tensor_bytes(t)).text);
  }
}

void tsr_report_print(const tsr_report *r, tsr_text *text) {
  tsr_plan plan;
  tsr_plan_make(r->programs->of_stage[0], &plan);
  tsr_machine_print(r->machine, text);
  tsr_text_add(text, "  taken       %s\n", r->machine_why);
  add_mesh(r, text);
  tsr_text_add(
      text, "model: %s, %s parameters, products in %s\n", r->graph->name,
      tsr_text_count(plan.parameters).text, tsr_machine_dtype_name(r->estimate->dtype));
  tsr_plan_print_trained(r->programs->graph, text);
  tsr_numerics_describe(r->config, text);
  add_tensors(r, text);
  tsr_stage_layers_print(r->config, r->graph, text);
  add_memory(r, text);
  add_work(r, text);
  add_communication(r, text);
  add_copies(r, text);
  add_step(r, text);
  add_utilization(r, text);
  tsr_report_advise(r, text);
}

/* ---- the chart ---- */

tsr_pipeline_times tsr_report_pipeline_times(tsr_arena *arena, const tsr_report *r) {
  const tsr_pipeline *pipeline = r->programs->pipeline;
  const tsr_pipeline_costs *costs = &r->estimate->costs;
  int count = pipeline->stages * pipeline->chunks;
  const double *from[] = {costs->forward, costs->backward, costs->weights};
  double *to[3];
  for (int k = 0; k < 3; k++) {
    to[k] = tsr_arena_array(arena, double, count);
    for (int i = 0; i < count; i++) to[k][i] = 1e3 * from[k][i];
  }
  tsr_pipeline_costs scaled = {to[0], to[1], to[2], 1e3 * costs->send};
  tsr_pipeline_times times;
  tsr_pipeline_time(arena, pipeline, &scaled, &times);
  return times;
}

void tsr_report_gantt(tsr_arena *arena, const tsr_report *r, int columns, tsr_text *text) {
  tsr_pipeline_times times = tsr_report_pipeline_times(arena, r);
  tsr_text_add(
      text, "the pipeline over time, ms%s:\n",
      r->machine->threads ? ", as if each stage had a device of its own" : "");
  tsr_pipeline_gantt(r->programs->pipeline, &times, columns, text);
}
