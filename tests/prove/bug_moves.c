// SPDX-License-Identifier: Apache-2.0
/* What is moved between ranks: too late, of another stage, or of another shard. */
#include "bug_classes.h"

/* ---- stale gather ---- */

/* The next step's gather reads the shards before the update. */
static void gather_of_last_step(bug *b) {
  int value = bug_find_value(b, "block.0.attn.wq");
  tsr_program *p = NULL;
  b->node = bug_find(b, "block.0.attn.wq.gathered_dp");
  bug_task(b, b->node, &p);
  if (bug_make_stale(b, p, value, -1) < 1) abort();
}

/* A task moves before or behind another one of its part. */
static void move_behind(bug *b, const char *first, const char *second) {
  tsr_program *p = NULL;
  tsr_task *from = bug_task(b, bug_find(b, first), &p),
           *to = bug_task(b, bug_find(b, second), NULL);
  b->node = to->node;
  sample_move_task(p, (int)(from - p->tasks), (int)(to - p->tasks));
}

/* The layer reads what was gathered before: of another block. */
static void gather_behind_reader(bug *b) { move_behind(b, "block.1.n.gathered_tp", "block.1.q"); }

/* The layer reads the shard that is gathered. */
static void read_shard(bug *b) {
  tsr_task *reader = bug_task(b, bug_find(b, "block.1.f.linear"), NULL);
  const tsr_program *p = b->plan.mesh.compiled.programs.of_stage[0];
  tsr_tensor shard = p->tensors[bug_find_value(b, "block.1.mlp.w_gate")],
             *read = &reader->inputs[1];
  read->segment = shard.segment;
  read->offset = shard.offset;
  read->slot_group = -1;
  b->node = reader->node;
}

/* Keys are attended to before those of the other ranks have come. */
static void keys_before_gather(bug *b) {
  tsr_task *attention = bug_task(b, bug_find(b, "block.0.a"), NULL);
  b->node = attention->node;
  attention->inputs[1].offset += 64;
}

/* ---- wrong stage's input ---- */

/* The stage gets what a block reads, and not what it makes. */
static void receive_other(bug *b, const char *received, const char *other) {
  b->node = bug_find(b, received);
  b->g->nodes[b->node].inputs[0] = bug_find_value(b, other);
  bug_lower(b, NULL, NULL);
}
static void before_mlp(bug *b) { receive_other(b, "block.0.x_2.stage1", "block.0.x"); }
static void chunk_before_mlp(bug *b) { receive_other(b, "block.1.x_2.stage2", "block.1.x"); }
static void gradient_of_other(bug *b) {
  receive_other(b, "d.block.1.x.stage0", "d.block.0.x_2@block.1.n");
}

/* A stage's forward pass reads what has been received for another microbatch. */
static void other_microbatch(bug *b) {
  const tsr_programs *programs = &b->plan.mesh.compiled.programs;
  b->node = bug_find(b, "block.0.x_2.stage1");
  tsr_program *p = programs->of_stage[1];
  int value = b->g->nodes[b->node].outputs[0];
  tsr_tensor other = p->tensors[value];
  if (other.slot_group < 0) abort();
  const tsr_slot_group *f = &p->slot_groups[other.slot_group];
  if (f->slots < 2) abort();
  for (int t = 0; t < p->tasks_count; t++) /* of the block's norm alone */
    for (int k = 0; k < p->tasks[t].inputs_count; k++)
      if (p->tasks[t].inputs[k].value == value && p->tasks[t].section == TSR_FORWARD)
        p->tasks[t].inputs[k].offset += f->bytes;
}

/* ---- state of another shard ---- */

