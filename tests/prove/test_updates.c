// SPDX-License-Identifier: Apache-2.0
/* The learning rate and the loss scale of a proof are those with which updates change weights, and
 * an update that changes none is reported. */
#include "prove/updates.h"
#include "proof.h"
#include "tests/check.h"
#include "tests/printed.h"

static const char model[] =
    "transformer_config: {model_type: gpt2, vocab_size: 64, embedding_dim: 32, num_heads: 4,\n"
    "  num_blocks: 2, max_sequence_length: 16}\n"
    "mesh: {axes: [dp], shape: [2]}\n";

typedef struct {
  tsr_synthetic data; /* which `how` points to */
  tsr_recording how;
  tsr_state state;
  tsr_reduced_run plan;
} run;

/* Of the model with these settings of training. */
static void start(proof *p, const char *settings, run *ret) {
  char yaml[1024];
  snprintf(
      yaml, sizeof yaml,
      "training_config: {seed: 5, batch_size: 8, sequence_length: 16, max_steps: 4, %s}\n%s",
      settings, model);
  proof_open(p, yaml);
  ret->plan = proof_reduce(p);
  ret->data = proof_data(p, &ret->plan.single);
  ret->how = tsr_recording_of(ret->plan.single.config, &p->request.cpu, &ret->data);
  CHECK(tsr_updates_run(p->arena, &ret->plan.single, &ret->how, &ret->state, p->diags));
}

static const char *report(proof *p, const run *r, bool ok) {
  tsr_text text = {0};
  CHECK_INT(tsr_updates_report(r->plan.single.config, &r->state, &r->how, &text, p->diags), ok);
  const char *copy = tsr_arena_strdup(p->arena, text.data);
  tsr_text_free(&text);
  return copy;
}

/* The configuration's numbers, or others. */
static void
check_choice(const char *settings, double rate, double scale, const char *line_from_third_number) {
  proof p;
  run r;
  start(&p, settings, &r);
  tsr_updates u = tsr_updates_of(&r.state);
  CHECK(tsr_updates_are_real(&u));
  CHECK_INT(u.steps, 2);
  CHECK_INT(u.changed, u.trained);
  CHECK_INT(u.trained, 37);
  CHECK(r.how.rate == rate);
  CHECK(scale == 0 || r.how.loss_scale == scale);
  const char *text = report(&p, &r, true), *rest = strstr(text, "parameters");
  CHECK(rest);
  CHECK_STR(rest, line_from_third_number);
  proof_close(&p);
}

static void check_choices(void) {
  check_choice(
      "optimizer: {type: AdamW, lr: 0.004}", 0.004, 0,
      "parameters with a gradient change, in 2 of 2 steps, with learning rate 0.004\n");
  check_choice(
      "optimizer: {type: AdamW, lr: 1.0e-12}", 1e-3, 0,
      "parameters with a gradient change, in 2 of 2 steps, with learning rate 0.001 in place of "
      "the schedule's largest, 1e-12, which changes too little\n");
  check_choice(
      "precision: bf16, optimizer: {type: AdamW, lr: 1.0e-6, stochastic_rounding: true}", 1e-3, 0,
      "parameters with a gradient change, in 2 of 2 steps, with learning rate 0.001 in place of "
      "the schedule's largest, 1e-06, which changes too little\n");
  check_choice(
      "precision: fp16, optimizer: {type: AdamW, lr: 0.01}, loss_scale: {mode: static, init: "
      "1.0e+30}",
      0.01, 1024,
      "parameters with a gradient change, in 2 of 2 steps, with learning rate 0.01, with loss "
      "scale 1024 in place of 1e+30, which overflows\n");
}

static tsr_state_tensor *find(tsr_state *s, const char *name) {
  tsr_state_tensors *of = &s->steps[1].of[TSR_RECORDED_WEIGHTS];
  for (int i = 0; i < of->count; i++)
    if (!strcmp(of->items[i].name, name)) return &of->items[i];
  abort();
}

static void keep(tsr_state *s, const char *name) {
  tsr_state_tensor *w = find(s, name);
  memcpy(w->data, s->initial[w->param], sizeof(float) * (size_t)w->count);
}

/* A key's bias has a gradient that cancels out. That it stays is no failure. */
static void check_cancelled(void) {
  proof p;
  run r;
  start(&p, "optimizer: {type: SGD, lr: 0.1}", &r);
  keep(&r.state, "block.0.attn.bk");
  keep(&r.state, "block.1.attn.bk");
  tsr_updates u = tsr_updates_of(&r.state);
  CHECK(tsr_updates_are_real(&u));
  CHECK_INT(u.trained, 35);
  CHECK_INT(u.cancelled, 2);
  CHECK_STR(u.first_cancelled->name, "block.0.attn.bk");
  CHECK_STR(
      report(&p, &r, true),
      "updates: 35 of 35 parameters with a gradient change, in 2 of 2 steps, with learning rate "
      "0.1; 2 more, the first is 'block.0.attn.bk', whose gradient cancels out, do not\n");
  proof_close(&p);
}

/* A weight that stays, and steps that update nothing, are failures. */
static void check_failures(void) {
  proof p;
  run r;
  start(&p, "optimizer: {type: AdamW, lr: 0.004}", &r);
  tsr_state_tensor *w = find(&r.state, "block.1.attn.wo");
  keep(&r.state, w->name);
  CHECK(strstr(report(&p, &r, false), "updates: 36 of 37 parameters"));
  const char *text = printed_diags(p.arena, p.diags);
  CHECK_AT(
      strstr(
          text, "configs/graphs/gpt2.yaml:93:5: error: 'block.1.attn.wo' has a gradient, and no "
                "bit of it changes in 2 steps, so the proof shows nothing about its updates\n"),
      "%s", text);
  CHECK_INT(tsr_diags_exit_code(p.diags), 1);
  w->data[3] = nextafterf(w->data[3], 1);
  report(&p, &r, true);
  r.state.steps[0].updates = r.state.steps[1].updates = false;
  CHECK(strstr(report(&p, &r, false), "updates: 0 of 0 parameters"));
  text = printed_diags(p.arena, p.diags);
  CHECK_AT(strstr(text, "error: the gradients of all steps overflow"), "%s", text);
  proof_close(&p);
}

static void check_no_optimizer(void) {
  proof p;
  run r;
  start(&p, "optimizer: {type: NoOp, lr: 0.1}", &r);
  CHECK_STR(report(&p, &r, true), "updates: none, the optimizer is NoOp\n");
  CHECK_INT(r.state.steps[1].of[TSR_RECORDED_GRADIENTS].count, 37 + 1); /* clip */
  proof_close(&p);
}

int main(void) {
  check_choices();
  check_cancelled();
  check_failures();
  check_no_optimizer();
  return check_done("updates");
}
