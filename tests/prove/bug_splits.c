// SPDX-License-Identifier: Apache-2.0
/* How ranks split heads, positions and random numbers. */
#include "bug_classes.h"

/* ---- heads ---- */

/* The forward pass and its gradient have heads of another size. */
static void set_head(bug *b, const char *part, int divisor) {
  b->node = -1;
  for (int i = 0; i < b->g->nodes_count; i++) {
    tsr_node *n = &b->g->nodes[i];
    if (n->op != TSR_OP_ATTENTION && n->op != TSR_OP_ATTENTION_DX) continue;
    if (!strstr(n->name, part)) continue;
    n->attr.attention.head_dim /= divisor;
    n->attr.attention.scale = 0.5; /* that of the heads as they should be: 4 features */
    if (b->node < 0) b->node = i;
  }
  bug_lower(b, NULL, NULL);
}
static void half_heads(bug *b) { set_head(b, "block.0.a", 2); }

/* Queries have the keys of the next group of heads. */
static void next_group(bug *b) {
  tsr_task *task = bug_task(b, bug_find(b, "block.0.a"), NULL);
  b->node = task->node;
  task->inputs[1].offset += 4 * b->g->nodes[b->node].attr.attention.head_dim;
}

/* The parts of two ranks are joined in the other order: RoPE turns halves of two heads. */
static void turned_across_heads(bug *b) {
  b->node = bug_find_op(b, -1, TSR_OP_ROPE, TSR_FORWARD, "block.1.q");
  b->g->nodes[b->node].attr.rope.head_dim *= 2;
  b->g->nodes[b->node].attr.rope.rotary_dim = b->g->nodes[b->node].attr.rope.head_dim / 2;
  bug_lower(b, NULL, NULL);
}

/* What is split into latent features and rotary ones is split one feature later. */
static void slice_one_later(bug *b) {
  int node = bug_find_op(b, -1, TSR_OP_SLICE, TSR_FORWARD, "block.0.");
  if (node < 0) abort();
  b->node = node;
  tsr_slice_attrs *a = &b->g->nodes[node].attr.slice;
  int64_t shift = a->begin > 0 ? -1 : 1;
  a->begin += shift;
  a->end += shift;
  bug_lower(b, NULL, NULL);
}

/* ---- positions ---- */

/* Every rank of cp begins at position 0: it has the whole table, and reads it from the first row. */
static void from_zero(bug *b) {
  for (int v = 0; v < b->g->values_count; v++)
    if (b->g->values[v].kind == TSR_VALUE_CONST)
      b->g->values[v].placement[TSR_CP] = (tsr_placement){.kind = TSR_REPLICATE};
  b->node = bug_find_op(b, -1, TSR_OP_ROPE, TSR_FORWARD, "");
  bug_lower(b, NULL, NULL);
}

/* Data lie from both ends, and the ring's masks are those of neighbours. */
static void not_zigzag(bug *b) {
  tsr_lowering l = b->plan.mesh.compiled.programs.of_stage[0]->lowering;
  l.zigzag = !l.zigzag;
  b->node = bug_find_op(b, -1, TSR_OP_ROPE, TSR_FORWARD, "");
  bug_lower(b, &l, NULL);
}

/* A step of the ring takes its keys for those of another member. */
static void wrong_ring_step(bug *b) {
  b->node = bug_find(b, "block.1.a.step1");
  b->g->nodes[b->node].attr.ring.step = 0;
  bug_lower(b, NULL, NULL);
}

/* Rotary positions are those in the sample, and not those in the document. */
static void positions_of_next(bug *b) {
  b->node = bug_find_op(b, -1, TSR_OP_ROPE_AT, TSR_FORWARD, "block.0.k");
  b->g->nodes[b->node].inputs[2] = bug_find_value(b, "tokens");
  bug_lower(b, NULL, NULL);
}

/* ---- dropout ---- */

/* All dropouts of a stream have one mask: forward and backward pass alike. */
static void share_stream(bug *b) {
  b->node = bug_find(b, "block.1.x.dropout");
  const char *own = b->g->nodes[b->node].stream, *other = NULL;
  other = b->g->nodes[bug_find(b, "block.0.x.dropout")].stream;
  for (int i = 0; i < b->g->nodes_count; i++)
    if (b->g->nodes[i].stream && !strcmp(b->g->nodes[i].stream, own)) b->g->nodes[i].stream = other;
  bug_lower(b, NULL, NULL);
}

/* Ranks draw the numbers of the first rank's part. The programs stay, and their tensors' sizes. */
static void draw_alike(bug *b, const char *name, int axis) {
  b->node = bug_find(b, name);
  const char *stream = b->g->nodes[b->node].stream;
  for (int i = 0; i < b->g->nodes_count; i++) {
    const tsr_node *n = &b->g->nodes[i];
    if (n->op != TSR_OP_DROPOUT || strcmp(n->stream, stream)) continue;
    b->g->values[n->outputs[0]].placement[axis] = (tsr_placement){.kind = TSR_REPLICATE};
  }
}
static void alike_over_dp(bug *b) { draw_alike(b, "block.0.x.dropout", TSR_DP); }
static void alike_over_tp(bug *b) { draw_alike(b, "block.0.x.dropout", TSR_TP); }
static void alike_in_adapter(bug *b) { draw_alike(b, "block.0.o.lora_dropout", TSR_TP); }
static void alike_over_cp(bug *b) { draw_alike(b, "block.1.x.dropout", TSR_CP); }

static const bug_variant table[] = {
    {BUG_HEADS, LLAMA_DP_TP, "heads of half the features", half_heads},
    {BUG_HEADS, QWEN3_ZERO3, "keys of the next group", next_group},
    {BUG_HEADS, QWEN3_SP, "RoPE across two heads", turned_across_heads},
    {BUG_HEADS, DEEPSEEK_TP, "a slice one feature later", slice_one_later},
    {BUG_POSITIONS, LLAMA_CP, "every rank from 0", from_zero},
    {BUG_POSITIONS, LLAMA_ZIGZAG, "in a row, not zigzag", not_zigzag},
    {BUG_POSITIONS, GPT2_CP, "a ring's step of another member", wrong_ring_step},
    {BUG_POSITIONS, CHAT_CP, "of keys in the document", positions_of_next},
    {BUG_DROPOUT, GPT2_DP_TP, "one stream of two blocks", share_stream},
    {BUG_DROPOUT, GPT2_DP, "alike over dp", alike_over_dp},
    {BUG_DROPOUT, GPT2_SP, "alike over tp", alike_over_tp},
    {BUG_DROPOUT, GPT2_CP, "alike over cp", alike_over_cp},
    {BUG_DROPOUT, LORA_TP, "an adapter's alike over tp", alike_in_adapter},
};
BUG_VARIANTS(bugs_of_splits, table);
