// SPDX-License-Identifier: Apache-2.0
/* What a proof cannot show is counted in the programs of both sizes. */
#include "prove/not_shown.h"
#include "proof.h"
#include "tests/check.h"

static const char large[] = "training_config: {seed: 5, batch_size: 128, sequence_length: 8192, "
                            "max_steps: 4, precision: bf16,\n"
                            "  optimizer: {type: AdamW, lr: 0.01}}\n"
                            "transformer_config: {model_type: gpt2, vocab_size: 131072, "
                            "embedding_dim: 1024, num_heads: 8,\n"
                            "  num_blocks: 2, max_sequence_length: 8192, dropout_prob: 0.1}\n";

static const char small[] =
    "training_config: {seed: 5, batch_size: 8, max_steps: 4, optimizer: {type: SGD, lr: 0.01}}\n"
    "mlp_config: {input_features: 3, hidden_features: [3], output_features: 3}\n"
    "device_config: {device: cuda}\n";

/* 128 × 8,192 × 4,096 values of an MLP's hidden layer, in bf16; the logits are in no memory. */
static void check_extent(const proof *p, const tsr_reduced_run *plan) {
  const int64_t hidden = (int64_t)128 * 8192 * 4096;
  tsr_program_extent e = tsr_program_extent_of(&p->full.compiled.programs);
  CHECK_STR(e.tensor, "block.0.f.linear");
  CHECK_INT(e.elements, hidden);
  CHECK_INT(e.bytes, 2 * hidden);
  CHECK(e.large >= 2);
  CHECK(e.segment > e.bytes);
  CHECK_INT(e.terms, 131072); /* of the gradient to the last norm */
  CHECK_INT(e.positions, 8192);
  tsr_program_extent r = tsr_program_extent_of(&plan->mesh.compiled.programs);
  CHECK_INT(r.large, 0);
  CHECK(r.elements < 4096 && r.terms < 256 && r.positions < 64);
}

static const char *lines(proof *p, const tsr_reduced_run *plan) {
  tsr_text text = {0};
  tsr_not_shown_print(&p->request, plan, &text);
  const char *copy = tsr_arena_strdup(p->arena, text.data);
  tsr_text_free(&text);
  return copy;
}

static void check_large(void) {
  proof p;
  proof_open(&p, large);
  tsr_reduced_run plan = proof_reduce(&p);
  check_extent(&p, &plan);
  const char *text = lines(&p, &plan);
  CHECK_AT(
      strstr(
          text, "not shown:\n  offsets of 32 bits: the largest tensor of a rank is "
                "'block.0.f.linear', "
                "4,294,967,296 elements in 8.0 GiB, and its largest buffer "),
      "%s", text);
  CHECK_AT(
      strstr(text, " tensors have 2^31 elements or bytes or more, of the reduced model 0\n"), "%s",
      text);
  CHECK_AT(strstr(text, ", sums of 131,072 terms (reduced: "), "%s", text);
  CHECK_AT(strstr(text, ", attention to 8,192 positions (reduced: "), "%s", text);
  CHECK_AT(
      strstr(
          text, "  errors of both runs: the interpreter covers forward and backward pass of step 1 "
                "in f32; not norms, clipping, the optimizer, first values, dropout's random "
                "numbers, rounding to "
                "half precision\n"),
      "%s", text);
  CHECK_AT(strstr(text, "  other devices: tasks ran on the CPU, "), "%s", text);
  CHECK(!strstr(text, "GPU"));
  proof_close(&p);
}

/* A model that is not reduced has no tiles of its own. */
static void check_small(void) {
  proof p;
  proof_open(&p, small);
  tsr_reduced_run plan = proof_reduce(&p);
  tsr_reduced_run same = plan;
  same.mesh.compiled = p.full.compiled;
  const char *text = lines(&p, &same);
  CHECK_AT(strstr(text, "; none has 2^31 elements or bytes\n"), "%s", text);
  CHECK_AT(
      strstr(text, "  tiles, blocks and shares of threads that only full size has: none\n"), "%s",
      text);
  CHECK_AT(strstr(text, "step 1; not norms, clipping, the optimizer, first values\n"), "%s", text);
  CHECK_AT(
      strstr(text, "; the program is the CPU's, too, and no kernel of the GPU ran\n"), "%s", text);
  proof_close(&p);
}

int main(void) {
  check_large();
  check_small();
  return check_done("not shown");
}
