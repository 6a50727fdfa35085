// SPDX-License-Identifier: Apache-2.0
/* Fused tasks: a program for a target with fused kernels is proved, and the verifier names each
 * fault in one. No device is needed: nothing runs. */
#include "sample.h"
#include "schedule/fuse.h"
#include "tests/check.h"
#include "tests/printed.h"
#include <string.h>

static int64_t two_rows(int64_t columns) { return (void)columns, 2; }

static const tsr_target fuses_all = {
    .fuses = 1u << TSR_FUSED_EPILOGUE | 1u << TSR_FUSED_LINEAR_CROSS_ENTROPY |
             1u << TSR_FUSED_SUM_NORM | 1u << TSR_FUSED_NORM_DX_SUM | 1u << TSR_FUSED_UPDATES |
             1u << TSR_FUSED_NORMS | 1u << TSR_FUSED_CASTS | 1u << TSR_FUSED_GEMMS,
    .epilogues = TSR_EPILOGUE_BIAS | TSR_EPILOGUE_RESIDUAL | TSR_EPILOGUE_GELU | TSR_EPILOGUE_HALF,
    .exact = true,
    .tile_rows = two_rows};

/* Two blocks of norms, GEMMs with biases and gelus, two of them of one input, residuals; a
 * classifier. */
static tsr_graph *make_graph(tsr_arena *arena) {
  tsr_graph *g = tsr_graph_new(arena, "fused", (tsr_units){.batch = 1, .sequence = 1, .tp = 1});
  harness_inputs(g, "x 4,8; t 4 tokens");
  harness_params(
      g, "n1 8; c1 8; n2 8; c2 8; w1 16,8; b1 16; w2 8,16; b2 8; w3 8,8; b3 8; w4 8,8; b4 8; head "
         "12,8");
  harness_calls(
      g, "h: layernorm(x, n1, c1); u: linear(h, w1, b1); a: gelu(u); d: linear(a, w2, b2)\n"
         "y: add(x, d); m: layernorm(y, n2, c2); v: linear(m, w3, b3); g: linear(m, w4, b4)\n"
         "vg: mul(v, g); z: add(y, vg); logits: linear(z, head)\n"
         "loss: cross_entropy(logits, t, valid: 11)");
  g->loss = harness_find(g, "loss");
  return g;
}

static harness compile_graph(tsr_arena *arena, tsr_graph *g, tsr_dtype precision) {
  static const tsr_optimizer adamw = HARNESS_ADAMW(0.5);
  harness_options o = {
      .dp = 1, .tp = 1, .threads = 1, .microbatches = 1, .batch_units = 1, .tp_units = 1};
  o.optimizer = &adamw;
  o.precision = precision;
  harness h;
  tsr_diags *diags = tsr_diags_new(arena);
  harness_target = fuses_all;
  if (!harness_compile(g, &o, &h, diags)) tsr_diags_print(diags, stderr), abort();
  return h;
}

static harness compile(tsr_arena *arena, tsr_dtype precision) {
  return compile_graph(arena, make_graph(arena), precision);
}

static tsr_task *find(tsr_program *p, tsr_fused_form form) {
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].fused == form) return &p->tasks[i];
  return NULL;
}

static int index_of(const tsr_program *p, const tsr_task *t) { return (int)(t - p->tasks); }

/* ---- faults; each spoils a copy ---- */

static void swap_nodes(tsr_program *p) {
  tsr_task *t = find(p, TSR_FUSED_EPILOGUE);
  int first = t->nodes[0];
  t->nodes[0] = t->nodes[1];
  t->nodes[1] = first;
}

static void lose_node(tsr_program *p) { find(p, TSR_FUSED_UPDATES)->nodes_count--; }

static void read_another(tsr_program *p) {
  tsr_task *t = find(p, TSR_FUSED_SUM_NORM);
  t->inputs[0] = t->inputs[t->inputs_count - 1];
}

static void widen_pieces(tsr_program *p) {
  tsr_norm_pieces *norms = (tsr_norm_pieces *)find(p, TSR_FUSED_NORMS)->norm;
  norms[3].whole++;
}

static void swap_sums(tsr_program *p) {
  tsr_task *t = find(p, TSR_FUSED_NORMS);
  tsr_tensor first = t->outputs[0];
  t->outputs[0] = t->outputs[1];
  t->outputs[1] = first;
}

static void lose_input(tsr_program *p) { find(p, TSR_FUSED_NORM_DX_SUM)->inputs_count--; }

/* gelu's input, which the backward pass reads */
static void elide_what_is_read(tsr_program *p) {
  for (int i = 0; i < p->tasks_count; i++) {
    tsr_task *t = &p->tasks[i];
    if (t->fused != TSR_FUSED_EPILOGUE || t->outputs_count < 2) continue;
    p->tensors[t->outputs[0].value].segment = TSR_SEGMENT_ABSENT;
    t->outputs++;
    t->outputs_count--;
    return;
  }
}

