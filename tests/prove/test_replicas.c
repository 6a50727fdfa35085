// SPDX-License-Identifier: Apache-2.0
/* One wrong bit of one rank's copy of any parameter or state is found. */
#include "prove/replicas.h"
#include "proof.h"
#include "tests/check.h"

static const char yaml[] =
    "training_config: {seed: 5, batch_size: 8, sequence_length: 16, max_steps: 4,\n"
    "  optimizer: {type: AdamW, lr: 0.01}}\n"
    "transformer_config: {model_type: llama, vocab_size: 61, embedding_dim: 32, num_heads: 4,\n"
    "  num_groups: 2, num_blocks: 2, intermediate_dim: 24, max_sequence_length: 16}\n"
    "mesh: {axes: [dp, tp], shape: [2, 2]}\n";

static bool same_part(const tsr_part_of_value *a, const tsr_part_of_value *b) {
  return !memcmp(a->slice.offset, b->slice.offset, sizeof a->slice.offset);
}

/* A part that another rank has, too; -1: there is none. */
static int find_copy(const tsr_part_of_value *parts, int count) {
  for (int i = 1; i < count; i++)
    for (int k = 0; k < i; k++)
      if (same_part(&parts[i], &parts[k])) return i;
  return -1;
}

int main(void) {
  proof p;
  proof_open(&p, yaml);
  tsr_reduced_run plan = proof_reduce(&p);
  const tsr_prove_run *run = &plan.mesh;
  tsr_process_options o = {
      .parallel = run->parallel, .kernels = p.request.cpu.k, .threads = 1, .seed = 3};
  tsr_process *process;
  tsr_executable *e;
  if (!tsr_process_open(p.arena, &o, &run->compiled.programs, 1, &process, &e, p.diags))
    proof_fail(&p);
  const tsr_graph *g = tsr_executable_graph(e);
  tsr_part_of_value *parts =
      tsr_arena_array(p.arena, tsr_part_of_value, tsr_executable_parts_most(e));
  int tried = 0;
  CHECK(!tsr_replicas_differing(p.arena, e));
  for (int v = 0; v < g->values_count; v++) {
    tsr_value_kind kind = g->values[v].kind;
    if (kind != TSR_VALUE_PARAM && kind != TSR_VALUE_STATE) continue;
    int count = tsr_executable_parts(e, v, false, parts), copy = find_copy(parts, count);
    CHECK_AT(copy > 0, "%s has no replica", g->values[v].name);
    uint32_t *last = (uint32_t *)parts[copy].address + parts[copy].run - 1;
    *last ^= 1;
    const tsr_value *found = tsr_replicas_differing(p.arena, e);
    CHECK_AT(found == &g->values[v], "%s: not found", g->values[v].name);
    *last ^= 1;
    tried++;
  }
  CHECK_INT(tried, 3 * g->params_count);
  CHECK(!tsr_replicas_differing(p.arena, e));
  tsr_process_close(process);
  tsr_state mesh = proof_run(&p, run, TSR_PROVE_STEPS);
  CHECK(!mesh.differing_replica);
  proof_close(&p);
  return check_done("replicas");
}
