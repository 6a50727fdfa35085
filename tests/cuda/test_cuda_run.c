/* Training on the emulated device: the same losses, norms and weights as on the CPU, to rounding,
 * and the same bits on every mesh, although a product has other bits for another shape
 * (emulated/product.c). */
#include "device/cuda_tail.h"
#include "tests/check.h"
#include "tests/cuda/emulated/device.h"
#include "tests/run/harness.h"
#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, SAMPLES = 4 };
#define HALF_TOLERANCE 1e-2f

typedef struct {
  const char *name, *inputs, *params, *calls;
  float tolerance;
} model;

static const model models[] = {
    {"mlp", "x $B,7; y $B,3", "w1 12,7 0; b1 12 0; w2 3,12 1; b2 3",
     "h: linear(x, w1, b1); t: tanh(h); z: linear(t, w2, b2); loss: mse(z, y)", 1e-5f},
    {"tokens", "tokens $B,$T tokens; targets $B,$T tokens", "wte 24,16 0",
     "x: embedding(tokens, wte); logits: linear(x, wte)\n"
     "loss: cross_entropy(logits, targets, valid: 21)",
     1e-5f},
    {"norms", "tokens $B,$T tokens; targets $B,$T tokens", "wte 24,16 0; n1 16; b1 16; n2 16",
     "e: embedding(tokens, wte); x: layernorm(e, n1, b1); g: gelu(x); y: rmsnorm(g, n2)\n"
     "logits: linear(y, wte); loss: cross_entropy(logits, targets, valid: 21)",
     1e-5f},
    {"dropout", "tokens $B,$T tokens; targets $B,$T tokens", "wte 24,16 0",
     "e: embedding(tokens, wte); x: dropout(e, p: 0.2); logits: linear(x, wte)\n"
     "loss: cross_entropy(logits, targets, valid: 21)",
     1e-5f},
    {"attention", "tokens $B,$T tokens; targets $B,$T tokens",
     "wte 24,16 0; wq 32,16 0; wk 16,16 0; wv 16,16 0; wo 16,32 1",
     "x: embedding(tokens, wte); q: linear(x, wq); k: linear(x, wk); v: linear(x, wv)\n"
     "a: attention(q, k, v, head_dim: 4, dropout: 0.1); o: linear(a, wo); y: add(x, o)\n"
     "logits: linear(y, wte); loss: cross_entropy(logits, targets, valid: 21)",
     1e-5f},
    {"ends", "tokens $B,$T tokens; targets $B,$T tokens",
     "wte 24,16 0; w1 16,16; b1 16; w2 16,16; b2 16",
     "x: embedding(tokens, wte); h: linear(x, w1, b1); g: gelu(h); o: linear(g, w2, b2)\n"
     "y: add(x, o); logits: linear(y, wte); loss: cross_entropy(logits, targets, valid: 21)",
     1e-5f}};
enum { MODELS = sizeof models / sizeof *models, ENDS = MODELS - 1 };

/* What products' ends do in all stages' programs: biases, residuals, gelus. */
static int tails[3];

static void count_tails(const harness *h) {
  memset(tails, 0, sizeof tails);
  for (int s = 0; s < h->programs.order->stages; s++) {
    const tsr_program *p = h->programs.of_stage[s];
    const cuda_call c = {.base = {.program = p}};
    for (int i = 0; i < p->tasks_count; i++) {
      cuda_tail tail = cuda_tail_of(&c, &p->tasks[i]);
      tails[0] += tail.bias != NULL, tails[1] += tail.residual != NULL,
          tails[2] += tail.gelu != NULL;
    }
  }
}

static const tsr_optimizer adamw = {
    .kind = TSR_RULE_ADAMW,
    .beta1 = 0.9,
    .beta2 = 0.999,
    .eps = 1e-8,
    .weight_decay = 0.1,
    .clip_max_norm = 1};

static harness_trace train(tsr_arena *arena, const model *m, harness_options o) {
  o.threads = 1;
  o.batch_units = 4;
  o.tp_units = 4;
  o.optimizer = &adamw;
  o.vocabulary = 21;
  tsr_graph *g = tsr_graph_new(arena, m->name, (tsr_units){4, 0, 4});
  harness_inputs(g, harness_sized(arena, m->inputs, SAMPLES / o.microbatches, 6));
  harness_params(g, m->params);
  harness_calls(g, m->calls);
  g->loss = harness_find(g, "loss");
  tsr_graph_output(g, "loss", g->loss);
  harness h = harness_open(arena, g, &o);
  harness_trace t = {0};
  int64_t n;
  count_tails(&h);
  for (int step = 0; step < STEPS; step++) {
    harness_step(&h, step);
    harness_keep(arena, &t, harness_read(arena, &h, "loss", &n), 1);
    harness_keep(arena, &t, harness_read(arena, &h, "clip", &n), 2);
  }
  harness_keep_weights(arena, &h, &t);
  harness_close(&h);
  return t;
}