static void cover_another(tsr_program *p) {
  find(p, TSR_FUSED_LINEAR_CROSS_ENTROPY)->covered[1].op = TSR_OP_CE_LOSS;
}

static void cut_tiles(tsr_program *p) { find(p, TSR_FUSED_LINEAR_CROSS_ENTROPY)->tiles.period = 3; }

static tsr_task *find_gemms(tsr_program *p, tsr_op op) {
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].fused == TSR_FUSED_GEMMS && p->tasks[i].op == op) return &p->tasks[i];
  return NULL;
}

/* The gradient of w2, which has another input, instead of one of w3 and w4. */
static void unite_others(tsr_program *p) {
  tsr_task *t = find_gemms(p, TSR_OP_LINEAR_DW);
  for (int i = 0; i < p->tasks_count; i++) {
    const tsr_task *of = &p->tasks[i];
    if (of->op != TSR_OP_LINEAR_DW || of->fused || of->node < t->nodes[0]) continue;
    t->nodes[1] = t->node = of->node;
    t->inputs[2] = of->inputs[0];
    t->inputs[3] = of->inputs[1];
    t->outputs[1] = of->outputs[0];
    return;
  }
}

static void widen_a_result(tsr_program *p) { find_gemms(p, TSR_OP_LINEAR)->outputs[1].shape[1]++; }

static void lose_a_result(tsr_program *p) { find_gemms(p, TSR_OP_LINEAR)->outputs_count--; }

static void add_a_residual(tsr_program *p) { find_gemms(p, TSR_OP_LINEAR)->inputs[2].ndim = 2; }

static void sum_in_units(tsr_program *p) { find_gemms(p, TSR_OP_LINEAR_DW)->sum.batch = 2; }

/* Behind the product that reads one of its results. */
static void run_too_late(tsr_program *p) {
  const tsr_task *t = find_gemms(p, TSR_OP_LINEAR);
  int from = index_of(p, t);
  sample_move_task(p, from, from + 1);
}

static void write_more(tsr_program *p) { find(p, TSR_FUSED_EPILOGUE)->outputs_count++; }

/* A fused task in front of the task that makes its last input. */
static void run_too_early(tsr_program *p) {
  const tsr_task *t = find(p, TSR_FUSED_NORM_DX_SUM);
  int value = t->inputs[t->inputs_count - 1].value, from = index_of(p, t), to = from;
  for (int i = 0; i < from; i++)
    for (int o = 0; o < p->tasks[i].outputs_count; o++)
      if (p->tasks[i].outputs[o].value == value) to = i;
  sample_move_task(p, from, to);
}

/* rule: the format of the verifier's message (check_rules.py compares them with its sources). */
static const struct {
  const char *rule;
  void (*spoil)(tsr_program *p);
  const char *text; /* of the finding */
} faults[] = {
    {"it covers nodes that are no %s", swap_nodes, "it covers nodes that are no epilogue"},
    {"it has %d inputs, its nodes %d", lose_node, "it has 78 inputs, its nodes 72"},
    {"its %s %d is '%s', its nodes' is '%s'", read_another, "its input 0 is 'c2', its nodes' is"},
    {"its %s %d is '%s', its nodes' is '%s'", lose_input,
     "its input 5 is 'no value', its nodes' is"},
    {"it elides '%s', which others read", elide_what_is_read, "it elides 'u', which others read"},
    {"it covers tasks that are not those of its nodes", cover_another,
     "it covers tasks that are not those of its nodes"},
    {"its tiles of %lld rows do not divide the %lld of '%s' as its sums", cut_tiles,
     "its tiles of 2 rows do not divide the 4 of 'z' as its sums"},
    {"it has %d outputs, its nodes %d", write_more, "it has 3 outputs, its nodes 2"},
    {"its pieces are not of '%s', or not '%s'", widen_pieces, "its pieces are not of 'd."},
    {"its %s %d is '%s', its nodes' is '%s'", swap_sums, "its output 0 is 'norm_stats."},
    {"the %s of its GEMMs are not alike", unite_others, "the inputs of its GEMMs are not alike"},
    {"the %s of its GEMMs are not alike", widen_a_result, "the results of its GEMMs are not alike"},
    {"the %s of its GEMMs are not alike", add_a_residual, "the biases of its GEMMs are not alike"},
    {"it covers nodes that are no %s", lose_a_result, "it covers nodes that are no gemms"},
    {"", sum_in_units, "its record"},
    {"", run_too_late, "reads 'v', whose bytes"},
    {"", run_too_early, "(layernorm_dx"}};