static void use_state(bug *b, const char *update, int input, const char *state) {
  b->node = bug_find(b, update);
  b->g->nodes[b->node].inputs[input] = bug_find_value(b, state);
  bug_lower(b, NULL, NULL);
}
static void momentum_of_block(bug *b) {
  use_state(b, "update.block.0.attn.wq", 2, "block.1.attn.wq.m");
}
static void variance_of_block(bug *b) {
  use_state(b, "update.block.1.moe.w_up", 3, "block.0.moe.w_up.v");
}
static void variance_of_momentum(bug *b) { use_state(b, "update.ln_f", 3, "ln_f.m"); }

/* The state's part is another one of the same rank: it begins too late. */
static void shifted_state(bug *b) {
  tsr_task *update = bug_task(b, bug_find(b, "update.block.0.attn.wo"), NULL);
  update->inputs[2].offset += 64;
  b->node = update->node;
}

/* ---- stale parameter of a stage ---- */

/* The last stage computes with the table of the step before. */
static void tied_of_last_step(bug *b) {
  int value = bug_find_value(b, "wte.stage1"), node = bug_find(b, "wte.stage1");
  tsr_program *p = NULL;
  tsr_task *receive = bug_task(b, node, &p);
  b->node = node;
  if (bug_make_stale(b, p, value, (int)(receive - p->tasks)) < 2) abort();
}

/* The stage keeps the weights with which its pipeline was filled first. */
static void weights_of_last_step(bug *b) {
  int value = bug_find_value(b, "block.1.attn.wo");
  tsr_program *p = NULL;
  b->node = bug_find(b, "block.1.o");
  bug_task(b, b->node, &p);
  if (bug_make_stale(b, p, value, -1) < 2) abort();
}

/* The backward pass has other weights than the forward pass. */
static void backward_of_last_step(bug *b) {
  int value = bug_find_value(b, "block.2.mlp.w_up");
  tsr_program *p = NULL;
  b->node = bug_find(b, "d.block.2.n_2");
  tsr_task *backward = bug_task(b, b->node, &p);
  tsr_task *forward = bug_task(b, bug_find(b, "block.2.f.linear_2"), NULL);
  if (forward->inputs[1].value != value) abort();
  tsr_tensor sound = forward->inputs[1];
  int at = (int)(forward - p->tasks);
  (void)backward;
  if (bug_make_stale(b, p, value, -1) < 2) abort();
  p->tasks[at + 1].inputs[1] = sound;
}

static const bug_variant table[] = {
    {BUG_STALE_GATHER, QWEN3_ZERO1, "of the step before", gather_of_last_step},
    {BUG_STALE_GATHER, LLAMA_SP, "behind its reader", gather_behind_reader},
    {BUG_STALE_GATHER, QWEN3_ZERO3, "a shard read in its place", read_shard},
    {BUG_STALE_GATHER, CHAT_CP, "keys read before their place", keys_before_gather},
    {BUG_STAGE_INPUT, LLAMA_PP, "a value inside a block", before_mlp},
    {BUG_STAGE_INPUT, QWEN3_CHUNKS, "the same between chunks", chunk_before_mlp},
    {BUG_STAGE_INPUT, GPT2_PP, "another gradient", gradient_of_other},
    {BUG_STAGE_INPUT, QWEN3_CHUNKS, "another microbatch", other_microbatch},
    {BUG_STATE_SHARD, QWEN3_ZERO1, "momentum of another block", momentum_of_block},
    {BUG_STATE_SHARD, MIXTRAL_EP, "variance of other experts", variance_of_block},
    {BUG_STATE_SHARD, QWEN3_OWNERS, "variance in place of momentum", variance_of_momentum},
    {BUG_STATE_SHARD, LLAMA_DP_TP, "a part that begins later", shifted_state},
    {BUG_STALE_STAGE, GPT2_PP, "a tied table", tied_of_last_step},
    {BUG_STALE_STAGE, LLAMA_PP, "a stage's own weight", weights_of_last_step},
    {BUG_STALE_STAGE, QWEN3_CHUNKS, "in the backward pass alone", backward_of_last_step},
};
BUG_VARIANTS(bugs_of_moves, table);