static harness_options alone(int microbatches) {
  return (harness_options){.dp = 1, .tp = 1, .microbatches = microbatches};
}

static void check(const model *m, int microbatches, tsr_dtype precision) {
  tsr_arena *arena = tsr_arena_new();
  const tsr_device *device = harness_device;
  tsr_scratch_rule *scratch = harness_scratch;
  harness_options o = alone(microbatches);
  o.precision = precision;
  harness_trace got = train(arena, m, o);
  harness_device = NULL;
  harness_scratch = tsr_cpu_scratch;
  harness_trace want = train(arena, m, o);
  harness_device = device;
  harness_scratch = scratch;
  float worst = 0, largest = 0;
  int64_t at = 0;
  CHECK_INT(got.count, want.count);
  for (int64_t i = 0; i < want.count; i++) {
    float apart = fabsf(got.data[i] - want.data[i]);
    if (fabsf(want.data[i]) > largest) largest = fabsf(want.data[i]);
    if (!(apart <= worst)) worst = apart, at = i;
  }
  float tolerance = precision == TSR_F32 ? m->tolerance : HALF_TOLERANCE;
  CHECK_AT(
      worst <= tolerance * largest, "%s, %s, %d microbatches: number %lld is %.9g, not %.9g",
      m->name, tsr_dtype_name(precision), microbatches, (long long)at, got.data[at], want.data[at]);
  tsr_arena_free(arena);
}

static void check_meshes(const model *m, tsr_dtype precision) {
  static const harness_options meshes[] = {
      {.dp = 2, .tp = 1, .microbatches = 1},
      {.dp = 1, .tp = 2, .microbatches = 1},
      {.dp = 1, .tp = 4, .microbatches = 2},
      {.dp = 2, .tp = 2, .microbatches = 1},
      {.dp = 1, .tp = 1, .pp = 2, .microbatches = 4, .order = TSR_ORDER_1F1B},
      {.dp = 2, .tp = 1, .microbatches = 2, .zero = 3},
      {.dp = 2, .tp = 2, .microbatches = 1, .recompute = {.kind = TSR_RECOMPUTE_MAPS}}};
  tsr_arena *arena = tsr_arena_new();
  harness_options one = alone(1);
  one.precision = precision;
  harness_trace want = train(arena, m, one);
  if (m == &models[ENDS]) CHECK(tails[0] == 2 && tails[1] == 1 && tails[2] == 1);
  for (size_t i = 0; i < sizeof meshes / sizeof *meshes; i++) {
    harness_options o = meshes[i];
    o.precision = precision;
    harness_trace got = train(arena, m, o);
    int64_t at = 0;
    CHECK_INT(got.count, want.count);
    while (at < want.count && !memcmp(&got.data[at], &want.data[at], sizeof *got.data)) at++;
    CHECK_AT(
        at == want.count, "%s, %s, mesh %d: number %lld is %.9g, not %.9g", m->name,
        tsr_dtype_name(precision), (int)i, (long long)at, got.data[at], want.data[at]);
  }
  tsr_arena_free(arena);
}

static void check_near(const model *m) {
  static const tsr_dtype precisions[] = {TSR_F32, TSR_BF16, TSR_F16};
  for (int microbatches = 1; microbatches <= 2; microbatches++)
    for (int p = 0; p < 3; p++) check(m, microbatches, precisions[p]);
}

/* In products' ends, and where the library has none. */
static void check_fast(void) {
  test_device_open(true);
  check_near(&models[ENDS]);
  setenv("EMULATED_CUDA", "ends", 1);
  check_near(&models[ENDS]);
}

int main(void) {
  for (int i = 0; i < MODELS; i++) {
    check_meshes(&models[i], TSR_F32);
    check_meshes(&models[i], TSR_BF16);
  }
  for (int i = 0; i < MODELS; i++) check_near(&models[i]);
  check_fast();
  return check_done("cuda.run");
}