static void check_fault(int index) {
  tsr_arena *arena = tsr_arena_new();
  harness h = compile(arena, TSR_F32);
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_verify_mesh mesh = sample_mesh(&h.parallel);
  tsr_program *p = h.programs.of_stage[0];
  faults[index].spoil(p);
  CHECK_AT(!tsr_programs_verify(arena, &h.programs, &mesh, diags), "fault %d", index);
  const char *said = printed_diags(arena, diags);
  CHECK_AT(strstr(said, faults[index].text) && strstr(said, "task "), "%d: %s", index, said);
  tsr_arena_free(arena);
}

/* What is fused, and that it needs no more memory than the same program without fused tasks. A
 * table's gradient has a test of its own (test_delay_gradients.c). */
static void check_sound(void) {
  tsr_arena *arena = tsr_arena_new();
  harness h = compile(arena, TSR_F32), plain;
  tsr_program *p = h.programs.of_stage[0];
  for (int form = 1; form < TSR_FUSED_FORMS; form++) { /* the others are of half precision */
    if (form == TSR_FUSED_EMBEDDING_DW_SUM) continue;
    bool half = form == TSR_FUSED_LOGITS_GRADIENT || form == TSR_FUSED_CASTS;
    CHECK_AT(
        (find(p, (tsr_fused_form)form) != NULL) == !half, "%s",
        tsr_fused_name((tsr_fused_form)form));
  }
  int64_t work = p->bytes[TSR_SEGMENT_WORK];
  tsr_target none = tsr_cpu_target(&h.cpu);
  none.fuses = 0;
  plain.programs = tsr_programs_make(h.placed, &p->lowering, p->pipeline, &none);
  CHECK(work <= plain.programs.of_stage[0]->bytes[TSR_SEGMENT_WORK]);
  CHECK(p->tasks_count < plain.programs.of_stage[0]->tasks_count);
  tsr_arena_free(arena);
}

/* In half precision the parameters are cast by one task. */
static void check_casts(void) {
  tsr_arena *arena = tsr_arena_new();
  harness h = compile(arena, TSR_BF16);
  const tsr_task *t = find(h.programs.of_stage[0], TSR_FUSED_CASTS);
  CHECK_INT(t ? t->nodes_count : 0, 13);
  tsr_arena_free(arena);
}

/* Which GEMMs are united: of one input and shape, all with a bias or none, and none that reads
 * another one's result. The names of batches, in the order of the program. */
static void check_gemms(const char *calls, const char *want) {
  tsr_arena *arena = tsr_arena_new();
  tsr_graph *g = tsr_graph_new(arena, "gemms", (tsr_units){.batch = 1, .sequence = 1, .tp = 1});
  tsr_text names = {0};
  harness_inputs(g, "x 64,8; t 64,8");
  harness_params(g, "w1 8,8; w2 8,8; w3 8,8; v 16,8; u 8,16; b1 8; b2 8");
  harness_calls(g, calls);
  g->loss = harness_find(g, "loss");
  harness h = compile_graph(arena, g, TSR_F32);
  tsr_diags *diags = tsr_diags_new(arena);
  tsr_verify_mesh mesh = sample_mesh(&h.parallel);
  CHECK(tsr_programs_verify(arena, &h.programs, &mesh, diags));
  const tsr_program *p = h.programs.of_stage[0];
  for (int i = 0; i < p->tasks_count; i++)
    if (p->tasks[i].fused == TSR_FUSED_GEMMS)
      tsr_text_add(&names, "%s;", tsr_task_op_name(p, &p->tasks[i]).text);
  CHECK_AT(
      !strcmp(names.length ? names.data : "", want), "%s: '%s', not '%s'", calls,
      names.length ? names.data : "", want);
  tsr_text_free(&names);
  tsr_arena_free(arena);
}

#define PRODUCT "; s: mul(a, b); loss: mse(s, t)"
#define SUM "; s: add(a, b); loss: mse(s, t)"

/* A residual is not in a batch, and the gradients of a product's factors are not kept for one. */
static void check_united(void) {
  check_gemms("y: gelu(x); a: linear(y, w1); b: linear(y, w2)" PRODUCT, "2 linear;");
  check_gemms("y: gelu(x); a: linear(y, w1); b: linear(y, w2)" SUM, "2 linear_dw;");
  check_gemms(
      "y: gelu(x); a: linear(y, w1, b1); c: linear(y, v); b: linear(y, w2, b2); d: linear(c, u)\n"
      "e: add(b, d); s: add(a, e); loss: mse(s, t)",
      "2 linear+add;2 linear_dw;");
  check_gemms("y: gelu(x); a: linear(y, w1, b1); b: linear(y, w2)" PRODUCT, "");
  check_gemms("y: gelu(x); z: gelu(y); a: linear(y, w1); b: linear(z, w2)" SUM, "");
  check_gemms("a: linear(x, w1); b: linear(a, w2)" SUM, "");
}

int main(void) {
  check_sound();
  check_united();
  check_casts();
  for (int i = 0; i < (int)(sizeof faults / sizeof *faults); i++) check_fault(i);
  return check_done("schedule.verify_fused");
}
