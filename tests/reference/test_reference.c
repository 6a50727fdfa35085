// SPDX-License-Identifier: Apache-2.0
/* Logits, losses, gradients and ten steps of four optimizers against PyTorch, on one rank and on
 * dp 2 x tp 2, where every gradient and product is put together from the ranks' parts. */
#include "tests/check.h"
#include "tests/replicas.h"
#include "tests/reference/session.h"
#include <stdlib.h>

enum { STEPS = 10 };
static const double RELATIVE = 1e-5, FINAL_ABSOLUTE = 2e-4;

static const char *const batches[2][3] = {
    {"training_config.batch_size=4", "training_config.batch_size=2"},
    {"training_config.batch_size=16", "training_config.batch_size=8"}};
static const char *const adamw[] = {
    "training_config.optimizer.type=AdamW",       "training_config.optimizer.beta1=0.9",
    "training_config.optimizer.beta2=0.95",       "training_config.optimizer.epsilon=1.0e-8",
    "training_config.optimizer.weight_decay=0.1", NULL};
static const char *const adam[] = {
    "training_config.optimizer.type=Adam",        "training_config.optimizer.beta1=0.9",
    "training_config.optimizer.beta2=0.95",       "training_config.optimizer.epsilon=1.0e-8",
    "training_config.optimizer.weight_decay=0.1", NULL};
static const char *const sgd[] = {
    "training_config.optimizer.type=SGD", "training_config.optimizer.momentum=0.9", NULL};

typedef struct {
  const char *prefix; /* of the reference's tensors */
  const char *const *rule, *const *more;
} run;
static const run runs[] = {
    {"adamw", adamw,
     (const char *const[]){
         "training_config.optimizer.lr=0.001", "training_config.use_clip_grad_norm=true",
         "training_config.clip_grad_norm_max_norm=1.0", NULL}},
    {"sgd", sgd,
     (const char *const[]){
         "training_config.optimizer.lr=0.05", "training_config.optimizer.nesterov=true",
         "training_config.optimizer.weight_decay=0.01", NULL}},
    {"amsgrad", adamw,
     (const char *const[]){
         "training_config.optimizer.lr=0.05", "training_config.optimizer.amsgrad=true", NULL}},
    {"adam", adam, (const char *const[]){"training_config.optimizer.lr=0.001", NULL}},
};

/* Beside 1 rank and dp 2 x tp 2 (sides 1 and 2), every other way of sharing the work. */
static const char *const variants[][9] = {
    {"mesh.axes=[pp, dp]", "mesh.shape=[2, 2]", "pipeline.microbatches=2", "zero.stage=3",
     "schedule.recompute=full", "schedule.all_reduce_overlap=true", NULL},
    {"mesh.axes=[pp, tp]", "mesh.shape=[2, 2]", "pipeline.microbatches=4",
     "pipeline.schedule=zb_h1", "schedule.recompute=selective", NULL},
    {"mesh.axes=[dp, cp]", "mesh.shape=[2, 2]", "zero.stage=2", NULL},
    {"mesh.axes=[ep, tp]", "mesh.shape=[2, 2]", NULL},
    {"mesh.axes=[cp, tp]", "mesh.shape=[2, 2]", "device_config.cp_layout=zigzag", "zero.stage=1",
     NULL},
};
enum { VARIANTS = sizeof variants / sizeof *variants, SIDES = 2 };

/* Hugging Face's balance loss, with which olmoe trains, is of one microbatch. */
static bool is_one_microbatch(const char *model) { return !strcmp(model, "olmoe"); }

/* Weights are quantised unit by unit of tp, so the numbers are theirs where tp has one unit. */
static bool compares(const char *model, int side) {
  bool has_tp = side == 2 || (side > SIDES && strstr(variants[side - SIDES - 1][0], "tp"));
  return strcmp(model, "llama_qlora") || !has_tp;
}

static session *
open_run(const char *model, int side, int accumulation, const run *r, bool generation) {
  const char *sets[32];
  int count = 0;
  bool table = !strcmp(model, "mlp") || !strcmp(model, "linear_regression");
  sets[count++] = batches[table][accumulation == 2];
  sets[count++] = accumulation == 2 ? "training_config.gradient_accumulation_steps=2"
                                    : "training_config.gradient_accumulation_steps=1";
  for (int i = 0; r->rule[i]; i++) sets[count++] = r->rule[i];
  for (int i = 0; r->more[i]; i++) sets[count++] = r->more[i];
  for (int i = 0; side > SIDES && variants[side - SIDES - 1][i]; i++)
    sets[count++] = variants[side - SIDES - 1][i];
  if (is_one_microbatch(model)) sets[count++] = "pipeline.microbatches=1";
  sets[count] = NULL;
  int n = side > SIDES ? 1 : side;
  session_options o = {model, n, n, side > SIDES ? 4 : 0, sets, generation};
  return session_open(&o);
}

static const char *session_mesh(const session *s) {
  tsr_text text = {0};
  tsr_parallel_topology(s->parallel, &text);
  const char *mesh = tsr_arena_strdup(s->arena, text.data);
  tsr_text_free(&text);
  return mesh;
}

/* Differences relative to `scale`. */
static void compare(
    const session *s, const char *what, const float *got, const float *want, int64_t n,
    double scale, double executable) {
  double worst = 0;
  int64_t at = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = fabs((double)got[i] - want[i]);
    if (!(d <= worst)) worst = d, at = i;
  }
  CHECK_AT(
      worst <= executable * scale, "%s, %s: %s differs by %.3g of %.3g: [%lld] is %.9g, not %.9g",
      s->options.name, session_mesh(s), what, worst, scale, (long long)at, got[at], want[at]);
}

static double largest(const float *x, int64_t n) {
  double most = 0;
  for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(x[i]));
  return most;
}

/* Momentum's state after the first step of plain SGD is the gradient itself. */
static void check_gradients(const char *model, int side) {
  const run plain = {
      "", sgd,
      (const char *const[]){
          "training_config.optimizer.lr=0.05", "training_config.optimizer.weight_decay=0", NULL}};
  session *s = open_run(model, side, 1, &plain, true);
  bool routes = !session_replays(s); /* the logits' program chooses experts itself */
  float loss, norm, scale;
  int64_t all = tsr_reference_elements(s->ref, "logits"), covered = 0, in_file = 0;
  float *logits = routes ? session_logits(s) : NULL;
  const float *want_logits = tsr_reference_f32(s->ref, "logits", NULL, NULL);
  if (routes) compare(s, "logits", logits, want_logits, all, largest(want_logits, all), RELATIVE);
  session_step(s, 0, &loss, &norm);
  const float *want_loss = tsr_reference_f32(s->ref, "loss", NULL, NULL);
  compare(s, "loss", &loss, want_loss, 1, fabs(want_loss[0]), RELATIVE);
  for (int p = 0; p < s->training.placed->params_count; p++) {
    if (session_state(s, p) < 0) { /* without a gradient there, too */
      const char *hf_name = s->training.placed->params[p].hf_name;
      CHECK(!tsr_reference_has(s->ref, tsr_arena_printf(s->arena, "grad.%s", hf_name)));
      covered += session_elements(s, p);
      continue;
    }
    float *want = session_reference(s, "grad.", p, &scale);
    float *got = session_value(s, session_state(s, p));
    const char *name = s->training.placed->params[p].name;
    compare(s, name, got, want, session_elements(s, p), scale, RELATIVE);
    covered += session_elements(s, p);
    free(want);
    free(got);
  }
  for (int i = 0; i < tsr_reference_count(s->ref); i++)
    if (!strncmp(tsr_reference_name(s->ref, i), "param.", 6))
      in_file += tsr_reference_elements(s->ref, tsr_reference_name(s->ref, i));
  CHECK_INT(covered, in_file);
  free(logits);
  session_close(s);
}

static void check_final(const session *s, const char *prefix) {
  const char *names = tsr_arena_printf(s->arena, "%s.final.", prefix);
  for (int p = 0; p < s->training.placed->params_count; p++) {
    /* Gradients of biases of keys that do not turn are zero but for rounding, which AdamW makes steps
     * of: all of GPT-2's, and half of each head's of GPT-NeoX. */
    if (session_is_part(s, p, "attn.c_attn.bias#1/3") ||
        session_is_part(s, p, "attention.query_key_value.bias#8:16/24"))
      continue;
    float scale;
    float *want = session_reference(s, names, p, &scale);
    float *got = session_value(s, tsr_executable_param(s->train, p));
    const char *what = tsr_arena_printf(s->arena, "final %s", s->training.placed->params[p].name);
    compare(s, what, got, want, session_elements(s, p), 1, FINAL_ABSOLUTE);
    free(want);
    free(got);
  }
}

static bool has_final(const session *s, const char *prefix) {
  for (int i = 0; i < tsr_reference_count(s->ref); i++)
    if (!strncmp(tsr_reference_name(s->ref, i), prefix, strlen(prefix)) &&
        strstr(tsr_reference_name(s->ref, i), ".final."))
      return true;
  return false;
}

static void check_run(const char *model, int side, int accumulation, const run *r) {
  session *s = open_run(model, side, accumulation, r, false);
  char name[32];
  snprintf(name, sizeof name, "%s.losses", r->prefix);
  if (tsr_reference_has(s->ref, name)) {
    const float *losses = tsr_reference_f32(s->ref, name, NULL, NULL);
    snprintf(name, sizeof name, "%s.norms", r->prefix);
    const float *norms = tsr_reference_f32(s->ref, name, NULL, NULL);
    for (int i = 0; i < STEPS; i++) {
      float loss, norm;
      session_step(s, i, &loss, &norm);
      char what[64];
      snprintf(what, sizeof what, "%s loss %d (accumulation %d)", r->prefix, i, accumulation);
      compare(s, what, &loss, &losses[i], 1, fabs(losses[i]), RELATIVE);
      snprintf(what, sizeof what, "%s norm %d (accumulation %d)", r->prefix, i, accumulation);
      compare(s, what, &norm, &norms[i], 1, fabs(norms[i]), RELATIVE);
    }
    CHECK(!differing_replicas(s->arena, s->train));
    if (has_final(s, r->prefix)) check_final(s, r->prefix);
  }
  session_close(s);
}

int main(int argc, char **argv) {
  CHECK_INT(argc, 2);
  const char *model = argc == 2 ? argv[1] : "mlp";
  for (int side = 1; side <= 2; side++) {
    if (!compares(model, side)) continue;
    check_gradients(model, side);
    for (size_t r = 0; r < sizeof runs / sizeof *runs; r++) check_run(model, side, 1, &runs[r]);
  }
  bool sequence = strcmp(model, "mlp") && strcmp(model, "linear_regression");
  for (int v = 1; v <= VARIANTS && sequence; v++) {
    if (!compares(model, SIDES + v)) continue;
    check_gradients(model, SIDES + v);
    check_run(model, SIDES + v, 1, &runs[0]);
  }
  if (!is_one_microbatch(model)) check_run(model, 1, 2, &runs[0]);
  return check_done(model);
}
